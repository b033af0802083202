// SPDX-License-Identifier: Apache-2.0

// Goal: the last steps of a tile have the bits of the same steps value by value, in every numeric
// class, for every number of rows.
// Method: random tiles with a few special values; results go to rows in descending order.
// Oracle: ops/tensor/bf16.h and ops/tensor/math.h, one value at a time.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/math.h"
#include "tests/ops/cpu/kernel_tables.h"
#include "tests/ops/random_values.h"

namespace afd::ops {
namespace {

constexpr size_t kHalf = kPanelColumns / 2;

std::vector<float> random_sums(size_t count) {
    test::RandomValues random(7, 4.0f);
    std::vector<float> sums(count);
    for (float& sum : sums) sum = random.next();
    sums[1] = -0.0f;
    sums[2] = 3e38f;
    sums[3] = -200.0f;
    sums[4] = std::numeric_limits<float>::infinity();
    sums[5] = std::numeric_limits<float>::quiet_NaN();
    return sums;
}

// Bits, with all NaN the same.
uint16_t bits_of(Bf16 value) {
    return std::isnan(to_float(value)) ? uint16_t{0x7fc0} : value.bits;
}

struct TargetRows {
    explicit TargetRows(size_t num_rows) : values(num_rows * kPanelColumns) {
        for (size_t r = 0; r < num_rows; ++r) {
            targets.push_back(&values[(num_rows - 1 - r) * kPanelColumns]);
        }
    }
    std::vector<Bf16> values;
    std::vector<Bf16*> targets;
};

// Calls body(kernels, num_rows) for all of them.
template <typename Body>
void for_each_tile(const Body& body) {
    for (const test::KernelTable& table : test::every_kernel_table()) {
        for (size_t num_rows = 1; num_rows <= cpu::kTileRowsMax; ++num_rows) {
            SCOPED_TRACE(table.name + ", " + std::to_string(num_rows) + " rows");
            body(table.kernels, num_rows);
        }
    }
}

TEST(TileRows, SwigluHasTheBitsOfTheScalarFunctions) {
    const std::vector<float> sums = random_sums(cpu::kTileFloats);
    for_each_tile([&](const cpu::Kernels& kernels, size_t num_rows) {
        TargetRows h(num_rows);
        kernels.swiglu_tile(sums.data(), num_rows, h.targets.data());
        for (size_t r = 0; r < num_rows; ++r) {
            for (size_t c = 0; c < kHalf; ++c) {
                const float gate = to_float(from_float(sums[r * kPanelColumns + c]));
                const float up = to_float(from_float(sums[r * kPanelColumns + kHalf + c]));
                ASSERT_EQ(bits_of(h.targets[r][c]), bits_of(from_float(silu(gate) * up)))
                    << "row " << r << ", column " << c;
            }
        }
    });
}

TEST(TileRows, RoundingHasTheBitsOfFromFloat) {
    const std::vector<float> sums = random_sums(cpu::kTileFloats);
    for_each_tile([&](const cpu::Kernels& kernels, size_t num_rows) {
        TargetRows y(num_rows);
        kernels.round_tile(sums.data(), num_rows, y.targets.data());
        for (size_t r = 0; r < num_rows; ++r) {
            for (size_t c = 0; c < kPanelColumns; ++c) {
                ASSERT_EQ(bits_of(y.targets[r][c]),
                          bits_of(from_float(sums[r * kPanelColumns + c])))
                    << "row " << r << ", column " << c;
            }
        }
    });
}

TEST(TileRows, ScalingMultipliesByTheRowFirst) {
    std::mt19937 engine(9);
    std::vector<int32_t> sums(cpu::kTileRowsMax * kPanelColumns);
    for (int32_t& sum : sums) sum = static_cast<int32_t>(engine());
    const std::vector<float> scales = random_sums(8 + std::max(kPanelColumns, cpu::kTileRowsMax));
    for_each_tile([&](const cpu::Kernels& kernels, size_t num_rows) {
        std::vector<float> y(num_rows * kPanelColumns);
        kernels.scale_tile(sums.data(), &scales[8], scales.data(), num_rows, y.data());
        for (size_t i = 0; i < y.size(); ++i) {
            const float row_scale = scales[8 + i / kPanelColumns];
            const float want = static_cast<float>(sums[i]) * row_scale * scales[i % kPanelColumns];
            if (std::isnan(want)) {
                ASSERT_TRUE(std::isnan(y[i])) << i;
            } else {
                ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(want)) << i;
            }
        }
    });
}

}  // namespace
}  // namespace afd::ops

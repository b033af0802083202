// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seeded random int8, int4, mxfp4 and fp8 matrices as checkpoints store them, and the bf16 matrix
// that an int4 or mxfp4 one stands for, by the formula of ops/format/weight_format.h.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/format/weight_format.h"

namespace afd::ops::test {

struct RandomInt8 {
    std::vector<int8_t> values;
    std::vector<float> scale;
    size_t num_outputs;
    size_t depth;

    RandomInt8(size_t outputs, size_t columns, uint32_t seed)
        : values(outputs * columns), scale(outputs), num_outputs(outputs), depth(columns) {
        std::mt19937 engine(seed);
        for (int8_t& value : values) value = static_cast<int8_t>(engine() % 256 - 128);
        for (float& s : scale) s = 0.0005f + 0.00001f * static_cast<float>(engine() % 100);
    }

    Int8Weight weight() const {
        return {make_rows(values.data(), num_outputs, depth), scale.data()};
    }
};

// With zero points two that have every group and type of scale between them.
constexpr WeightFormat kInt4Formats[] = {WeightFormat::kInt4Group32,
                                         WeightFormat::kInt4Group64,
                                         WeightFormat::kInt4Group32Fp16,
                                         WeightFormat::kInt4Group64Fp16,
                                         WeightFormat::kInt4Group32Zero,
                                         WeightFormat::kInt4Group64Fp16Zero};

// Short scales have at most five significant bits, as afd-quantize writes them.
enum class Scales { kAny, kShort };

struct RandomInt4 {
    std::vector<uint8_t> values;
    std::vector<uint16_t> scale;
    std::vector<int8_t> zero;
    size_t num_outputs;
    size_t depth;
    WeightFormat format;

    RandomInt4(size_t outputs,
               size_t columns,
               WeightFormat of,
               uint32_t seed,
               Scales scales = Scales::kAny)
        : values(outputs * ((columns + 1) / 2)), num_outputs(outputs), depth(columns), format(of) {
        std::mt19937 engine(seed);
        for (uint8_t& byte : values) {
            // All of -8 ... 7, as other programs write it.
            byte = static_cast<uint8_t>(engine() & 255);
        }
        scale.resize(outputs * num_groups());
        const bool is_fp16 = has_fp16_scales(of);
        for (uint16_t& s : scale) {
            if (of == WeightFormat::kMxfp4) {
                s = from_float(std::ldexp(1.0f, static_cast<int>(engine() % 12) - 12)).bits;
                continue;
            }
            // As many bits behind the first one as the type has, or four; of fp16, subnormals too.
            const uint32_t steps = scales == Scales::kShort ? 16 : is_fp16 ? 1024 : 128;
            const float magnitude =
                std::ldexp(1.0f + static_cast<float>(engine() % steps) / static_cast<float>(steps),
                           static_cast<int>(engine() % 6) - (is_fp16 ? 17 : 9));
            // Of either sign, as other programs write it.
            const float value = engine() % 2 == 0 ? magnitude : -magnitude;
            s = is_fp16 ? fp16_from_float(value).bits : from_float(value).bits;
        }
        if (!has_zero_points(of)) return;
        for (size_t i = 0; i < scale.size(); ++i) {
            zero.push_back(static_cast<int8_t>(engine() % 16 - 8));
        }
    }

    size_t num_groups() const {
        return (depth + int4_group_size(format) - 1) / int4_group_size(format);
    }
    Int4Weight weight() const {
        return {make_rows(values.data(), num_outputs, (depth + 1) / 2),
                make_rows(scale.data(), num_outputs, num_groups()),
                depth,
                format,
                make_rows(zero.data(), zero.empty() ? 0 : num_outputs, num_groups())};
    }

    // [num_outputs, depth]
    std::vector<Bf16> dequantised() const {
        const Int4Weight w = weight();
        std::vector<Bf16> rows(num_outputs * depth);
        for (size_t n = 0; n < num_outputs; ++n) {
            for (size_t k = 0; k < depth; ++k) {
                rows[n * depth + k] = from_float(w.number(n, k) * w.scale_at(n, k));
            }
        }
        return rows;
    }
};

struct RandomFp8 {
    std::vector<E4m3> values;
    std::vector<float> scale;
    size_t num_outputs;
    size_t depth;

    // Every pattern of e4m3 that is a number, subnormals included; scales of any fp32 mantissa.
    RandomFp8(size_t outputs, size_t columns, uint32_t seed)
        : values(outputs * columns),
          scale(fp8_blocks(outputs) * fp8_blocks(columns)),
          num_outputs(outputs),
          depth(columns) {
        std::mt19937 engine(seed);
        for (E4m3& value : values) {
            value = {static_cast<uint8_t>(engine() % 256)};
            if (is_nan(value)) value = {};
        }
        std::uniform_real_distribution<float> any(1e-4f, 4e-4f);
        for (float& s : scale) s = any(engine);
    }

    Fp8Weight weight() const {
        return {make_rows(values.data(), num_outputs, depth),
                make_rows(scale.data(), fp8_blocks(num_outputs), fp8_blocks(depth))};
    }
};

}  // namespace afd::ops::test

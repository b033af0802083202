// SPDX-License-Identifier: Apache-2.0
//
// Gates that bf16 does not hold. What they choose in a whole model: tests/golden
// (minimax_m2_f32_router).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "model/checkpoint/router_tensors.h"
#include "model/decoder/router.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kGateLayer = 1;
constexpr uint32_t kNumChosen = 3;
constexpr const char* kGate = "model.layers.1.mlp.gate.weight";
constexpr const char* kGateBias = "model.layers.1.mlp.gate.e_score_correction_bias";

// One group of 8 experts, of which each row takes 3; the bias is 0.
class RouterTest : public testing::Test {
  protected:
    RouterTest() : builder_(small_config()) {
        builder_.config()["n_group"] = 1;
        builder_.config()["topk_group"] = 1;
        for (ops::Bf16& bias : builder_.tensor(kGateBias)) bias = {};
    }

    size_t gate_size() { return builder_.tensor(kGate).size(); }

    ModelFiles written(std::vector<float> gate) {
        builder_.store_as_f32(kGate, std::move(gate));
        builder_.write(directory_.path());
        auto files = ModelFiles::open(directory_.path());
        EXPECT_TRUE(files.ok()) << files.error().message;
        return std::move(files).value();
    }

    test::TemporaryDirectory directory_;
    CheckpointBuilder builder_;
    ops::SerialParallel serial_;
};

std::vector<float> random_floats(size_t count, float deviation) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

// Goal: no bit of a gate is lost, and none is carried that is not there. Oracle: the sum of the
// parts in double, and their number.
TEST_F(RouterTest, PartsAddUpToTheStoredGate) {
    const std::vector<float> full = random_floats(gate_size(), 0.1f);
    std::vector<float> double_bits = full;
    std::vector<float> single_bits = full;  // Of bf16.
    for (size_t i = 0; i < full.size(); ++i) {
        single_bits[i] = ops::to_float(ops::from_float(full[i]));
        double_bits[i] = single_bits[i] + single_bits[i] * 0x1p-10f;
    }
    for (const auto& [values, num_parts] :
         {std::pair(full, 3u), std::pair(double_bits, 2u), std::pair(single_bits, 1u)}) {
        const ModelFiles files = written(values);
        const auto tensors = read_router_tensors(files.tensors(), files.config(), kGateLayer);
        ASSERT_TRUE(tensors.ok()) << tensors.error().message;
        const std::vector<ops::Bf16>& gate = tensors.value().gate;
        ASSERT_EQ(gate.size(), num_parts * values.size());
        for (size_t i = 0; i < values.size(); ++i) {
            double sum = 0;
            for (size_t part = 0; part < num_parts; ++part) {
                sum += double{ops::to_float(gate[part * values.size() + i])};
            }
            ASSERT_EQ(sum, double{values[i]}) << i;
        }
    }
}

// Goal: experts that differ in the last bits of fp32 are chosen by them. Method: rows of the gate
// that are equal but for multiples of 2^-18 behind 1 + 2^-9, which take three parts. Oracle: the
// order of these multiples; rounded to bf16 all experts score alike, and 0, 1, 2 are chosen.
TEST_F(RouterTest, LastBitsOfAGateDecideNearTies) {
    const size_t hidden = gate_size() / 8;
    std::vector<float> gate(gate_size());
    for (size_t e = 0; e < 8; ++e) {
        gate[e * hidden] = 1 + 0x1p-9f + static_cast<float>((e * 5 + 3) % 8) * 0x1p-18f;
    }
    const ModelFiles files = written(gate);
    std::vector<ops::Bf16> x(hidden);
    x[0] = ops::from_float(1.0f);
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const Router router = Router::load(files, numeric_class).value();
        const ops::Workspace workspace(router.workspace_bytes(1, 1));
        std::vector<int32_t> ids(kNumChosen);
        std::vector<float> weights(kNumChosen);
        router.route(kGateLayer,
                     ops::make_rows(std::as_const(x).data(), 1, hidden),
                     {ids.data(), weights.data()},
                     workspace.bytes(),
                     serial_);
        EXPECT_THAT(ids, ElementsAre(4, 7, 2));
    }
}

// What a router chose for rows, all at once or a few at a time.
struct Chosen {
    std::vector<int32_t> ids;
    std::vector<float> weights;

    Chosen(const Router& router,
           ops::Rows<const ops::Bf16> x,
           const RowRest& rest,
           size_t step,
           ops::Parallel& parallel)
        : ids(x.num_rows * kNumChosen), weights(x.num_rows * kNumChosen) {
        const ops::Workspace workspace(router.workspace_bytes(step, 1, true));
        for (size_t t = 0; t < x.num_rows; t += step) {
            const size_t count = std::min(step, x.num_rows - t);
            RowRest part;
            if (rest.middle.data != nullptr) {
                part = {.middle = rest.middle.slice(t, count), .low = rest.low.slice(t, count)};
            }
            router.route(kGateLayer,
                         x.slice(t, count),
                         {&ids[t * kNumChosen], &weights[t * kNumChosen]},
                         workspace.bytes(),
                         parallel,
                         part);
        }
    }
};

// Goal: the parts of row and gate are added in one order, however many rows come at once. Oracle:
// equal bits, with what the rounding of a row left and without it; and that rest counts.
TEST_F(RouterTest, PartsOfAGateGiveTheSameBitsForAnyNumberOfRows) {
    const size_t hidden = gate_size() / 8;
    const ModelFiles files = written(random_floats(gate_size(), 0.1f));
    constexpr size_t kRows = 33;
    // As a row comes from an attention worker: x, middle and low one behind the other.
    std::vector<ops::Bf16> sent;
    const std::vector<float> values = random_floats(kRows * hidden, 1);
    for (size_t t = 0; t < kRows; ++t) {
        std::array<std::vector<ops::Bf16>, 3> parts;
        for (size_t i = 0; i < hidden; ++i) {
            float left = values[t * hidden + i];
            for (auto& part : parts) {
                part.push_back(ops::from_float(left));
                left -= ops::to_float(part.back());
            }
        }
        for (const auto& part : parts) sent.insert(sent.end(), part.begin(), part.end());
    }
    const auto rows_of = [&](size_t part) {
        return ops::Rows<const ops::Bf16>{sent.data() + part * hidden, kRows, hidden, 3 * hidden};
    };
    const RowRest rest{.middle = rows_of(1), .low = rows_of(2)};
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const Router router = Router::load(files, numeric_class).value();
        const Chosen plain(router, rows_of(0), {}, kRows, serial_);
        const Chosen whole(router, rows_of(0), rest, kRows, serial_);
        EXPECT_NE(plain.weights, whole.weights);
        for (const size_t step : {1u, 4u, 7u}) {
            EXPECT_EQ(Chosen(router, rows_of(0), {}, step, serial_).weights, plain.weights);
            const Chosen some(router, rows_of(0), rest, step, serial_);
            EXPECT_EQ(some.ids, whole.ids);
            EXPECT_EQ(some.weights, whole.weights);
        }
    }
}

}  // namespace
}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
//
// Smooth scales of int8 experts: how they are chosen, what they change, what is refused at load.

#include "model/decoder/smooth_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/matrix_quantiser.h"
#include "model/decoder/expert_weights.h"
#include "model/family/config_file.h"
#include "model/safetensors/safetensors_writer.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/fused_moe/sent_rows.h"
#include "ops/reference/quantise.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "tools/afd-quantize/smooth_columns.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHidden = 64;
constexpr size_t kWidth = 48;

StoredMatrix random_matrix(size_t num_outputs, size_t depth, std::mt19937& random) {
    std::normal_distribution<float> normal(0, 0.05f);
    StoredMatrix matrix{.num_outputs = num_outputs, .depth = depth};
    matrix.bf16.resize(num_outputs * depth);
    for (ops::Bf16& value : matrix.bf16) value = ops::from_float(normal(random));
    return matrix;
}

// Rows whose channels 3 and 40 are a hundred times as large as the others.
std::vector<ops::Bf16> uneven_rows(size_t num_rows, std::mt19937& random) {
    std::normal_distribution<float> normal(0, 1);
    std::vector<ops::Bf16> rows(num_rows * kHidden);
    for (size_t i = 0; i < rows.size(); ++i) {
        const bool is_large = i % kHidden == 3 || i % kHidden == 40;
        rows[i] = ops::from_float(normal(random) * (is_large ? 100.0f : 1.0f));
    }
    return rows;
}

std::vector<float> ranges_of(const std::vector<ops::Bf16>& rows) {
    std::vector<float> ranges(kHidden, 0.0f);
    for (size_t i = 0; i < rows.size(); ++i) {
        ranges[i % kHidden] = std::max(ranges[i % kHidden], std::abs(ops::to_float(rows[i])));
    }
    return ranges;
}

// Sum of squared errors of x·Wᵀ with both quantised, against the exact product of the originals.
double squared_error(const std::vector<ops::Bf16>& rows,
                     const StoredMatrix& exact,
                     const StoredMatrix& folded,
                     const float* smooth) {
    const StoredMatrix quantised =
        quantise_matrix(folded.bf16_rows(), ops::WeightFormat::kInt8).value();
    const std::vector<float> weights = quantised.values();
    double error = 0;
    for (size_t row = 0; row < rows.size() / kHidden; ++row) {
        std::vector<int8_t> q(kHidden);
        const ops::Bf16* x = &rows[row * kHidden];
        const float scale =
            ops::reference::quantise_row(ops::DType::kBf16, x, smooth, kHidden, q.data());
        for (size_t n = 0; n < exact.num_outputs; ++n) {
            double wanted = 0;
            double found = 0;
            for (size_t k = 0; k < kHidden; ++k) {
                wanted += static_cast<double>(ops::to_float(x[k])) *
                          static_cast<double>(ops::to_float(exact.bf16[n * kHidden + k]));
                found += static_cast<double>(q[k]) * static_cast<double>(scale) *
                         static_cast<double>(weights[n * kHidden + k]);
            }
            error += (found - wanted) * (found - wanted);
        }
    }
    return error;
}

// As afd-quantize does with the parts of an expert.
std::vector<float> smoothed(const std::vector<float>& ranges,
                            StoredMatrix& gate,
                            StoredMatrix& up) {
    std::vector<float> largest(ranges.size(), 0.0f);
    tools::widen_columns(gate.bf16, largest);
    tools::widen_columns(up.bf16, largest);
    const std::vector<float> smooth = tools::smooth_scales(ranges, largest);
    tools::smooth_columns(gate.bf16, smooth);
    tools::smooth_columns(up.bf16, smooth);
    return smooth;
}

// Goal: nothing is rounded by smoothing itself, and what is quantised is quantised better. Oracle:
// the exact products; a tenth of the squared error (measured: a fortieth).
TEST(SmoothColumns, FoldExactlyAndLowerTheErrorOfUnevenChannels) {
    std::mt19937 random(4);
    const std::vector<ops::Bf16> rows = uneven_rows(20, random);
    const StoredMatrix gate = random_matrix(kWidth, kHidden, random);
    StoredMatrix folded_gate = gate;
    StoredMatrix folded_up = random_matrix(kWidth, kHidden, random);
    const std::vector<float> smooth = smoothed(ranges_of(rows), folded_gate, folded_up);
    ASSERT_EQ(smooth.size(), kHidden);
    for (size_t i = 0; i < gate.bf16.size(); ++i) {
        int exponent = 0;
        EXPECT_EQ(std::frexp(smooth[i % kHidden], &exponent), 0.5f) << "a power of two";
        EXPECT_EQ(ops::to_float(folded_gate.bf16[i]) * smooth[i % kHidden],
                  ops::to_float(gate.bf16[i]));
    }
    EXPECT_LT(smooth[3], smooth[4] / 4);
    EXPECT_LT(squared_error(rows, gate, folded_gate, smooth.data()),
              squared_error(rows, gate, gate, nullptr) / 10);
}

TEST(SmoothColumns, LeaveChannelsThatAreZeroOnOneSide) {
    std::mt19937 random(5);
    StoredMatrix gate = random_matrix(kWidth, kHidden, random);
    StoredMatrix up = random_matrix(kWidth, kHidden, random);
    for (size_t n = 0; n < kWidth; ++n) {
        gate.bf16[n * kHidden + 7] = up.bf16[n * kHidden + 7] = ops::Bf16{};
    }
    std::vector<float> ranges(kHidden, 100.0f);
    ranges[9] = 0;
    const std::vector<float> smooth = smoothed(ranges, gate, up);
    EXPECT_EQ(smooth[7], 1.0f);
    EXPECT_EQ(smooth[9], 1.0f);
    EXPECT_LT(smooth[8], 1.0f);
}

// Goal: it makes no difference where a row is quantised. Method: bf16 rows into experts with
// smooth scales, and int8 rows as a sender makes them for these experts. Oracle: the same bits.
TEST(SmoothScales, RowsAreTheSameQuantisedByTheSenderOrByTheExpert) {
    std::mt19937 random(6);
    const std::vector<ops::Bf16> rows = uneven_rows(11, random);
    const std::vector<size_t> counts = {4, 7};
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        ops::ExpertTable table(counts.size(), kHidden);
        std::vector<std::byte> sent;
        size_t row = 0;
        for (size_t key = 0; key < counts.size(); ++key) {
            StoredMatrix gate = random_matrix(kWidth, kHidden, random);
            StoredMatrix up = random_matrix(kWidth, kHidden, random);
            const StoredMatrix down = random_matrix(kHidden, kWidth, random);
            const std::vector<float> smooth = smoothed(ranges_of(rows), gate, up);
            const auto int8 = [](const StoredMatrix& matrix) {
                return quantise_matrix(matrix.bf16_rows(), ops::WeightFormat::kInt8).value();
            };
            const StoredMatrix parts[] = {int8(gate), int8(up), int8(down)};
            table.set(key,
                      ops::pack_expert(parts[0].int8_weight(),
                                       parts[1].int8_weight(),
                                       parts[2].int8_weight(),
                                       numeric_class));
            table.set_smooth(key, smooth);
            for (size_t i = 0; i < counts[key]; ++i, ++row) {
                const size_t bytes = ops::sent_row_bytes(ops::RowDtype::kInt8, kHidden);
                sent.resize(sent.size() + bytes);
                ops::encode_sent_row(ops::RowDtype::kInt8,
                                     &rows[row * kHidden],
                                     kHidden,
                                     &sent[sent.size() - bytes],
                                     smooth.data());
            }
        }
        const ops::ExpertGroup groups[] = {{0, 4}, {1, 7}};
        ops::SerialParallel serial;
        std::vector<std::byte> workspace(ops::grouped_ffn_workspace_bytes(table, row, 2) + 64);
        const auto run = [&](ops::GroupedFfnRequest request) {
            std::vector<ops::Bf16> y(row * kHidden);
            request.experts = &table;
            request.groups = groups;
            request.y = ops::make_rows(y.data(), row, kHidden);
            const auto done = ops::grouped_ffn(request, workspace, serial);
            EXPECT_TRUE(done.ok()) << done.error().message;
            return y;
        };
        ops::GroupedFfnRequest from_bf16;
        from_bf16.x = ops::make_rows<const ops::Bf16>(rows.data(), row, kHidden);
        ops::ArrivedRows arrived(ops::RowDtype::kInt8, kHidden, row);
        ops::GroupedFfnRequest from_int8;
        from_int8.x_int8 = arrived.decode(sent.data(), row, serial).int8;
        const std::vector<ops::Bf16> expected = run(from_bf16);
        EXPECT_EQ(run(from_int8), expected);
        table.set_smooth(1, std::vector<float>(kHidden, 1.0f));
        EXPECT_NE(run(from_bf16), expected) << "the scales are not used";
    }
}

class ReadSmoothScale : public ::testing::Test {
  protected:
    static std::string error(std::vector<float> scales, uint32_t expert = 2) {
        ModelConfig config;
        config.hidden = 4;
        config.num_experts = 8;
        config.num_layers = 2;
        config.quantisation = {.experts = ops::WeightFormat::kInt8, .smooth = true};
        const test::TemporaryDirectory directory;
        const std::vector<TensorToWrite> tensors = {{"model.layers.1.mlp.experts.2.smooth_scale",
                                                     StorageType::kF32,
                                                     {scales.size()},
                                                     std::as_bytes(std::span(scales))}};
        EXPECT_TRUE(write_safetensors(directory.path() + "/model.safetensors", tensors).ok());
        const TensorStore store = TensorStore::open(directory.path()).value();
        const auto read = read_smooth_scale(store, config, 1, expert);
        return read.ok() ? "" : read.error().message;
    }
};

TEST_F(ReadSmoothScale, SaysWhatIsWrong) {
    EXPECT_EQ(error({1, 2, 0.5f, 4}), "");
    EXPECT_THAT(error({1, 2, 0.5f, 4}, 3),
                HasSubstr("tensor model.layers.1.mlp.experts.3.smooth_scale [4] is missing"));
    EXPECT_THAT(error({1, 2, 3}), HasSubstr("expected shape [4], found [3]"));
    EXPECT_THAT(error({1, 0, 3, 4}),
                HasSubstr("smooth_scale: element [1] is 0.000000; smooth scales are finite"));
    EXPECT_THAT(error({1, 2, NAN, 4}), HasSubstr("element [2] is nan"));
    EXPECT_THAT(error({1, 2, 3, -1}), HasSubstr("element [3] is -1"));
}

// Only int8 experts quantise their input.
TEST(SmoothConfig, IsForInt8ExpertsAndIsABoolean) {
    const auto parsed = [](const char* experts, const nlohmann::json& smooth) {
        nlohmann::json config = small_config();
        config["quantization_config"] = {{"quant_method", "afd"},
                                         {"experts", experts},
                                         {"attention", "bf16"},
                                         {"smooth", smooth}};
        return parse_model_config(config.dump(), "config.json");
    };
    EXPECT_TRUE(parsed("int8", true).value().quantisation.smooth);
    EXPECT_EQ(describe(parsed("int8", true).value().quantisation), "experts int8 smooth");
    EXPECT_FALSE(parsed("int8", false).value().quantisation.smooth);
    for (const auto& refused :
         {parsed("int4-g32", true), parsed("bf16", true), parsed("int8", 1)}) {
        ASSERT_FALSE(refused.ok());
        EXPECT_THAT(refused.error().message,
                    HasSubstr("with int8 experts, \"smooth\": true or false"));
    }
}

}  // namespace
}  // namespace afd::model

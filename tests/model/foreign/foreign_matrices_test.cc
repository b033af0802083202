// SPDX-License-Identifier: Apache-2.0
//
// Matrices that other programs have quantised: what is refused, and parts of them. That the values
// are right tests/golden says, by an implementation of its own.

#include "model/foreign/foreign_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "model/foreign/foreign_int4.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// GPTQ [16, 32] in two groups of 16: q of [n, k] is (n + k) mod 16, scales are 2^-n.
class GptqMatrix : public ::testing::Test {
  protected:
    static constexpr uint64_t kOutputs = 16;
    static constexpr uint64_t kDepth = 32;
    static constexpr uint64_t kGroups = 2;

    GptqMatrix() {
        for (uint64_t k = 0; k < kDepth; ++k) {
            for (uint64_t n = 0; n < kOutputs; ++n) {
                words_[k / 8 * kOutputs + n] |= static_cast<uint32_t>((n + k) % 16) << (k % 8 * 4);
            }
            order_[k] = static_cast<int32_t>(k / 16);
        }
        for (uint64_t i = 0; i < scales_.size(); ++i) {
            scales_[i] = std::ldexp(1.0f, -static_cast<int>(i % kOutputs));
        }
    }

    TensorStore store(bool has_scales = true) const {
        std::vector<TensorToWrite> tensors = {
            {"x.qweight",
             StorageType::kI32,
             {kDepth / 8, kOutputs},
             std::as_bytes(std::span(words_))},
            {"x.qzeros",
             StorageType::kI32,
             {kGroups, kOutputs / 8},
             std::as_bytes(std::span(zeros_))},
            {"x.g_idx", StorageType::kI32, {kDepth}, std::as_bytes(std::span(order_))}};
        if (has_scales) {
            tensors.push_back({"x.scales",
                               StorageType::kF32,
                               {kGroups, kOutputs},
                               std::as_bytes(std::span(scales_))});
        }
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors).ok());
        TensorStore store = TensorStore::open(directory_.path()).value();
        store.set_form(form_);
        return store;
    }

    // With the scales of the first group for all of a row, every second one negative.
    TensorStore store_of_one_group() {
        form_.group = 0;
        order_.assign(kDepth, 0);
        std::vector<float> scales(scales_.begin(), scales_.begin() + kOutputs);
        for (uint64_t i = 1; i < kOutputs; i += 2) scales[i] = -scales[i];
        const std::vector<TensorToWrite> tensors = {
            {"x.qweight", StorageType::kI32, {4, 16}, std::as_bytes(std::span(words_))},
            {"x.qzeros", StorageType::kI32, {1, 2}, std::as_bytes(std::span(zeros_).first(2))},
            {"x.scales", StorageType::kF32, {1, 16}, std::as_bytes(std::span(scales))}};
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors).ok());
        TensorStore opened = TensorStore::open(directory_.path()).value();
        opened.set_form(form_);
        return opened;
    }

    // Read in that format, with the values that it is expanded to.
    static StoredMatrix stays_int4(const TensorStore& tensors, ops::WeightFormat format) {
        auto packed = read_matrix(tensors, "x", kOutputs, kDepth, format);
        EXPECT_TRUE(packed.ok()) << packed.error().message;
        const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
        const auto expanded = tensors.read_bf16("x.weight", shape).value();
        const std::vector<float> values = packed.value().values();
        for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], ops::to_float(expanded[i]));
        return std::move(packed.value());
    }

    const test::TemporaryDirectory directory_;
    ForeignForm form_ = {.kind = ForeignKind::kGptq,
                         .group = 16,
                         .is_symmetric = true,
                         .is_in_order = true,
                         .has_zeros_less_one = true};
    std::vector<uint32_t> words_ = std::vector<uint32_t>(kDepth / 8 * kOutputs);
    std::vector<uint32_t> zeros_ = std::vector<uint32_t>(kGroups * kOutputs / 8, 0x77777777u);
    std::vector<int32_t> order_ = std::vector<int32_t>(kDepth);
    std::vector<float> scales_ = std::vector<float>(kGroups * kOutputs);
};

TEST_F(GptqMatrix, RowsAreTheSameInPartsAndWhole) {
    const TensorStore tensors = store();
    const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
    ASSERT_TRUE(tensors.holds("x.weight"));
    EXPECT_EQ(tensors.find("x.weight"), nullptr);
    const auto whole = tensors.read_bf16("x.weight", shape).value();
    for (uint64_t n = 0; n < kOutputs; ++n) {
        const auto row = tensors.read_bf16_rows("x.weight", shape, n, 1).value();
        for (uint64_t k = 0; k < kDepth; ++k) {
            const float expected = std::ldexp(static_cast<float>((n + k) % 16) - 8, -int(n));
            EXPECT_EQ(ops::to_float(row[k]), expected) << n << ", " << k;
            EXPECT_EQ(ops::to_float(whole[n * kDepth + k]), expected);
        }
    }
    EXPECT_EQ(tensors.foreign().shape_of("x.weight").value(),
              (std::vector<uint64_t>{kOutputs, kDepth}));
}

// Groups of one scale for all, so that ours are a part of them; -8 is among the values, and every
// second scale is negative.
TEST_F(GptqMatrix, StaysInt4WithTheSameValues) {
    const TensorStore tensors = store_of_one_group();
    const StoredMatrix packed = stays_int4(tensors, ops::WeightFormat::kInt4Group32Fp16);
    EXPECT_FALSE(ops::values_in_range(packed.int4_weight())) << "no -8";
    EXPECT_LT(packed.int4_weight().scale_at(1, 0), 0);
}

// Of the zeros, which are stored less one, 15 comes back as 0: a weight is up to 15 scales large.
TEST_F(GptqMatrix, KeepsItsZeroPoints) {
    form_.is_symmetric = false;
    zeros_[0] = 0xf0123456u;
    zeros_[1] = 0x789abcdeu;
    const TensorStore tensors = store_of_one_group();
    const StoredMatrix packed = stays_int4(tensors, ops::WeightFormat::kInt4Group32Fp16Zero);
    EXPECT_EQ(packed.int4_weight().zero_at(7, 0), -8);
    EXPECT_EQ(packed.int4_weight().zero_at(8, 0), 7);
}

// Ones are taken from a whole word: a zero point of 0 has borrowed from the next one.
TEST_F(GptqMatrix, KeepsZeroPointsBehindAZero) {
    form_.is_symmetric = false;
    zeros_[0] = 0x98765050u - 0x11111111u;
    zeros_[1] = 0x00000000u - 0x11111111u;
    const TensorStore tensors = store_of_one_group();
    const StoredMatrix packed = stays_int4(tensors, ops::WeightFormat::kInt4Group32Fp16Zero);
    const std::array<int8_t, 16> expected = {
        -8, -3, -8, -3, -2, -1, 0, 1, -8, -8, -8, -8, -8, -8, -8, -8};
    for (uint64_t n = 0; n < kOutputs; ++n) {
        EXPECT_EQ(packed.int4_weight().zero_at(n, 0), expected[n]) << n;
    }
}

// "sym": true, and zero points in the other format than checkpoint_format says: the middle all the
// same, packed or expanded.
TEST_F(GptqMatrix, SymmetricZeroPointsMayBeInTheOtherFormat) {
    const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
    const auto right = store().read_bf16("x.weight", shape).value();
    std::ranges::fill(zeros_, 0x88888888u);
    EXPECT_EQ(store().read_bf16("x.weight", shape).value(), right);
    form_.has_zeros_less_one = false;
    EXPECT_EQ(store().read_bf16("x.weight", shape).value(), right);
    std::ranges::fill(zeros_, 0x77777777u);
    EXPECT_EQ(store().read_bf16("x.weight", shape).value(), right);
    form_.is_symmetric = false;
    EXPECT_NE(store().read_bf16("x.weight", shape).value(), right);
}

TEST_F(GptqMatrix, RefusesZeroPointsAndOrdersThatConfigJsonRulesOut) {
    order_.assign(kDepth, 0);
    EXPECT_THAT(
        read_foreign_int4({store(), form_, "x.weight", kOutputs, kDepth}, 16).error().message,
        HasSubstr("tensor x.weight: its groups are out of order, which config.json rules out; with "
                  "\"desc_act\": true and \"static_groups\": false there, the weights are expanded "
                  "to bf16"));
    for (uint64_t k = 0; k < kDepth; ++k) order_[k] = static_cast<int32_t>(k / 16);
    zeros_[1] = 0x77777767u;
    const char* expected =
        "tensor x.weight: it has zero points, which config.json rules out; say \"sym\": false "
        "there";
    EXPECT_THAT(
        read_foreign_int4({store(), form_, "x.weight", kOutputs, kDepth}, 16).error().message,
        HasSubstr(expected));
    const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
    EXPECT_THAT(store().read_bf16("x.weight", shape).error().message, HasSubstr(expected));
}

TEST_F(GptqMatrix, NamesWhatIsWrong) {
    const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
    const auto message = [&](bool has_scales = true) {
        return store(has_scales).read_bf16("x.weight", shape).error().message;
    };
    EXPECT_THAT(message(false), HasSubstr("tensor x.scales [2, 16] is missing from the weights"));
    scales_[5] = NAN;
    EXPECT_THAT(message(),
                HasSubstr("tensor x.scales: holds a scale of nan. Fetch the file again"));
    scales_[5] = 1;
    order_[7] = 2;
    EXPECT_THAT(message(), HasSubstr("tensor x.g_idx: element [7] is 2; there are 2 groups"));
    order_[7] = 0;
    const std::array<uint64_t, 2> other = {kOutputs, kDepth + 8};
    EXPECT_THAT(store().read_bf16("x.weight", other).error().message,
                HasSubstr("tensor x.g_idx: expected shape [40], found [32]"));
}

// Scales that are finite, with values that are too large for them.
TEST_F(GptqMatrix, RefusesProductsThatNoBf16Holds) {
    const std::array<uint64_t, 2> shape = {kOutputs, kDepth};
    scales_[kOutputs + 5] = 1e38f;  // By 3 it is a bf16, by 4 it is none.
    const char* expected = "tensor x.weight: element [5, 23] is inf. Fetch the file again";
    EXPECT_EQ(store().read_bf16("x.weight", shape).error().message, expected);
    EXPECT_EQ(store().read_bf16_rows("x.weight", shape, 5, 1).error().message, expected);
    EXPECT_TRUE(store().read_bf16_rows("x.weight", shape, 4, 1).ok());
}

// Goal: a matrix without elements is refused, since work is divided by its sizes. Method: each form
// with an extent of 0, the other one as large as a header may say.
TEST(ForeignMatrices, RefuseAMatrixWithoutElements) {
    constexpr uint64_t kLargest = uint64_t{1} << 48;
    const test::TemporaryDirectory directory;
    const auto refused = [&](ForeignKind kind,
                             const std::string& name,
                             StorageType type,
                             std::vector<uint64_t> extents) {
        const std::vector<TensorToWrite> tensors = {{name, type, std::move(extents), {}}};
        EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), tensors).ok());
        TensorStore store = TensorStore::open(directory.path()).value();
        store.set_form({.kind = kind});
        EXPECT_TRUE(store.foreign().has("x.weight"));
        const auto shape = store.foreign().shape_of("x.weight");
        return shape.ok() ? "" : shape.error().message;
    };
    const std::string end = ", a matrix without elements. Fetch the file again";
    EXPECT_EQ(refused(ForeignKind::kGptq, "x.qweight", StorageType::kI32, {0, 8}),
              "tensor x.qweight: is [0, 8]" + end);
    EXPECT_EQ(refused(ForeignKind::kAwq, "x.qweight", StorageType::kI32, {0, kLargest}),
              "tensor x.qweight: is [0, 281474976710656]" + end);
    EXPECT_EQ(refused(ForeignKind::kPackedInt4, "x.weight_packed", StorageType::kI32, {8, 0}),
              "tensor x.weight_packed: is [8, 0]" + end);
    EXPECT_EQ(refused(ForeignKind::kFp8Scaled, "x.weight", StorageType::kF8E4M3, {kLargest, 0}),
              "tensor x.weight: is [281474976710656, 0]" + end);
    EXPECT_EQ(refused(ForeignKind::kMxfp4, "x.weight_packed", StorageType::kU8, {8, 0}),
              "tensor x.weight_packed: is [8, 0]" + end);
}

// compressed-tensors in fp8: products with a finite scale that round to no bf16, the least of them.
TEST(Fp8Rows, RefusesProductsThatNoBf16Holds) {
    const test::TemporaryDirectory directory;
    const std::array<uint64_t, 2> shape = {3, 4};
    const auto said = [&](float scale, uint8_t value) {
        std::vector<uint8_t> values(12, 0x38);  // 1
        values[6] = value;
        const std::vector<float> scales = {1, scale, 1};
        const std::vector<TensorToWrite> tensors = {
            {"x.weight", StorageType::kF8E4M3, {3, 4}, std::as_bytes(std::span(values))},
            {"x.weight_scale", StorageType::kF32, {3}, std::as_bytes(std::span(scales))}};
        EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), tensors).ok());
        TensorStore store = TensorStore::open(directory.path()).value();
        store.set_form({.kind = ForeignKind::kFp8Scaled});
        const auto rows = store.read_bf16("x.weight", shape);
        return rows.ok() ? "" : rows.error().message;
    };
    EXPECT_EQ(said(0x1p119f, 0x7e), "") << "448 · 2^119";
    EXPECT_EQ(said(0x1p120f, 0xfe),
              "tensor x.weight: element [1, 2] is -inf. Fetch the file again");
    EXPECT_EQ(said(0x1.fep127f, 0x38), "") << "the largest bf16";
    EXPECT_EQ(said(0x1.ffp127f, 0x38),
              "tensor x.weight: element [1, 0] is inf. Fetch the file again");
}

// compressed-tensors in fp8: a scale of another shape says what can be done.
TEST(Fp8Rows, NamesScalesOfAnotherShape) {
    const test::TemporaryDirectory directory;
    const std::vector<uint8_t> values(12, 0x38);
    const std::vector<float> scales(4, 0.5f);
    const ForeignForm form{.kind = ForeignKind::kFp8Scaled};
    const std::array<uint64_t, 2> shape = {3, 4};
    const auto read = [&](std::vector<uint64_t> scale_shape, size_t count) {
        const std::vector<TensorToWrite> tensors = {
            {"x.weight", StorageType::kF8E4M3, {3, 4}, std::as_bytes(std::span(values))},
            {"x.weight_scale",
             StorageType::kF32,
             std::move(scale_shape),
             std::as_bytes(std::span(scales).first(count))}};
        EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), tensors).ok());
        TensorStore store = TensorStore::open(directory.path()).value();
        store.set_form(form);
        return store.read_bf16("x.weight", shape);
    };
    for (const auto& scale_shape :
         {std::vector<uint64_t>{3, 1}, std::vector<uint64_t>{3}, std::vector<uint64_t>{1, 1}}) {
        const auto rows = read(scale_shape, scale_shape.front());
        ASSERT_TRUE(rows.ok()) << rows.error().message;
        for (const ops::Bf16 value : rows.value()) EXPECT_EQ(ops::to_float(value), 0.5f);
    }
    EXPECT_THAT(read({1, 4}, 4).error().message,
                HasSubstr("tensor x.weight_scale: [1, 4]; supported: a scale for the matrix, for "
                          "each row or for each block of 128 x 128; for another one run "
                          "afd-quantize on the original model or convert this one to bf16"));
}

// gpt-oss: two experts of two gates and ups over 32 inputs. Byte j of row r of expert e holds codes
// (j + r + e) mod 8 and, for odd inputs, that plus 8; all scales but one are 1.
class FusedExperts : public ::testing::Test {
  protected:
    static constexpr std::array<uint64_t, 4> kShape = {2, 4, 1, 16};

    FusedExperts() {
        for (size_t i = 0; i < bytes_.size(); ++i) {
            const auto code = static_cast<uint8_t>((i % 16 + i / 16 % 4 + i / 64) % 8);
            bytes_[i] = static_cast<uint8_t>(code | (code + 8) << 4);
        }
        exponents_[5] = 128;
    }

    TensorStore store(const std::vector<uint64_t>& shape = {kShape.begin(), kShape.end()}) const {
        const std::vector<TensorToWrite> tensors = {{"mlp.experts.gate_up_proj_blocks",
                                                     StorageType::kU8,
                                                     shape,
                                                     std::as_bytes(std::span(bytes_))},
                                                    {"mlp.experts.gate_up_proj_scales",
                                                     StorageType::kU8,
                                                     {2, 4, 1},
                                                     std::as_bytes(std::span(exponents_))}};
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors).ok());
        TensorStore store = TensorStore::open(directory_.path()).value();
        store.set_form({.kind = ForeignKind::kFusedExperts});
        return store;
    }

    const test::TemporaryDirectory directory_;
    std::vector<uint8_t> bytes_ = std::vector<uint8_t>(2 * 4 * 16);
    std::vector<uint8_t> exponents_ = std::vector<uint8_t>(2 * 4, 127);
    static constexpr std::array<uint64_t, 2> kGate = {2, 32};
};

TEST_F(FusedExperts, GateAndUpTakeTurns) {
    constexpr std::array<float, 8> kValues = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const TensorStore tensors = store();
    for (size_t expert = 0; expert < 2; ++expert) {
        for (size_t part = 0; part < 2; ++part) {
            const std::string name = "mlp.experts." + std::to_string(expert) +
                                     (part == 0 ? ".gate_proj.weight" : ".up_proj.weight");
            ASSERT_TRUE(tensors.holds(name));
            const auto matrix = tensors.read_bf16(name, kGate).value();
            for (size_t n = 0; n < 2; ++n) {
                const auto row = tensors.read_bf16_rows(name, kGate, n, 1).value();
                const size_t fused = 2 * n + part;
                // Of expert 1 the first up.
                const float scale = expert == 1 && fused == 1 ? 2.0f : 1.0f;
                for (size_t k = 0; k < 32; ++k) {
                    const float value = kValues[(k / 2 + fused + expert) % 8] * scale;
                    EXPECT_EQ(ops::to_float(row[k]), k % 2 == 0 ? value : -value)
                        << name << " [" << n << ", " << k << "]";
                    EXPECT_EQ(ops::to_float(row[k]), ops::to_float(matrix[n * 32 + k]));
                }
            }
        }
    }
}

// The last group of a row is whole in the file, also where the depth ends before.
TEST_F(FusedExperts, RowsMayEndWithinAGroup) {
    const std::string name = "mlp.experts.1.up_proj.weight";
    const TensorStore tensors = store();
    const auto whole = tensors.read_bf16(name, kGate).value();
    const auto cut = tensors.read_bf16(name, std::array<uint64_t, 2>{2, 29}).value();
    ASSERT_EQ(cut.size(), 2U * 29);
    for (size_t i = 0; i < cut.size(); ++i) {
        EXPECT_EQ(ops::to_float(cut[i]), ops::to_float(whole[i / 29 * 32 + i % 29])) << i;
    }
}

// Goal: experts that stay mxfp4 are the matrix that they expand to. Oracle: the expansion.
TEST_F(FusedExperts, StayMxfp4WithTheSameValues) {
    exponents_[2] = 0;
    exponents_[7] = 252;  // 6 · 2^125.
    const TensorStore tensors = store();
    for (const std::string name : {"mlp.experts.0.gate_proj", "mlp.experts.1.up_proj"}) {
        const StoredMatrix matrix =
            read_matrix(tensors, name, 2, 32, ops::WeightFormat::kMxfp4).value();
        EXPECT_EQ(matrix.int4.size(), 32u);
        const auto expanded = tensors.read_bf16(name + ".weight", kGate).value();
        std::vector<float> expected;
        for (const ops::Bf16 value : expanded) expected.push_back(ops::to_float(value));
        EXPECT_EQ(matrix.values(), expected);
    }
}

// 6 · 2^126 is no bf16, nor is anything by the scale that stands for no number.
TEST_F(FusedExperts, RefusesMxfp4ThatNoBf16Holds) {
    for (const auto& [exponent, element] :
         {std::pair{253, "[0, 12] is inf"}, std::pair{255, "[0, 0] is nan"}}) {
        exponents_[0] = static_cast<uint8_t>(exponent);
        EXPECT_THAT(
            read_matrix(store(), "mlp.experts.0.gate_proj", 2, 32, ops::WeightFormat::kMxfp4)
                .error()
                .message,
            HasSubstr(std::string("tensor mlp.experts.0.gate_proj.weight: element ") + element +
                      ". Fetch the file again"));
    }
}

TEST_F(FusedExperts, NamesWhatIsWrong) {
    EXPECT_FALSE(store().holds("mlp.experts.0.down_proj.weight"));
    EXPECT_FALSE(store().holds("mlp.experts.gate_proj.weight"));
    EXPECT_THAT(store().read_bf16("mlp.experts.2.gate_proj.weight", kGate).error().message,
                HasSubstr("mlp.experts.gate_up_proj_blocks"));
    EXPECT_THAT(
        store({4, 2, 1, 16}).read_bf16("mlp.experts.0.up_proj.weight", kGate).error().message,
        HasSubstr("mlp.experts.gate_up_proj_blocks"));
    exponents_[1] = 255;
    EXPECT_THAT(store().read_bf16("mlp.experts.0.up_proj.weight", kGate).error().message,
                HasSubstr("tensor mlp.experts.0.up_proj.weight: element [0, 0] is nan. Fetch the "
                          "file again"));
}

}  // namespace
}  // namespace afd::model

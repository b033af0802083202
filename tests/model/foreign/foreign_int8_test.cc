// SPDX-License-Identifier: Apache-2.0
//
// int-quantized of compressed-tensors: values as they are and expanded, and what is refused. That
// models of such matrices answer right tests/golden says, by an implementation of its own.

#include "model/foreign/foreign_int8.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

// "x.weight" [N, K] of all values from -128 on, with scales 2^-n, every second one negative.
class Int8Matrix : public ::testing::Test {
  protected:
    static constexpr uint64_t kOutputs = 5;
    static constexpr uint64_t kDepth = 256;
    static constexpr std::array<uint64_t, 2> kShape = {kOutputs, kDepth};

    Int8Matrix() {
        for (uint64_t n = 0; n < kOutputs; ++n) {
            for (uint64_t k = 0; k < kDepth; ++k) {
                values_.push_back(static_cast<int8_t>(static_cast<int>((k + n) % 256) - 128));
            }
            scales_.push_back(std::ldexp(n % 2 == 0 ? 1.0f : -1.0f, -static_cast<int>(n)));
        }
    }

    TensorStore store(std::vector<uint64_t> scale_shape = {kOutputs, 1},
                      StorageType scale_type = StorageType::kF32) const {
        std::vector<ops::Bf16> rounded;
        for (const float scale : scales_) rounded.push_back(ops::from_float(scale));
        const auto bytes = scale_type == StorageType::kF32 ? std::as_bytes(std::span(scales_))
                                                           : std::as_bytes(std::span(rounded));
        std::vector<TensorToWrite> tensors = {
            {"x.weight", StorageType::kI8, {kOutputs, kDepth}, std::as_bytes(std::span(values_))}};
        if (!scale_shape.empty()) {
            tensors.push_back({"x.weight_scale", scale_type, std::move(scale_shape), bytes});
        }
        if (has_zeros_) {
            tensors.push_back({"x.weight_zero_point",
                               StorageType::kI8,
                               {kOutputs, 1},
                               std::as_bytes(std::span(values_)).first(kOutputs)});
        }
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors).ok());
        TensorStore opened = TensorStore::open(directory_.path()).value();
        opened.set_form({.kind = ForeignKind::kInt8Rows});
        return opened;
    }

    // Of both ways to read it, which must agree.
    std::string message(const TensorStore& tensors) const {
        const auto kept = read_matrix(tensors, "x", kOutputs, kDepth, ops::WeightFormat::kInt8);
        const auto expanded = tensors.read_bf16("x.weight", kShape);
        if (kept.ok() || expanded.ok()) return "";
        EXPECT_EQ(kept.error().message, expanded.error().message);
        return kept.error().message;
    }

    const test::TemporaryDirectory directory_;
    std::vector<int8_t> values_;
    std::vector<float> scales_;
    bool has_zeros_ = false;
};

TEST_F(Int8Matrix, StaysInt8WithTheValuesThatItExpandsTo) {
    for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
        for (const auto& shape :
             {std::vector<uint64_t>{kOutputs, 1}, std::vector<uint64_t>{kOutputs}}) {
            const TensorStore tensors = store(shape, type);
            ASSERT_TRUE(tensors.foreign().has("x.weight"));
            const auto kept = read_matrix(tensors, "x", kOutputs, kDepth, ops::WeightFormat::kInt8);
            ASSERT_TRUE(kept.ok()) << kept.error().message;
            EXPECT_EQ(kept.value().int8, values_);
            EXPECT_EQ(kept.value().int8_scale, scales_);
            const auto whole = tensors.read_bf16("x.weight", kShape).value();
            for (uint64_t n = 0; n < kOutputs; ++n) {
                const auto row = tensors.read_bf16_rows("x.weight", kShape, n, 1).value();
                for (uint64_t k = 0; k < kDepth; ++k) {
                    const float value = kept.value().values()[n * kDepth + k];
                    ASSERT_EQ(ops::to_float(whole[n * kDepth + k]), value) << n << ", " << k;
                    ASSERT_EQ(ops::to_float(row[k]), value) << n << ", " << k;
                }
            }
        }
    }
}

TEST_F(Int8Matrix, NamesWhatIsWrong) {
    EXPECT_EQ(message(store()), "");
    EXPECT_EQ(message(store({kOutputs / 5, kOutputs})),
              "tensor x.weight_scale: [1, 5]; supported: a scale for each row, [5, 1]" +
                  std::string(kForeignRemedy));
    EXPECT_NE(message(store({})).find("tensor x.weight_scale [5, 1] is missing"),
              std::string::npos);
    scales_[3] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(message(store()),
              "tensor x.weight_scale: holds a scale of inf. Fetch the file again");
    scales_[3] = 1;
    has_zeros_ = true;
    EXPECT_EQ(message(store()),
              "tensor x.weight_zero_point: config.json says symmetric; supported: no zero points" +
                  std::string(kForeignRemedy));
}

// A finite scale whose product no bf16 holds.
TEST_F(Int8Matrix, RefusesProductsThatNoBf16Holds) {
    scales_[4] = 0x1p121f;
    EXPECT_EQ(store().read_bf16("x.weight", kShape).error().message,
              "tensor x.weight: element [4, 252] is -inf. Fetch the file again");
    EXPECT_TRUE(store().read_bf16_rows("x.weight", kShape, 3, 1).ok());
}

}  // namespace
}  // namespace afd::model

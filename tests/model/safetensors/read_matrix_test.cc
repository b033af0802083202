// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// The tensors of one matrix [4, 6], changed in one way, and what read_matrix() says.
class ReadMatrix : public ::testing::Test {
  protected:
    std::string error(std::vector<TensorToWrite> tensors,
                      ops::WeightFormat format,
                      uint64_t num_outputs = 4,
                      uint64_t depth = 6) const {
        const test::TemporaryDirectory directory;
        const auto written = write_safetensors(directory.path() + "/model.safetensors", tensors);
        EXPECT_TRUE(written.ok());
        const TensorStore store = TensorStore::open(directory.path()).value();
        const auto matrix = read_matrix(store, "w", num_outputs, depth, format);
        return matrix.ok() ? "" : matrix.error().message;
    }
    template <typename T>
    static TensorToWrite tensor(std::string name,
                                StorageType dtype,
                                std::vector<uint64_t> shape,
                                const std::vector<T>& values) {
        return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(values))};
    }

    const std::vector<int8_t> int8_ = std::vector<int8_t>(24, 3);
    std::vector<float> scale_ = std::vector<float>(4, 0.5f);
    std::vector<uint8_t> int4_ = std::vector<uint8_t>(12, 0x79);
    std::vector<ops::Bf16> group_scale_ = std::vector<ops::Bf16>(4, ops::from_float(0.5f));
};

// Goal: a config.json that lies about a shape costs no memory. Oracle: 64 TiB are refused because
// of the shape; whoever asked for them first would not get there.
TEST_F(ReadMatrix, MemoryIsThatOfTheFile) {
    using enum StorageType;
    const std::vector<TensorToWrite> int8 = {tensor("w.weight", kI8, {4, 6}, int8_)};
    const std::vector<TensorToWrite> int4 = {tensor("w.weight", kU8, {4, 3}, int4_)};
    const uint64_t rows = uint64_t{1} << 24;
    const uint64_t depth = uint64_t{1} << 22;
    EXPECT_THAT(error(int8, ops::WeightFormat::kInt8, rows, depth),
                HasSubstr("expected shape [16777216, 4194304], found [4, 6]"));
    EXPECT_THAT(error(int4, ops::WeightFormat::kInt4Group32, rows, depth),
                HasSubstr("expected shape [16777216, 2097152], found [4, 3]"));
}

TEST_F(ReadMatrix, Int8SaysWhatIsWrong) {
    using enum StorageType;
    const auto format = ops::WeightFormat::kInt8;
    const auto weight = tensor("w.weight", kI8, {4, 6}, int8_);
    const auto scale = tensor("w.weight_scale", kF32, {4}, scale_);
    EXPECT_EQ(error({weight, scale}, format), "");
    EXPECT_THAT(error({weight}, format), HasSubstr("tensor w.weight_scale [4] is missing"));
    EXPECT_THAT(error({tensor("w.weight", kI8, {6, 4}, int8_), scale}, format),
                HasSubstr("expected shape [4, 6], found [6, 4]"));
    EXPECT_THAT(error({tensor("w.weight", kU8, {4, 6}, int8_), scale}, format),
                HasSubstr("dtype is U8; supported: I8"));
    EXPECT_THAT(error({weight, tensor("w.weight_scale", kF32, {2, 2}, scale_)}, format),
                HasSubstr("expected shape [4], found [2, 2]"));
    scale_[2] = -1;
    EXPECT_THAT(error({weight, scale}, format), HasSubstr("the scale of row 2 is -1"));
    scale_[2] = NAN;
    EXPECT_THAT(error({weight, scale}, format), HasSubstr("the scale of row 2 is nan"));
    // The format that config.json states decides: a bf16 model has no int8 tensors.
    EXPECT_THAT(error({weight, scale}, ops::WeightFormat::kBf16),
                HasSubstr("dtype is I8; supported: BF16, F16, F32"));
}

TEST_F(ReadMatrix, Int4SaysWhatIsWrong) {
    using enum StorageType;
    const auto format = ops::WeightFormat::kInt4Group32;
    const auto weight = tensor("w.weight", kU8, {4, 3}, int4_);
    const auto scale = tensor("w.weight_scale", kBf16, {4, 1}, group_scale_);
    EXPECT_EQ(error({weight, scale}, format), "");
    EXPECT_THAT(error({weight, tensor("w.weight_scale", kBf16, {4}, group_scale_)}, format),
                HasSubstr("expected shape [4, 1], found [4]"));
    EXPECT_THAT(error({tensor("w.weight", kU8, {2, 6}, int4_), scale}, format),
                HasSubstr("expected shape [4, 3], found [2, 6]"));
    // As many bytes of the other type would be other scales.
    EXPECT_THAT(error({weight, scale}, ops::WeightFormat::kInt4Group32Fp16),
                HasSubstr("dtype is BF16; supported: F16"));
    const auto fp16_scale = tensor("w.weight_scale", kF16, {4, 1}, group_scale_);
    EXPECT_EQ(error({weight, fp16_scale}, ops::WeightFormat::kInt4Group32Fp16), "");
    EXPECT_THAT(error({weight, fp16_scale}, format), HasSubstr("dtype is F16; supported: BF16"));
    int4_[7] = 0x83;
    EXPECT_THAT(error({weight, scale}, format), HasSubstr("holds the int4 value -8"));
    // What afd-quantize writes has none; other programs' files may (foreign_matrices_test).
    group_scale_[1] = ops::from_float(-0.5f);
    EXPECT_THAT(error({weight, scale}, format), HasSubstr("the scale of row 1 is -0.5"));
}

TEST_F(ReadMatrix, Fp8SaysWhatToDoWithAnotherType) {
    using enum StorageType;
    const auto format = ops::WeightFormat::kFp8Block128;
    const std::vector<uint8_t> values(24, 0x38);
    const auto weight = tensor("w.weight", kF8E4M3, {4, 6}, values);
    scale_.resize(1);
    EXPECT_EQ(error({weight, tensor("w.weight_scale_inv", kF32, {1, 1}, scale_)}, format), "");
    EXPECT_THAT(
        error({weight}, format),
        HasSubstr("w.weight_scale_inv [1, 1] is missing; supported: a scale for each block of "
                  "128 x 128; for another one run afd-quantize on the original model"));
    const std::vector<uint16_t> wide(24, 0x3f80);
    EXPECT_EQ(error({tensor("w.weight", kBf16, {4, 6}, wide)}, format),
              "tensor w.weight is BF16 where config.json says fp8; experts that are not all in fp8 "
              "are not served as they are: give them one format with afd-quantize --experts int8");
    // afd-quantize reads no more of it than afdd does.
    EXPECT_EQ(error({tensor("w.weight", kU8, {4, 6}, values)}, format),
              "tensor w.weight is U8 where config.json says fp8; supported: F8_E4M3; for another "
              "one run afd-quantize on the original model or convert this one to bf16");
    EXPECT_THAT(error({}, format), HasSubstr("tensor w.weight [4, 6] is missing"));
}

}  // namespace
}  // namespace afd::model

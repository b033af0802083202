// SPDX-License-Identifier: Apache-2.0
//
// Matrices in fp8 as checkpoints are released with them.

#include "model/foreign/fp8_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// By the definition of the format, in double.
double e4m3_by_definition(unsigned byte) {
    const int exponent = static_cast<int>(byte >> 3 & 15);
    const double mantissa = byte & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1 + mantissa / 8, exponent - 7);
    return byte < 128 ? magnitude : -magnitude;
}

TEST(E4m3, EveryValueIsExactInFp32AndInBf16) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        const ops::E4m3 value{static_cast<uint8_t>(byte)};
        EXPECT_EQ(ops::is_nan(value), byte == 0x7f || byte == 0xff) << byte;
        EXPECT_EQ(ops::to_float(value), e4m3_by_definition(byte)) << byte;
        EXPECT_EQ(std::signbit(ops::to_float(value)), byte >= 128) << byte;
        EXPECT_EQ(ops::to_float(ops::to_bf16(value)), ops::to_float(value)) << byte;
    }
}

// A matrix [130, 257] and its scales [2, 3], changed in one way.
class Fp8BlocksTest : public ::testing::Test {
  protected:
    static constexpr uint64_t kRows = 130;
    static constexpr uint64_t kDepth = 257;

    Fp8BlocksTest() {
        for (size_t i = 0; i < values_.size(); ++i) {
            const auto byte = static_cast<uint8_t>(i * 89 % 256);
            values_[i] = (byte & 0x7f) == 0x7f ? uint8_t{3} : byte;
        }
    }

    template <typename T>
    static TensorToWrite tensor(std::string name,
                                StorageType dtype,
                                std::vector<uint64_t> shape,
                                const std::vector<T>& values) {
        return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(values))};
    }
    TensorToWrite weight() const {
        return tensor("w", StorageType::kF8E4M3, {kRows, kDepth}, values_);
    }
    template <typename T>
    static TensorToWrite scale(StorageType dtype, const std::vector<T>& values) {
        return tensor("w_scale_inv", dtype, {2, 3}, values);
    }

    static Result<std::vector<ops::Bf16>> read(const std::vector<TensorToWrite>& tensors) {
        const test::TemporaryDirectory directory;
        const auto written = write_safetensors(directory.path() + "/model.safetensors", tensors);
        EXPECT_TRUE(written.ok());
        const std::array<uint64_t, 2> shape = {kRows, kDepth};
        return TensorStore::open(directory.path()).value().read_bf16("w", shape);
    }
    static std::string error(const std::vector<TensorToWrite>& tensors) {
        const auto result = read(tensors);
        return result.ok() ? "" : result.error().message;
    }

    std::vector<uint8_t> values_ = std::vector<uint8_t>(kRows * kDepth);
    // The last block of either direction has one column, or two rows.
    std::vector<float> scale_ = {1.0f / 3, 0.25f, 7e-4f, 0.0f, 1.1f, 3e-41f};
};

// Oracle: the block of every element by its definition; the product once in fp32, then →bf16.
TEST_F(Fp8BlocksTest, EachElementIsMultipliedByTheScaleOfItsBlock) {
    const auto read_values = read({weight(), scale(StorageType::kF32, scale_)});
    ASSERT_TRUE(read_values.ok()) << read_values.error().message;
    for (size_t i = 0; i < values_.size(); ++i) {
        const size_t block = i / kDepth / 128 * 3 + i % kDepth / 128;
        const double product = e4m3_by_definition(values_[i]) * double{scale_[block]};
        ASSERT_EQ(read_values.value()[i], ops::from_float(static_cast<float>(product))) << i;
    }
}

TEST_F(Fp8BlocksTest, TakesScalesOfOtherTypes) {
    const std::vector<uint8_t> exponents = {127, 120, 130, 0, 246, 119};
    std::vector<float> powers;
    std::vector<ops::Bf16> narrow;
    for (const uint8_t exponent : exponents) {
        powers.push_back(static_cast<float>(std::ldexp(1.0, exponent - 127)));
        narrow.push_back(ops::from_float(powers.back()));
    }
    const auto expected = read({weight(), scale(StorageType::kF32, powers)}).value();
    EXPECT_EQ(read({weight(), scale(StorageType::kF8E8M0, exponents)}).value(), expected);
    EXPECT_EQ(read({weight(), scale(StorageType::kU8, exponents)}).value(), expected);
    EXPECT_EQ(read({weight(), scale(StorageType::kBf16, narrow)}).value(), expected);
}

TEST_F(Fp8BlocksTest, SaysWhatIsWrongAndWhatToDo) {
    EXPECT_EQ(error({weight()}),
              "tensor w is F8_E4M3, and w_scale_inv [2, 3] is missing; supported: a scale for "
              "each block of 128 x 128" +
                  std::string(kForeignRemedy));
    EXPECT_EQ(error({weight(), tensor("w_scale_inv", StorageType::kF32, {3, 2}, scale_)}),
              "tensor w_scale_inv: expected shape [2, 3], found [3, 2]; supported: a scale for "
              "each block of 128 x 128" +
                  std::string(kForeignRemedy));
    const std::vector<int32_t> integers(6, 1);
    EXPECT_THAT(error({weight(), scale(StorageType::kI32, integers)}),
                HasSubstr("tensor w_scale_inv: dtype is I32; supported: BF16, F16, F32"));
    EXPECT_THAT(error({tensor("w", StorageType::kF8E4M3, {kDepth, kRows}, values_),
                       scale(StorageType::kF32, scale_)}),
                HasSubstr("tensor w: expected shape [130, 257], found [257, 130]"));
    scale_[4] = -1.1f;
    EXPECT_EQ(error({weight(), scale(StorageType::kF32, scale_)}),
              "tensor w_scale_inv: the scale of block [1, 1] is -1.100000; a finite number of at "
              "least 0 is needed, and 448 times as much as a finite bf16. Fetch the file again");
    scale_[4] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(error({weight(), scale(StorageType::kF32, scale_)}), HasSubstr("[1, 1] is inf"));
    scale_[4] = 0x1p120f;  // 448 · 2^119 is below 2^128.
    EXPECT_THAT(error({weight(), scale(StorageType::kF32, scale_)}),
                HasSubstr("[1, 1] is 1329227995784915872903807060280344576.000000; a finite"));
    const std::vector<uint8_t> exponents = {127, 127, 255, 127, 127, 127};
    EXPECT_THAT(error({weight(), scale(StorageType::kF8E8M0, exponents)}),
                HasSubstr("the scale of block [0, 2] is nan"));
    values_[kDepth + 5] = 0xff;
    EXPECT_EQ(error({weight(), scale(StorageType::kF8E8M0, exponents)}),
              "tensor w: element [1, 5] is no number. Fetch the file again");
}

}  // namespace
}  // namespace afd::model

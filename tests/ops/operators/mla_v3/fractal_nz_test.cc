// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/fractal_nz.h"

#include <gtest/gtest.h>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::random_tensor;
using test::Tensor;

// Goal: the storage is the documented one. Oracle: the position of every element counted by hand:
// fractals of 16 rows x 32 bytes, column of fractals after column of fractals.
TEST(FractalNz, StoresFractalsColumnByColumn) {
    constexpr size_t kRows = 35;
    constexpr size_t kCols = 40;
    for (const DType dtype : {DType::kBf16, DType::kInt8}) {
        const Tensor nd = random_tensor(dtype, {kRows, kCols}, 1);
        const size_t c0 = 32 / size_of(dtype);
        Tensor nz(dtype, {(kCols + c0 - 1) / c0, 3, 16, c0}, 0x55);
        ASSERT_TRUE(to_fractal_nz(nd.view, nz.view).ok());
        size_t place = 0;
        for (size_t col_block = 0; col_block < nz.view.shape[0]; ++col_block) {
            for (size_t row = 0; row < 48; ++row) {
                for (size_t col = col_block * c0; col < (col_block + 1) * c0; ++col) {
                    const bool inside = row < kRows && col < kCols;
                    ASSERT_EQ(nz.at(place), inside ? nd.at(row * kCols + col) : 0.0)
                        << row << "," << col;
                    ++place;
                }
            }
        }
        ASSERT_EQ(place, nz.size());
    }
}

TEST(FractalNz, GoesBothWaysForEverySize) {
    for (const DType dtype : {DType::kBf16, DType::kInt8, DType::kFp32, DType::kInt64}) {
        for (const size_t rows : {0u, 1u, 2u, 15u, 16u, 17u, 53u}) {
            for (const size_t cols : {0u, 1u, 3u, 16u, 31u, 32u, 33u, 97u}) {
                Tensor nd(dtype, {rows, cols});
                for (size_t i = 0; i < nd.bytes.size(); ++i) {
                    nd.bytes[i] = static_cast<std::byte>(i * 37 + i / 251);
                }
                const Tensor nz = test::as_fractal_nz(nd);
                Tensor back(dtype, {rows, cols}, 0x55);
                ASSERT_TRUE(from_fractal_nz(nz.view, back.view).ok());
                ASSERT_TRUE(back.bytes == nd.bytes) << rows << " x " << cols;
            }
        }
    }
}

TEST(FractalNz, RefusesWhatDoesNotFit) {
    const Tensor nd = random_tensor(DType::kBf16, {20, 40}, 2);
    const auto message = [](const Result<>& result) {
        return result.ok() ? "accepted" : result.error().message;
    };
    Tensor nz(DType::kBf16, {3, 2, 16, 16}, 0x55);
    const Tensor untouched = nz;
    Tensor flat(DType::kBf16, {800});
    EXPECT_EQ(message(to_fractal_nz(flat.view, nz.view)),
              "fractal_nz: nd has shape [800]; it must be [rows, cols]");
    Tensor other(DType::kInt8, {3, 2, 16, 16});
    EXPECT_EQ(message(to_fractal_nz(nd.view, other.view)),
              "fractal_nz: nz has dtype int8; nd has bf16");
    Tensor small(DType::kBf16, {3, 1, 16, 16});
    EXPECT_EQ(message(to_fractal_nz(nd.view, small.view)),
              "fractal_nz: nz has shape [3, 1, 16, 16]; for nd [20, 40] it must be [3, 2, 16, 16]");
    ConstTensorView strided = nd.view;
    strided.strides[0] = 41;
    EXPECT_EQ(message(to_fractal_nz(strided, nz.view)),
              "fractal_nz: nd is not contiguous; copy it first");
    TensorView strided_nz = nz.view;
    strided_nz.strides[0] = 600;
    EXPECT_EQ(message(to_fractal_nz(nd.view, strided_nz)),
              "fractal_nz: nz is not contiguous; copy it first");
    EXPECT_TRUE(nz.bytes == untouched.bytes);
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Views of memory that someone else owns: TensorView for the operator interface, Rows for kernels.
//
// A view never allocates and never outlives its owner. Strides and shapes count elements.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ops/bf16.h"
#include "proto/check.h"

namespace afd::ops {

enum class DType : uint8_t { kBf16, kFp16, kFp32, kInt8, kInt32, kInt64 };

constexpr size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::kBf16:
        case DType::kFp16:
            return 2;
        case DType::kFp32:
        case DType::kInt32:
            return 4;
        case DType::kInt8:
            return 1;
        case DType::kInt64:
            return 8;
    }
    return 0;
}

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::kBf16:
            return "bf16";
        case DType::kFp16:
            return "fp16";
        case DType::kFp32:
            return "fp32";
        case DType::kInt8:
            return "int8";
        case DType::kInt32:
            return "int32";
        case DType::kInt64:
            return "int64";
    }
    return "unknown";
}

// A dense or strided tensor of up to four dimensions; rank 0 means "not given".
template <typename Void>
struct BasicTensorView {
    static constexpr size_t kRankMax = 4;

    Void* data = nullptr;
    DType dtype = DType::kBf16;
    size_t rank = 0;
    std::array<size_t, kRankMax> shape{};
    std::array<size_t, kRankMax> strides{};  // In elements.

    bool given() const { return rank != 0; }

    size_t num_elements() const {
        size_t count = rank == 0 ? 0 : 1;
        for (size_t axis = 0; axis < rank; ++axis) count *= shape[axis];
        return count;
    }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// A matrix whose rows are contiguous and `stride` elements apart; what the kernels take.
template <typename T>
struct Rows {
    T* data = nullptr;
    size_t num_rows = 0;
    size_t num_cols = 0;
    size_t stride = 0;

    [[gnu::always_inline]] T* row(size_t index) const { return data + index * stride; }

    // Rows [first, first + count).
    Rows slice(size_t first, size_t count) const {
        AFD_DASSERT(first + count <= num_rows, "rows %zu+%zu of %zu", first, count, num_rows);
        return {data + first * stride, count, num_cols, stride};
    }

    // Columns [first, first + count) of every row.
    Rows columns(size_t first, size_t count) const {
        AFD_DASSERT(first + count <= num_cols, "columns %zu+%zu of %zu", first, count, num_cols);
        return {data + first, num_rows, count, stride};
    }

    operator Rows<const T>() const requires(!std::is_const_v<T>) {
        return {data, num_rows, num_cols, stride};
    }
};

// A matrix without gaps between its rows.
template <typename T>
Rows<T> make_rows(T* data, size_t num_rows, size_t num_cols) {
    return {data, num_rows, num_cols, num_cols};
}

}  // namespace afd::ops

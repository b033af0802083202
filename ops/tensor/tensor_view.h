// SPDX-License-Identifier: Apache-2.0
#pragma once

// Views of memory that someone else owns: TensorView for the operator interface, Rows for kernels.
//
// A view never allocates and never outlives its owner. Strides and shapes count elements.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "ops/tensor/bf16.h"
#include "proto/check.h"

namespace afd::ops {

enum class DType : uint8_t { kBf16, kFp16, kFp32, kInt8, kInt32, kInt64, kUint8, kBool };

constexpr size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::kBf16:
        case DType::kFp16:
            return 2;
        case DType::kFp32:
        case DType::kInt32:
            return 4;
        case DType::kInt8:
        case DType::kUint8:
        case DType::kBool:
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
        case DType::kUint8:
            return "uint8";
        case DType::kBool:
            return "bool";
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

    // Whether the elements lie one behind the other, the last axis fastest.
    bool is_contiguous() const {
        size_t expected = 1;
        for (size_t axis = rank; axis-- > 0;) {
            if (shape[axis] != 1 && strides[axis] != expected) return false;
            expected *= shape[axis];
        }
        return true;
    }

    operator BasicTensorView<const Void>() const requires(!std::is_const_v<Void>) {
        return {data, dtype, rank, shape, strides};
    }

    size_t num_elements() const {
        size_t count = rank == 0 ? 0 : 1;
        for (size_t axis = 0; axis < rank; ++axis) count *= shape[axis];
        return count;
    }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// REQUIRES: the elements are of type T.
template <typename T>
const T* data_of(const ConstTensorView& view) {
    return static_cast<const T*>(view.data);
}

// A contiguous tensor over memory of someone else.
template <typename Void>
BasicTensorView<Void> make_tensor(Void* data, DType dtype, std::initializer_list<size_t> shape) {
    AFD_ASSERT(shape.size() <= BasicTensorView<Void>::kRankMax, "rank %zu", shape.size());
    BasicTensorView<Void> view{.data = data, .dtype = dtype, .rank = shape.size()};
    std::copy(shape.begin(), shape.end(), view.shape.begin());
    size_t stride = 1;
    for (size_t axis = view.rank; axis-- > 0;) {
        view.strides[axis] = stride;
        stride *= view.shape[axis];
    }
    return view;
}

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

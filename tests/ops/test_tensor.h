// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tensor: a tensor with its own memory, for tests of operators that take views.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "ops/reference/quantise.h"
#include "ops/tensor/tensor_view.h"
#include "tests/ops/guard_allocator.h"

namespace afd::ops::test {

// Memory is filled with a mark that no result has by chance, and ends at a guard page.
struct Tensor {
    static constexpr uint8_t kMark = 0xa5;

    GuardedVector<std::byte> bytes;
    TensorView view;

    Tensor() = default;  // Not given.
    // Contiguous; every byte is `fill`.
    Tensor(DType dtype, const std::vector<size_t>& shape, uint8_t fill = kMark)
        : Tensor(contiguous(dtype, shape), fill) {}
    explicit Tensor(const TensorView& like, uint8_t fill = kMark);
    Tensor(const Tensor& other);
    Tensor& operator=(const Tensor& other);
    ~Tensor();

    template <typename T>
    T* as() {
        return reinterpret_cast<T*>(bytes.data());
    }
    template <typename T>
    const T* as() const {
        return reinterpret_cast<const T*>(bytes.data());
    }
    // Elements that it owns, whatever a test has made of the view.
    size_t size() const { return bytes.size() / size_of(view.dtype); }
    // For bf16, fp16, fp32 and int8.
    double at(size_t i) const {
        if (view.dtype == DType::kInt8) return static_cast<double>(as<int8_t>()[i]);
        return static_cast<double>(reference::element(view.dtype, bytes.data(), i));
    }
    template <typename T>
    std::vector<T> values() {
        return {as<T>(), as<T>() + view.num_elements()};
    }

    // Roughly normal values; int8 in [-127, 127]. For bf16, fp16, fp32 and int8.
    Tensor& fill(uint32_t seed, float deviation = 1.0f);

    // int32 values in [least, most].
    Tensor& fill_ids(uint32_t seed, int32_t least, int32_t most);

    template <typename T>
    Tensor& set(std::initializer_list<T> values_in_order) {
        size_t i = 0;
        for (const T value : values_in_order) as<T>()[i++] = value;
        return *this;
    }

  private:
    static TensorView contiguous(DType dtype, const std::vector<size_t>& shape);
};

}  // namespace afd::ops::test

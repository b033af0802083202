// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tensor: a tensor with its own memory, for tests of operators that take views.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
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
    explicit Tensor(const TensorView& like, uint8_t fill = kMark) : view(like) {
        bytes.assign(view.num_elements() * size_of(view.dtype), std::byte{fill});
        view.data = bytes.data();
    }
    Tensor(const Tensor& other) : bytes(other.bytes), view(other.view) { view.data = bytes.data(); }
    Tensor& operator=(const Tensor& other) {
        bytes = other.bytes;
        view = other.view;
        view.data = bytes.data();
        return *this;
    }

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
    Tensor& fill(uint32_t seed, float deviation = 1.0f) {
        std::mt19937 engine(seed);
        std::normal_distribution<float> normal(0.0f, deviation);
        for (size_t i = 0; i < view.num_elements(); ++i) {
            if (view.dtype == DType::kInt8) {
                as<int8_t>()[i] = static_cast<int8_t>(static_cast<int>(engine() % 255) - 127);
            } else {
                reference::set_element(view.dtype, bytes.data(), i, normal(engine));
            }
        }
        return *this;
    }

    // int32 values in [least, most].
    Tensor& fill_ids(uint32_t seed, int32_t least, int32_t most) {
        std::mt19937 engine(seed);
        std::uniform_int_distribution<int32_t> uniform(least, most);
        for (size_t i = 0; i < view.num_elements(); ++i) as<int32_t>()[i] = uniform(engine);
        return *this;
    }

    template <typename T>
    Tensor& set(std::initializer_list<T> values_in_order) {
        size_t i = 0;
        for (const T value : values_in_order) as<T>()[i++] = value;
        return *this;
    }

  private:
    static TensorView contiguous(DType dtype, const std::vector<size_t>& shape) {
        TensorView made{.dtype = dtype, .rank = shape.size()};
        size_t stride = 1;
        for (size_t axis = shape.size(); axis-- > 0;) {
            made.shape[axis] = shape[axis];
            made.strides[axis] = stride;
            stride *= shape[axis];
        }
        return made;
    }
};

}  // namespace afd::ops::test

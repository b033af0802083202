// SPDX-License-Identifier: Apache-2.0

// Every byte of a tensor, made, copied and filled in a file that is optimised where tests are not.

#include "tests/ops/test_tensor.h"

#include <random>

#include "tests/ops/random_values.h"

namespace afd::ops::test {

Tensor::Tensor(const TensorView& like, uint8_t fill) : view(like) {
    bytes.assign(view.num_elements() * size_of(view.dtype), std::byte{fill});
    view.data = bytes.data();
}

Tensor::Tensor(const Tensor& other) : bytes(other.bytes), view(other.view) {
    view.data = bytes.data();
}

Tensor& Tensor::operator=(const Tensor& other) {
    bytes = other.bytes;
    view = other.view;
    view.data = bytes.data();
    return *this;
}

Tensor::~Tensor() = default;

Tensor& Tensor::fill(uint32_t seed, float deviation) {
    std::mt19937 engine(seed);
    RandomValues random(seed, deviation);
    for (size_t i = 0; i < view.num_elements(); ++i) {
        if (view.dtype == DType::kInt8) {
            as<int8_t>()[i] = static_cast<int8_t>(static_cast<int>(engine() % 255) - 127);
        } else {
            reference::set_element(view.dtype, bytes.data(), i, random.next());
        }
    }
    return *this;
}

Tensor& Tensor::fill_ids(uint32_t seed, int32_t least, int32_t most) {
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int32_t> uniform(least, most);
    for (size_t i = 0; i < view.num_elements(); ++i) as<int32_t>()[i] = uniform(engine);
    return *this;
}

TensorView Tensor::contiguous(DType dtype, const std::vector<size_t>& shape) {
    TensorView made{.dtype = dtype, .rank = shape.size()};
    size_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
        made.shape[axis] = shape[axis];
        made.strides[axis] = stride;
        stride *= shape[axis];
    }
    return made;
}

}  // namespace afd::ops::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

// DnnlProduct: y = x · Wᵀ of oneDNN for many experts' matrices, each laid out as the library likes
// it best for this product.
//
// It owns x, y and the weights, which lie in huge pages, as ours do.

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "ops/tensor/workspace.h"

namespace afd::bench {

class DnnlProduct {
  public:
    // What becomes of the sums within the product.
    enum class Finish {
        kSums,    // y: fp32, of int8 rows int32.
        kRound,   // y: bf16.
        kSwiglu,  // y: (swish(sum) · factor) →bf16; of bf16 rows.
    };

    struct Shape {
        size_t num_rows;
        size_t depth;
        size_t num_outputs;
        bool is_int8;
        Finish finish;
    };

    // What belongs to other products; x null: an x of its own.
    struct Given {
        const dnnl::memory* x = nullptr;
        const dnnl::memory* factor = nullptr;  // For kSwiglu, like y.
    };

    // `weight` [num_outputs, depth] of bf16 or int8, row-major; every expert gets a copy of it.
    // Ends in dnnl::error where the library has no such product for this processor.
    DnnlProduct(const dnnl::engine& engine,
                const Shape& shape,
                const void* weight,
                size_t num_experts,
                const Given& given);

    const dnnl::memory& x() const { return x_; }  // [num_rows, depth]
    const dnnl::memory& y() const { return y_; }  // [num_rows, num_outputs]

    void run(size_t expert, const dnnl::stream& stream);

  private:
    dnnl::matmul primitive_;
    dnnl::memory x_;
    dnnl::memory y_;
    ops::Workspace storage_;
    std::vector<std::unordered_map<int, dnnl::memory>> arguments_;  // Of each expert.
};

}  // namespace afd::bench

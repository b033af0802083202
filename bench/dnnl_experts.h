// SPDX-License-Identifier: Apache-2.0
#pragma once

// DnnlExperts: the peer of bench_experts, experts as matrix products of oneDNN.
//
// Gate and up are one product, and weights lie as the library likes them best for this number of
// rows. The peer is spared the activation between the products and, with int8, quantisation and
// scales: its products give int32 sums, and the second one takes rows that are there already.

#include <cstddef>
#include <memory>

#include "ops/weight_format.h"

namespace afd::bench {

class DnnlExperts {
  public:
    struct Shape {
        size_t hidden;
        size_t intermediate;
        size_t num_rows;
        size_t num_experts;
        ops::WeightFormat format;  // bf16 or int8.
        unsigned num_threads;
    };

    // Null if the library has no such product for this processor.
    static std::unique_ptr<DnnlExperts> make(const Shape& shape);
    ~DnnlExperts();
    DnnlExperts(const DnnlExperts&) = delete;
    DnnlExperts& operator=(const DnnlExperts&) = delete;

    // Both products of one expert.
    void run(size_t expert);

  private:
    struct State;
    explicit DnnlExperts(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace afd::bench

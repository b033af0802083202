// SPDX-License-Identifier: Apache-2.0
#pragma once

// DnnlExperts: the peer of bench_experts, an expert FFN of oneDNN with the work that ours has.
//
// In oneDNN's own best way: weights lie as the library likes them best for this number of rows and
// threads, in huge pages as ours do, and of these arrangements the one that is fastest here:
//   bf16   up product →bf16, gate product with swish and the product with up as its last steps;
//          or gate and up in one product, then our row kernel for SwiGLU
//   int8   rows quantised by our row kernel; gate and up in one product or in two, both with int32
//          sums; scales, SwiGLU and quantising by our row kernels; down product, scales and
//          rounding by our row kernel. The library cannot do that as steps of the product: a scale
//          for each row sends Debian's version (2.6) to its reference implementation, which takes
//          38 ms for a product of 0.04 ms.
//   then the down product →bf16.
// Our row kernels run on the library's threads.

#include <cstddef>
#include <memory>

#include "bench/experts/expert_weights.h"
#include "ops/tensor/tensor_view.h"

namespace afd::bench {

class DnnlExperts {
  public:
    // `x` [num_rows, hidden] are the rows of every run, x and `expert` are copied. Null if the
    // library has no such product for this processor.
    static std::unique_ptr<DnnlExperts> make(const ExpertShape& shape,
                                             const PlainExpert& expert,
                                             size_t num_experts,
                                             ops::Rows<const ops::Bf16> x,
                                             unsigned num_threads);
    ~DnnlExperts();
    DnnlExperts(const DnnlExperts&) = delete;
    DnnlExperts& operator=(const DnnlExperts&) = delete;

    // All rows through one expert.
    void run(size_t expert);

    // The same without our row kernels: what the products alone take.
    void run_products(size_t expert);

    // [num_rows, hidden] of the last run.
    ops::Rows<const ops::Bf16> y() const;

  private:
    struct State;
    explicit DnnlExperts(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace afd::bench

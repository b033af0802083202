// SPDX-License-Identifier: Apache-2.0
#pragma once

// OurExperts: our kernel (ops/experts/grouped_ffn.h) over the experts of a table, for
// bench_experts.

#include <cstddef>
#include <span>
#include <vector>

#include "bench/experts/expert_weights.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"

namespace afd::bench {

class OurExperts {
  public:
    // Random rows of x. A call has at most `num_groups` groups. `weights` outlives this.
    OurExperts(const ExpertWeights& weights, size_t num_rows, size_t num_groups);

    // One call; the groups' rows lie one behind the other from `first_row`.
    void run(size_t first_row, std::span<const ops::ExpertGroup> groups, ops::Parallel& parallel);

    // All rows through the next expert: experts take turns.
    void run_next(ops::Parallel& parallel);

    // [num_rows, hidden]; y of the last runs.
    ops::Rows<const ops::Bf16> x() const;
    ops::Rows<const ops::Bf16> y() const;

  private:
    const ExpertWeights& weights_;
    const size_t num_rows_;
    std::vector<ops::Bf16> x_;
    std::vector<ops::Bf16> y_;
    ops::Workspace workspace_;
    size_t next_ = 0;
};

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// ManyExperts: 16 tokens choose 6 of 64 experts; all groups in one call of our kernel against one
// call for each expert.

#include <cstddef>
#include <string>
#include <vector>

#include "bench/experts/expert_weights.h"
#include "bench/experts/our_experts.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/parallel.h"

namespace afd::bench {

// A value of each round.
struct ManyExpertsTimes {
    std::vector<double> milliseconds;  // Of the one call.
    std::vector<double> of_sum;        // The one call's time / that of all calls together.
};

class ManyExperts {
  public:
    // The largest of_sum with which the target is met.
    static constexpr double kTarget = 1.05;

    // Of the row; ends in /FORMAT/threads:N.
    static std::string name(ops::WeightFormat format, unsigned num_threads);

    explicit ManyExperts(ops::WeightFormat format);

    // After one round that is not counted.
    ManyExpertsTimes measure(size_t num_rounds, ops::Parallel& parallel);

  private:
    const std::vector<ops::ExpertGroup> groups_;
    const ExpertWeights weights_;
    OurExperts ours_;
};

}  // namespace afd::bench

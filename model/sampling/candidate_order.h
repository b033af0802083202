// SPDX-License-Identifier: Apache-2.0
#pragma once

// CandidateOrder: walks a row's tokens by (logit descending, id ascending) without sorting them.
//
// Tokens fall into buckets by the distance of their logit to the highest one; a walk adds whole
// buckets and sorts only the one in which it ends. So a long tail, which top-p over flat logits
// reaches into, costs a look at each token and no more.
//
// Sums are taken over the buckets in order, of each bucket over ascending ids, and within the last
// bucket over the order of the walk; the same for every walk over a row. Allocates at construction
// only. One thread at a time per object.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace afd::model {

struct Candidate {
    float logit;
    uint32_t id;
    float weight;  // exp((logit - maximum) / temperature)
};

inline bool comes_before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

class CandidateOrder {
  public:
    explicit CandidateOrder(size_t vocab_size);

    // The tokens to walk over, by ascending id; they stay where they are meanwhile. `maximum` is
    // their highest logit, temperature > 0.
    void start(std::span<const Candidate> candidates, float maximum, float temperature);

    struct Stop {
        uint32_t id;
        double sum;  // Of the weights up to here, this one included.
    };
    // The token at which `num_tokens` have been passed. 1 <= num_tokens <= number of candidates.
    Stop count(size_t num_tokens);
    // Where the sum of weights reaches `target`; the last token of all if rounding keeps it below.
    Stop reach(double target);
    // Where the sum of weights exceeds `target`, which is less than the sum that the last count()
    // or reach() gave: at the latest where that ended, whatever the sums of whole buckets round to.
    Stop exceed(double target);

  private:
    // A sixteenth of a temperature each; the last one is far beyond any weight above 0.
    static constexpr size_t kNumBuckets = 2048;
    static constexpr float kBucketsPerTemperature = 16;

    // No walk goes beyond this token.
    struct End {
        size_t bucket = 0;
        size_t num_tokens = 0;
    };
    struct Walked {
        Stop stop;
        End end;
    };
    template <typename IsEnough>
    Walked walk(const End& end, const IsEnough& is_enough);
    template <typename IsEnough>
    Stop bound(const IsEnough& is_enough);
    void sort_bucket(uint16_t bucket);

    std::span<const Candidate> candidates_;
    std::array<double, kNumBuckets> sums_{};
    std::array<uint32_t, kNumBuckets> counts_{};
    std::vector<uint16_t> bucket_of_;  // By the index of the candidate.
    std::vector<Candidate> sorted_;    // One bucket.
    size_t num_sorted_ = 0;
    End all_;    // The last candidate,
    End bound_;  // and that of the last count() or reach().
};

}  // namespace afd::model

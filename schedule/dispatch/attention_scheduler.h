// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionScheduler: which micro-batch an attention worker combines next. Pure.
//
// The seed's rule is strict order: the next micro-batch is (micro_batch_id + 1) mod M; when all
// its used slots carry the awaited round, micro_batch_id advances to it. kFirstReady keeps that
// order among those that are ready but does not wait for a late one, and skips idle lanes.

#include <cstdint>
#include <optional>

namespace afd::schedule {

enum class LaneState { kIdle, kPending, kReady };

class AttentionScheduler {
  public:
    enum class Policy { kInOrder, kFirstReady };

    // REQUIRES: num_micro_batches >= 1.
    AttentionScheduler(uint32_t num_micro_batches, Policy policy)
        : num_micro_batches_(num_micro_batches),
          micro_batch_id_(num_micro_batches - 1),
          policy_(policy) {}

    // The micro-batch taken last; M - 1 at the start.
    uint32_t micro_batch_id() const { return micro_batch_id_; }

    // Takes the next micro-batch if there is one. `state_of(m)` gives its LaneState.
    // With `running` false nothing is taken.
    template <typename StateOf>
    std::optional<uint32_t> take(bool running, StateOf&& state_of) {
        if (!running) return std::nullopt;
        const uint32_t reach = policy_ == Policy::kInOrder ? 1 : num_micro_batches_;
        for (uint32_t d = 1; d <= reach; ++d) {
            const uint32_t candidate = (micro_batch_id_ + d) % num_micro_batches_;
            if (state_of(candidate) == LaneState::kReady) {
                micro_batch_id_ = candidate;
                return candidate;
            }
        }
        return std::nullopt;
    }

  private:
    uint32_t num_micro_batches_;
    uint32_t micro_batch_id_;
    Policy policy_;
};

}  // namespace afd::schedule

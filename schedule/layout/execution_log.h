// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExecutionLog: how often the execution of each lane's descriptor was started and not ended. It
// stands in the FFN worker's control segment, so a successor reads there what its predecessors
// died of (R11; as a model docs/protocol/poison.pml).
//
// A word per (session, micro-batch): the round in its upper, the count in its lower half; 0: none.
// Written by the rank's FFN worker only. Between its processes lies the end of the older one (R8),
// so a successor sees every store that its predecessor executed.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace afd::schedule {

class ExecutionLog {
  public:
    // A descriptor whose execution was started this often without an end is refused.
    static constexpr uint32_t kDeadly = 3;

    // `words`: [A * M], in the control segment; they outlive this.
    explicit ExecutionLog(std::span<uint64_t> words) : words_(words) {}

    // Executions of `round` that were started in the lane and did not end.
    uint32_t num_unfinished(size_t lane, int32_t round) const {
        // Relaxed: our own last store, or that of a dead predecessor.
        const uint64_t word = shared(lane).load(std::memory_order_relaxed);
        return static_cast<int32_t>(word >> 32) == round ? static_cast<uint32_t>(word) : 0;
    }

    void start(size_t lane, int32_t round) {
        const uint64_t count = uint64_t{num_unfinished(lane, round)} + 1;
        // seq_cst: in front of the execution, whose death comes behind both. Partner: a successor's
        // load, which is behind that death (R8).
        shared(lane).store(static_cast<uint64_t>(round) << 32 | count, std::memory_order_seq_cst);
    }

    // REQUIRES: every result of the lane's round is published, or it is refused.
    void end(size_t lane) {
        // Release: behind the execution. Partner: a successor's load, as that of start().
        shared(lane).store(0, std::memory_order_release);
    }

  private:
    std::atomic_ref<uint64_t> shared(size_t lane) const {
        return std::atomic_ref<uint64_t>(words_[lane]);
    }

    std::span<uint64_t> words_;
};

}  // namespace afd::schedule

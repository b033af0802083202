// SPDX-License-Identifier: Apache-2.0
#pragma once

// InProcess: what every PrepareFinalize within one process shares: a slot per micro-batch with its
// ticket, and rows that are there as soon as prepare_async returns.

#include <vector>

#include "ops/fused_moe/prepare_finalize.h"

namespace afd::ops {

class InProcess : public PrepareFinalize {
  public:
    bool ready(const Ticket&) const override { return true; }
    Result<void> finalize_async(const Ticket& ticket, const ExpertsOutput& output) override;
    bool finalized(const Ticket& ticket) const override;
    void cancel(uint32_t slot, uint64_t id) override;

  protected:
    explicit InProcess(const FusedMoeConfig& config);

    // Errors: kInvalidArgument: the slot has a live ticket.
    Result<Ticket> open(const MoeInput& input, uint32_t slot);

    const FusedMoeConfig& config() const { return config_; }
    const MoeInput& input(const Ticket& ticket) const { return slots_[ticket.slot()].input; }
    // REQUIRES: finalized(ticket).
    const ExpertsOutput& output(const Ticket& ticket) const;

    // The logical expert of an id as a local one, the same number here; others are masked.
    LocalExpert local_expert(int32_t id) const {
        const bool is_valid = id >= 0 && static_cast<size_t>(id) < config_.num_experts;
        return is_valid ? LocalExpert{id} : kNoLocalExpert;
    }
    LocalExpert shared_expert(size_t index) const {
        return LocalExpert{static_cast<int32_t>(config_.num_experts + index)};
    }

  private:
    struct Slot {
        bool in_use = false;
        bool has_output = false;
        uint64_t id = 0;
        MoeInput input;
        ExpertsOutput output;
    };

    FusedMoeConfig config_;
    uint64_t next_id_ = 1;
    std::vector<Slot> slots_;  // [num_micro_batches]
};

}  // namespace afd::ops

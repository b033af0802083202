// SPDX-License-Identifier: Apache-2.0
#pragma once

// InProcess: what every PrepareFinalize within one process shares: a slot per batch of rows in
// flight with its ticket, layouts that several tickets may use, memory for both reserved once, rows
// that are there as soon as prepare_async returns, and a combine by the experts' reduction.
//
// A part says how much memory it needs, lays out a routing, and sends rows along a layout.

#include <array>
#include <span>
#include <vector>

#include "ops/fused_moe/prepare_finalize.h"
#include "ops/fused_moe/row_bounds.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

// Bytes that a part within one process reserves.
struct InProcessMemory {
    Capacity layout;   // Of each layout: index and counts.
    Capacity rows;     // Of each batch in flight.
    Capacity scratch;  // Once.

    // With the layouts and batches of the configuration.
    Capacity total(const PrepareFinalizeCapability& record, const FusedMoeConfig& config) const;
};

class InProcess : public PrepareFinalize {
  public:
    const PrepareFinalizeCapability& capability() const final { return capability_; }
    bool slot_free(uint32_t slot) final { return !slots_[slot].in_use; }
    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) final;
    bool ready(const Ticket&) const final { return true; }
    ActivationMetadata metadata(const Ticket& ticket) const final;
    Result<> finalize_async(const Ticket& ticket, const ExpertsOutput& output) final;
    bool finalized(const Ticket& ticket) const final;
    Result<> finalize(Ticket&& ticket,
                      const TopKWeightAndReduce& reduce,
                      Rows<Bf16> out,
                      Parallel& parallel) final;
    void cancel(uint32_t slot, uint64_t id) final;
    Result<DispatchLayout> share_layout(const Ticket& ticket) final;
    void release_layout(uint32_t index) final;
    Result<DeferredRows> deferred(const Ticket& ticket) const final;
    size_t reserved_bytes() const final;

  protected:
    InProcess(const PrepareFinalizeCapability& record,
              const FusedMoeConfig& config,
              const InProcessMemory& memory);

    // Writes layout `index` of the input's routing.
    virtual Result<> lay_out(const MoeInput& input, size_t index) = 0;
    // Brings the input's rows to where the layout says, in the memory of `slot`.
    virtual Result<> send(const MoeInput& input, size_t slot, size_t index) = 0;
    // Of a layout, [num_tokens, num_slots]: the row of the experts' output; negative: none.
    virtual const int32_t* row_index(size_t layout) const = 0;
    // Of a layout: the rows that the experts get, and [num_experts + num_shared] of each.
    virtual Count num_rows(size_t layout) const = 0;
    virtual const int32_t* expert_counts(size_t layout) const = 0;

    const FusedMoeConfig& config() const { return config_; }
    const RowBounds& bounds() const { return bounds_; }
    size_t num_slots() const { return slots_.size(); }
    size_t num_layouts() const { return layouts_.size(); }
    WorkspaceCursor rows_memory(size_t slot) const { return WorkspaceCursor(rows_[slot].bytes()); }
    WorkspaceCursor layout_memory(size_t index) const {
        return WorkspaceCursor(layout_memory_[index].bytes());
    }
    std::span<std::byte> scratch() const { return scratch_.bytes(); }

    const MoeInput& input(const Ticket& ticket) const { return slots_[ticket.slot()].input; }
    size_t layout_of(const Ticket& ticket) const { return slots_[ticket.slot()].layout; }

    // The same number here. Ids that are no routed expert's mask their slot.
    LocalExpert local_expert(LogicalExpert expert) const {
        const auto id = static_cast<int32_t>(expert);
        if (id < 0) return kMaskedSlot;
        return static_cast<size_t>(id) < config_.num_experts ? LocalExpert{id} : kNonLocalSlot;
    }
    LocalExpert shared_expert(size_t index) const {
        return LocalExpert{static_cast<int32_t>(config_.num_experts + index)};
    }

  private:
    struct Slot {
        bool in_use = false;
        bool has_output = false;
        uint64_t id = 0;
        size_t layout = 0;
        MoeInput input;
        ExpertsOutput output;
    };
    struct Layout {
        LayoutKey key;
        size_t num_users = 0;  // Tickets and handles.
        std::array<int32_t, 2> source_prefix = {};
    };

    Result<size_t> take_layout(const MoeInput& input);
    Result<size_t> layout_for(const MoeInput& input);
    const ExpertsOutput& output(const Ticket& ticket) const;

    PrepareFinalizeCapability capability_;
    FusedMoeConfig config_;
    RowBounds bounds_;
    uint64_t next_id_ = 1;
    std::vector<Slot> slots_;
    std::vector<Layout> layouts_;
    std::vector<Workspace> rows_;           // [num_slots]
    std::vector<Workspace> layout_memory_;  // [num_layouts]
    Workspace scratch_;
};

}  // namespace afd::ops

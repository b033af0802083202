// SPDX-License-Identifier: Apache-2.0
#pragma once

// FusedMoe: one MoE layer call composed of a PrepareFinalize and an Experts part.
//
// compose() checks the two records against the configuration and each other, and allocates the
// workspaces and one output per micro-batch; afterwards nothing allocates. One object serves all
// layers of a model. All calls come from one thread; several tickets may be in flight.
//
//   start → do other work, ask ready() → finish
//
// With a shared stage (config.has_shared_stage) the layer's shared experts are a third part, run by
// start() as soon as the rows are on their way, while the others' results are awaited; with
// config.max_shared_tokens by start() and advance(), so many tokens at a time. The same bits: their
// rows are summed last either way, and with fp8 dispatch the stage gets the rows that would have
// arrived.
//
// With config.apply_router_weight_on_input the dispatched rows carry the routing weights
// (ops/fused_moe/weighted_rows.h), in a copy; the caller's rows, which the shared stage takes, stay
// as they are.
//
// With config.row_fraction below 1 less than the worst case is reserved; what a call then meets
// that needs more says config.overflow. No row is dropped.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/fused_moe/capability.h"
#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/driver_memory.h"
#include "ops/fused_moe/experts.h"
#include "ops/fused_moe/prepare_finalize.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::ops {

// A layer call in flight. Move-only; destroying it before finish() cancels the call.
class MoeTicket {
  public:
    MoeTicket() = default;

    bool valid() const { return ticket_.valid(); }
    uint32_t micro_batch() const { return micro_batch_; }
    const MoeInput& input() const { return input_; }

  private:
    friend class FusedMoe;
    Ticket ticket_;
    MoeInput input_;
    uint32_t micro_batch_ = 0;
    uint32_t first_token_ = 0;  // Of what is dispatched now,
    uint32_t num_tokens_ = 0;   // which are so many; the others follow in finish().
    bool experts_done_ = false;
    uint32_t num_shared_done_ = 0;  // Tokens whose shared rows need not be computed any more.
};

class FusedMoe {
  public:
    // The parts and `parallel` outlive the object. `shared` is the shared stage: any part that
    // takes Standard activations, its local id j the layer's shared expert j.
    // Errors: those of check_composition(), first reason; kInvalidArgument: `shared` and
    // has_shared_stage disagree; kFailedPrecondition: what that part cannot do for the stage;
    // kResourceExhausted: the field of the
    // configuration that asks for more memory than there is. (The parts have reserved their own
    // when they were made, and there missing memory ends the process.)
    static Result<FusedMoe> compose(PrepareFinalize& prepare_finalize,
                                    Experts& experts,
                                    const FusedMoeConfig& config,
                                    Parallel& parallel,
                                    Experts* shared = nullptr);

    // Adds the time of every stage to `profile` from now on; null: no more.
    void set_profile(StageProfile* profile);

    // Whether start() may be called for the micro-batch now. Never waits.
    bool slot_free(uint32_t micro_batch) { return batch_for(micro_batch).ok(); }

    // Dispatches, and runs the experts at once where they are local and their rows are here.
    // What `input` points to stays unchanged until finish() returns or the ticket is destroyed.
    // Errors: kInvalidArgument (a size beyond the configuration: field, value, limit; a slot in
    // use), kResourceExhausted (all batches are in flight; what row_fraction reserves is too little
    // for the call), or the parts' own.
    Result<MoeTicket> start(const MoeInput& input, uint32_t micro_batch);

    // Does what can be done without waiting: local experts whose rows have arrived, and the next
    // part of the shared stage.
    Result<> advance(MoeTicket& ticket);
    // Whether advance() would do something now.
    bool can_advance(const MoeTicket& ticket) const;

    // Whether finish() will return without waiting.
    bool ready(const MoeTicket& ticket) const;

    // Advances the ticket until ready(), at most `timeout`. For tools and tests: it yields the
    // processor between its looks; a worker sleeps on its doorbell instead.
    // Errors: kDeadlineExceeded: which call of which part was not ready.
    Result<> wait(MoeTicket& ticket, std::chrono::microseconds timeout);

    // How many rows the call's experts got, by source and expert; of a call that goes through in
    // several parts, the part that is dispatched. REQUIRES: the experts run in this process, and
    // their rows are here.
    ActivationMetadata metadata(const MoeTicket& ticket) const {
        return prepare_finalize_->metadata(ticket.ticket_);
    }

    // Combines into out [num_tokens, hidden] bf16 (no residual) and ends the ticket, also with an
    // error. Does not wait if ready(); else a call that goes through in several parts waits for the
    // later ones, at most as long as a part allows.
    // Errors: kFailedPrecondition: its rows have not arrived; those of PrepareFinalize::finalize.
    Result<> finish(MoeTicket&& ticket, Rows<Bf16> out);

    // The layout of the call's rows, for MoeInput::layout of later calls with the same topk_ids.
    // Errors: those of PrepareFinalize::share_layout.
    Result<DispatchLayout> share_layout(const MoeTicket& ticket);

    // Instead of finish(): the experts' rows before they are weighted and summed. The ticket stays,
    // and with it the rows; dropping it ends the call. REQUIRES: ready(ticket).
    // Errors: kFailedPrecondition: a part that combines itself, experts that reduced, a call that
    // goes through in several parts.
    Result<DeferredRows> defer(const MoeTicket& ticket) const;

    // start, wait for config().wait_timeout_us, finish.
    Result<> apply(const MoeInput& input, Rows<Bf16> out);

    const FusedMoeConfig& config() const { return config_; }

    // Bytes that compose() reserved, without those of the parts.
    size_t reserved_bytes() const;

  private:
    FusedMoe(PrepareFinalize& prepare_finalize,
             Experts& experts,
             const FusedMoeConfig& config,
             Parallel& parallel,
             Experts* shared);

    Result<> reserve(const DriverMemory& memory);
    Result<> reserve_shared(const DriverMemory& memory, WorkspaceCursor& cursor);
    Result<> check_input(const MoeInput& input, uint32_t micro_batch) const;
    Result<> check_ids(const MoeInput& input) const;
    Result<uint32_t> batch_for(uint32_t micro_batch) const;
    Result<uint32_t> tokens_at_once(const MoeInput& input, uint32_t first);
    void put_weights_on(MoeInput& input, uint32_t batch);
    Result<> dispatch(MoeTicket& ticket, uint32_t batch);
    Result<> finish_part(MoeTicket& ticket, Rows<Bf16> out);
    Result<> run_experts(const MoeTicket& ticket, Rows<Bf16> output);
    bool has_shared_left(const MoeTicket& ticket) const {
        return ticket.num_shared_done_ < ticket.input_.num_tokens;
    }
    Result<> run_shared(MoeTicket& ticket);
    Rows<Bf16> rows_in(const Workspace& workspace) const;
    Rows<Bf16> output_of(const MoeTicket& ticket) const;

    PrepareFinalize* prepare_finalize_;
    Experts* experts_;
    Experts* shared_;
    FusedMoeConfig config_;
    Parallel* parallel_;
    StageProfile* profile_ = nullptr;
    RowBounds bounds_;
    Workspace workspace13_;
    Workspace workspace2_;
    std::vector<Workspace> outputs_;        // [num_batches]
    std::vector<Workspace> shared_rows_;    // [num_batches]
    std::vector<Workspace> weighted_;       // [num_batches]; apply_router_weight_on_input.
    std::vector<Workspace> ids_;            // [num_batches]; of another dtype than the calls'.
    std::vector<uint32_t> micro_batch_of_;  // [num_batches], of the last call in each.
    Workspace tables_;
    size_t chunk_tokens_ = 0;                   // That the experts take at once.
    size_t shared_tokens_ = 0;                  // That the shared stage takes at once.
    ExpertGroup* chunk_groups_ = nullptr;       // [num_experts + num_shared]
    std::span<uint32_t> place_counts_;          // [num_experts]
    std::span<float> ones_;                     // [tokens of a dispatch]; with weighted_.
    std::span<LocalExpert> shared_ids_;         // [shared_tokens_, num_shared]
    std::span<float> shared_weights_;           // The same, all 1.
    std::optional<DispatchRows> shared_input_;  // With a shared stage.
};

}  // namespace afd::ops

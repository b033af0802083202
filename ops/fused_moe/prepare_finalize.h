// SPDX-License-Identifier: Apache-2.0
#pragma once

// PrepareFinalize: dispatch and combine of a fused-MoE layer, as one part because they match
// pairwise. Within a process: local, local_batched and two_phase_prepare_finalize.h in parts/; over
// windows: daemon/lanes/window_prepare_finalize.h.
//
// A ticket lives through
//   prepare_async → (ready) → activations → finalize_async → (finalized) → finalize.
// Several tickets may be in flight, one per slot (the micro-batch). State between the calls belongs
// to the slot, never to "the last call". All calls come from one thread.
// Where the record says remote, activations() and ready() are not asked: finalize_async follows at
// once, and finalized() tells that the results are here.

#include <chrono>
#include <cstdint>
#include <utility>

#include "ops/fused_moe/activation_metadata.h"
#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/fused_moe/dispatch_layout.h"
#include "ops/fused_moe/top_k_weight_and_reduce.h"
#include "ops/tensor/stage_profile.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

class PrepareFinalize;

// One micro-batch at one layer in flight. Move-only; destroying an unfinished ticket cancels it.
class Ticket {
  public:
    Ticket() = default;
    Ticket(PrepareFinalize* owner, uint32_t slot, uint64_t id)
        : owner_(owner), slot_(slot), id_(id) {}
    Ticket(Ticket&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), slot_(other.slot_), id_(other.id_) {}
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { cancel(); }

    bool valid() const { return owner_ != nullptr; }
    uint32_t slot() const { return slot_; }
    uint64_t id() const { return id_; }  // The owner's own name for it (a round, a count).

    // Tells the owner that the result is no longer wanted; then !valid().
    void cancel();

    // For the owner, at the end of finalize: then !valid(), and nothing is cancelled.
    void release() { owner_ = nullptr; }

  private:
    PrepareFinalize* owner_ = nullptr;
    uint32_t slot_ = 0;
    uint64_t id_ = 0;
};

class PrepareFinalize : public LayoutOwner {
  public:
    virtual ~PrepareFinalize() = default;

    // Constant over the object's life.
    virtual const PrepareFinalizeCapability& capability() const = 0;

    // Whether prepare_async may be called for the slot now: a local part has no ticket in it, one
    // over windows has an acknowledgement of the slot's last round. Never waits.
    virtual bool slot_free(uint32_t /*slot*/) { return true; }

    // Starts the dispatch of `input` in `slot` and returns without waiting for any peer.
    // REQUIRES: slot_free(slot), and no live ticket in it; what `input` points to stays unchanged
    // until finalize or cancel. Errors: as the part says (a dead peer, an id outside the
    // placement).
    virtual Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) = 0;

    // prepare_async, then waits until the activations are here, at most `timeout`; a remote part
    // has none, and returns at once. Like FusedMoe::wait it yields between its looks.
    // REQUIRES and errors: as prepare_async; kDeadlineExceeded: which part waited how long, and the
    // call is cancelled.
    Result<Ticket> prepare(const MoeInput& input, uint32_t slot, std::chrono::microseconds timeout);

    // Whether activations() may be called. Never waits.
    virtual bool ready(const Ticket& ticket) const = 0;

    // REQUIRES: ready(ticket). Valid until finalize_async of the ticket.
    virtual Activations activations(const Ticket& ticket) const = 0;

    // How many rows these are. Every part that is not remote says it. As activations().
    virtual ActivationMetadata metadata(const Ticket& ticket) const;

    // Starts the way back of the experts' rows, which stay unchanged until finalize.
    virtual Result<> finalize_async(const Ticket& ticket, const ExpertsOutput& output) = 0;

    // The first `num_tokens` tokens have their rows of the shared stage now; called as they come,
    // after finalize_async, and for all tokens before finalize. A part that combines in finalize
    // need not know.
    virtual void shared_rows_written(const Ticket& /*ticket*/, size_t /*num_tokens*/) {}

    // Whether finalize() will return without waiting. Never waits itself.
    virtual bool finalized(const Ticket& ticket) const = 0;

    // Writes the layer's output, out [num_tokens, hidden], through `reduce` (or the part's own
    // combine if reduce is Delegate), and ends the ticket, also on an error.
    // Waits at most for the part's own deadline. Errors: kDeadlineExceeded, kUnavailable: who
    // waited for what.
    virtual Result<> finalize(Ticket&& ticket,
                              const TopKWeightAndReduce& reduce,
                              Rows<Bf16> out,
                              Parallel& parallel) = 0;

    // The ticket of `slot` ends without a result. Called by Ticket only.
    virtual void cancel(uint32_t slot, uint64_t id) = 0;

    // The layout of the ticket's rows, for later calls with the same routing.
    // Errors: kFailedPrecondition: the record does not share layouts; kInvalidArgument: the call
    // did not name its ids' generation.
    virtual Result<DispatchLayout> share_layout(const Ticket& ticket);
    // REQUIRES: share_layout() gave it out.
    void release_layout(uint32_t index) override;

    // The experts' rows as they are, with where each slot's is; valid until the ticket ends, which
    // the caller does instead of finalize. REQUIRES: finalized(ticket).
    // Errors: kFailedPrecondition: the record does not defer.
    virtual Result<DeferredRows> deferred(const Ticket& ticket) const;

    // Bytes that the part holds for rows and where they are. 0: they are not of this process alone.
    virtual size_t reserved_bytes() const { return 0; }

    // Where the part adds the time of stages that only it can tell apart; null: nowhere.
    void set_profile(StageProfile* profile) { profile_ = profile; }

  protected:
    StageProfile* profile() const { return profile_; }

  private:
    StageProfile* profile_ = nullptr;
};

}  // namespace afd::ops

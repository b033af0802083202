// SPDX-License-Identifier: Apache-2.0
#pragma once

// RemoteTwoPhase: dispatch and combine of the fused-MoE framework for batches far larger than a
// window: the two-phase dispatch (schedule/layout/two_phase_control.h) to other processes. Composed
// with ops::RemoteExperts. Within a process: ops/fused_moe/parts/two_phase_prepare_finalize.h.
//
//   prepare_async   phase 1: layout from the ids alone; the counts go to every rank concerned
//   advance         once all have granted: phase 2, block by block; what came back is combined,
//                   block by block and in the order of tokens, into the rows of expect_output()
//   finalize        closes the round
//
// Here are the flags and the memory of a round; the rows are moved by two_phase_operators.h. One
// slot. Data thread only. A round opens memory and so makes system calls: it is not the steady
// state.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/control/worker_events.h"
#include "daemon/lanes/two_phase_operators.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/plan/remote_capabilities.h"
#include "ops/fused_moe/prepare_finalize.h"
#include "ops/tensor/parallel.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/shared_memory/two_phase_memory.h"
#include "schedule/two_phase/two_phase_sender.h"

namespace afd::daemon {

class RemoteTwoPhase final : public ops::PrepareFinalize {
  public:
    struct Settings {
        uint32_t session = 0;
        uint32_t micro_batch = 0;  // Its number in reports of waits.
        size_t hidden = 0;
        size_t top_k = 0;
        size_t num_shared = 0;  // Dispatched; 0 with a shared stage.
        uint32_t num_tokens_max = 0;
        uint32_t block_tokens = 0;
        schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;
        bool row_checksums = false;  // Rows are sealed, and judged when they come back.
    };
    // All outlive the object.
    struct Parts {
        schedule::TwoPhaseSender* sender = nullptr;
        // Where the sender's transport finds what afdd hands over; null: it needs nothing.
        schedule::HandedTwoPhaseMemory* memory = nullptr;
        const schedule::ExpertPlacement* placement = nullptr;
        ops::Parallel* parallel = nullptr;
        // Optional, with int8 rows: they are quantised with the scales of their experts.
        const model::SmoothScales* smooth = nullptr;
    };
    RemoteTwoPhase(const Settings& settings, const Parts& parts);

    const ops::PrepareFinalizeCapability& capability() const override { return capability_; }

    // Every rank has acknowledged the round before (R4), a predecessor's included (R10).
    bool slot_free(uint32_t) override {
        return parts_.sender->may_begin(schedule::Order::kAcquire);
    }

    // Where finalize() of the next round will want its result; combined rows go there as they come.
    void expect_output(ops::Rows<ops::Bf16> out) { out_ = out; }

    // REQUIRES: slot_free(), expect_output(). Errors: kInternal, an id outside the layer's experts.
    Result<ops::Ticket> prepare_async(const ops::MoeInput& input, uint32_t slot) override;

    bool ready(const ops::Ticket&) const override { return true; }
    ops::Activations activations(const ops::Ticket&) const override {
        return ops::RemoteActivations{};
    }
    Result<> finalize_async(const ops::Ticket&, const ops::ExpertsOutput& output) override {
        output_ = output;
        return {};
    }
    // A block is combined once its tokens' rows of the shared stage are written.
    void shared_rows_written(const ops::Ticket&, size_t num_tokens) override {
        num_shared_tokens_ = num_tokens;
    }
    bool finalized(const ops::Ticket&) const override {
        return stage_ == Stage::kDone || stage_ == Stage::kFailed;
    }
    // REQUIRES: finalized(); `out` is that of expect_output().
    // Errors, after which the same input may go through the windows: kResourceExhausted: a rank had
    // no memory for the round, or no answer of afdd; or it could not be mapped here. kDataLoss: a
    // rank granted rows outside its segment.
    Result<> finalize(ops::Ticket&& ticket,
                      const ops::TopKWeightAndReduce& reduce,
                      ops::Rows<ops::Bf16> out,
                      ops::Parallel& parallel) override;
    void cancel(uint32_t slot, uint64_t id) override;

    // Does what can be done without waiting, at most one block each way. Returns whether there was
    // anything.
    bool advance();
    // What afdd hands over of a round, or why it is not here. Of a round that is not open: nothing.
    void take_segments(WorkerCommand& command);
    // Whether advance() would do something.
    bool has_step(schedule::Order order) const {
        return (stage_ == Stage::kGranting || stage_ == Stage::kStreaming) && can_advance(order);
    }
    // Whether it would, or the round is over, or the slot has become free (R9).
    bool can_advance(schedule::Order order) const;

    // For whom the round waits now (R7).
    std::optional<schedule::WaitInfo> wait_info() const;

  private:
    using Answer = schedule::TwoPhaseSender::Answer;
    enum class Stage { kIdle, kGranting, kStreaming, kDone, kFailed };

    // What a round has with one rank.
    struct Peer {
        schedule::TwoPhaseOffer offer;
        schedule::TwoPhaseSizes sizes;
        schedule::TwoPhaseRoundMemory memory;
    };

    void offer_round();
    Result<> open_round();
    void fail(Error error);
    Answer answer(schedule::Order order) const;
    bool is_returned(uint32_t block, schedule::Order order) const;
    bool may_send() const;
    bool may_combine(schedule::Order order) const;
    void send_block(uint32_t block);
    void put_block(uint32_t rank, uint32_t block);
    Result<> combine_block(uint32_t block);
    Result<size_t> unseal_results(uint32_t rank, const std::byte* results, std::byte* to) const;
    void end_round();

    const Settings settings_;
    const Parts parts_;
    const uint32_t num_ranks_;
    const schedule::TwoPhaseRowBytes row_bytes_;
    ops::PrepareFinalizeCapability capability_;
    TwoPhaseOperators operators_;

    Stage stage_ = Stage::kIdle;
    ops::MoeInput input_;
    ops::ExpertsOutput output_;     // Of the shared stage, if there is one.
    size_t num_shared_tokens_ = 0;  // Tokens whose rows it has written.
    ops::Rows<ops::Bf16> out_;
    Error error_;
    uint32_t num_blocks_ = 0;
    uint32_t num_sent_ = 0;
    uint32_t num_combined_ = 0;
    std::vector<Peer> peers_;  // [F]
    // With row_checksums: the results of a block, as they were judged, rank by rank.
    std::vector<std::byte> unsealed_;
};

}  // namespace afd::daemon

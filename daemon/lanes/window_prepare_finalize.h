// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowPrepareFinalize: dispatch and combine of the fused-MoE framework over the windows of the
// FFN workers (the AFD path). Composed with ops::RemoteExperts.
//
// prepare_async() writes every token's row and local expert id into the window of the rank that
// the placement chooses, slot [session][micro_batch][token][k], and publishes. The results come
// back into this session's own window; finalize() weights and sums them in the order of
// ops/experts/combine.h. The protocol's rules live in schedule/dispatch/dispatch_lane.h.
//
// With router = ffn an MoE layer's input comes without topk_ids: every token is offered once, at
// slot k = 0, to every rank, except those that are lost and can be done without or that hold a void
// round (R12). Each that gets it routes it itself. Any of them may answer any of the top_k slots,
// so the round waits for all slots; each row brings its routing weight behind its values.
//
// Rows may travel as int8 or fp8 (ops/fused_moe/sent_rows.h); each is encoded once, whatever the
// number of its experts; int8 rows of a model with smooth scales once for each slot.
//
// One slot per micro-batch. Data thread only. Nothing allocates after construction.

#include <optional>
#include <vector>

#include "daemon/lanes/peer_waits.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/prepare_finalize.h"
#include "ops/fused_moe/sent_rows.h"
#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/dispatch/lost_ranks.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/row_dtype.h"

namespace afd::daemon {

class WindowPrepareFinalize final : public ops::PrepareFinalize {
  public:
    // All outlive the object.
    WindowPrepareFinalize(schedule::DispatchTransport& transport,
                          const schedule::Geometry& geometry,
                          const schedule::ExpertPlacement& placement,
                          uint32_t session,
                          schedule::RouterPlacement router = schedule::RouterPlacement::kAttention,
                          schedule::RowDtype dtype = schedule::RowDtype::kBf16);

    // Ranks that rows go to only if there is no other way (R12). Outlives the object.
    void avoid(const schedule::LostRanks& ranks) { lost_ranks_ = &ranks; }

    // The flags of a slot.
    schedule::DispatchLane& lane(uint32_t slot) const { return lanes_[slot]; }

    const ops::PrepareFinalizeCapability& capability() const override { return capability_; }

    // DispatchLane::may_store(): every rank has let go of the slot's previous round, which is
    // acknowledged (R4) or void (R12) there, and a predecessor's rounds are over (R10).
    bool slot_free(uint32_t slot) override { return lanes_[slot].may_store(); }

    // REQUIRES: slot_free(slot). Errors: kInternal, an id outside the layer's experts.
    // kUnavailable: all ranks that have one of the layer's experts are void to the slot (R12),
    // whether the rows ask for it or not.
    Result<ops::Ticket> prepare_async(const ops::MoeInput& input, uint32_t slot) override;

    bool ready(const ops::Ticket&) const override { return true; }
    ops::Activations activations(const ops::Ticket&) const override {
        return ops::RemoteActivations{};
    }
    Result<> finalize_async(const ops::Ticket& ticket, const ops::ExpertsOutput& output) override {
        rounds_[ticket.slot()].output = output;
        return {};
    }
    bool finalized(const ops::Ticket& ticket) const override;
    // Errors: kUnavailable: the FFN worker refused the round (R11). kDataLoss: it acknowledged the
    // round without its results, or a row was corrupted.
    Result<> finalize(ops::Ticket&& ticket,
                      const ops::TopKWeightAndReduce& reduce,
                      ops::Rows<ops::Bf16> out,
                      ops::Parallel& parallel) override;
    void cancel(uint32_t slot, uint64_t id) override;

    // Whether the slot's peers have answered everything: what to sleep on (R9), with kSeqCst
    // between arming and sleeping. Acknowledgements follow all results of a round.
    bool is_answered(uint32_t slot, schedule::Order order) const {
        return lanes_[slot].acknowledged(order);
    }

    // [num_tokens, top_k] of the slot's last finalize(), if its input came without topk_ids: the
    // weights that the rows brought. Null if it came with them.
    const float* topk_weights(uint32_t slot) const {
        const Round& round = rounds_[slot];
        return round.input.topk_ids == nullptr ? round.topk_weights.data() : nullptr;
    }

    // The number of the slot's last round.
    int32_t round(uint32_t slot) const { return lanes_[slot].round(); }

    // From now on counts how long each rank takes.
    void set_metrics(const Metrics& metrics) { waits_.emplace(metrics, geometry_); }

    // Whom rounds are published to from now on; without this call to ranks that got rows.
    void set_mode(schedule::DispatchMode mode) { mode_ = mode; }

    // From now on rows, which are int8, are quantised with the scales of their experts.
    // REQUIRES: not empty; outlives the object.
    void set_smooth(const model::SmoothScales& smooth) { smooth_ = &smooth; }

    // From now on rows bring what their rounding left, in layers that are routed here zeros.
    // REQUIRES: router = ffn, bf16 rows; x_middle and x_low in each input without ids.
    void send_rest();

    // From now on rows are sealed, and those that come back are looked at: finalize() gives
    // kDataLoss for one that was corrupted on its way, there or back.
    void use_checksums();

    // For whom the slot waits now (R7); nothing if for nobody.
    std::optional<schedule::WaitInfo> wait_info(uint32_t slot) const {
        return lanes_[slot].wait_info();
    }

  private:
    struct Round {
        ops::MoeInput input;
        ops::ExpertsOutput output;        // Of the shared stage, if there is one.
        uint32_t num_experts = 0;         // Routed experts of the layer: ids outside mask.
        std::vector<float> topk_weights;  // [BS, K1]; router = ffn.
    };

    void put_token(schedule::DispatchLane& lane,
                   const ops::MoeInput& input,
                   uint32_t token,
                   uint32_t num_experts);
    void offer_token(schedule::DispatchLane& lane,
                     const ops::MoeInput& input,
                     uint32_t token,
                     uint32_t num_experts,
                     uint32_t left_out);
    // Bits of the ranks that offers leave out: those that nothing may be stored to, and those that
    // are lost, if the layer's experts are elsewhere, too.
    uint32_t left_out_ranks(schedule::DispatchLane& lane, uint32_t layer_id) const;
    // Whether `will_do(rank)` of a rank for each expert of the layer.
    template <typename WillDo>
    bool is_served_by(uint32_t layer_id, const WillDo& will_do) const;
    Result<> take_rows(const schedule::DispatchLane& lane, const Round& round);
    // `rows`: of the slots, [BS, K1].
    void read_weights(const std::byte* rows, Round& round) const;

    // Whether all ranks are there, and rows may go to each.
    bool is_whole_to(const schedule::DispatchLane& lane) const {
        return lost_ranks_ == nullptr || (!lost_ranks_->is_any() && !lane.has_voids());
    }
    schedule::ExpertReplica rank_of(schedule::DispatchLane& lane,
                                    uint32_t layer_id,
                                    uint32_t expert) const {
        return is_whole_to(lane) ? placement_.choose(layer_id, expert, session_)
                                 : other_rank_of(lane, layer_id, expert);
    }
    schedule::ExpertReplica other_rank_of(schedule::DispatchLane& lane,
                                          uint32_t layer_id,
                                          uint32_t expert) const;
    // Writes what the rounding of the token's row left.
    static void put_rest(const ops::MoeInput& input, uint32_t token, std::byte* place);
    // With null scales the row is the same for every expert.
    std::span<const std::byte> row_of(const ops::MoeInput& input,
                                      uint32_t token,
                                      const float* smooth = nullptr);

    const schedule::Geometry geometry_;
    const schedule::ExpertPlacement& placement_;
    const uint32_t session_;
    ops::PrepareFinalizeCapability capability_;
    mutable std::vector<schedule::DispatchLane> lanes_;  // [M]; polling moves their cursors.
    std::vector<Round> rounds_;                          // [M]
    mutable std::optional<PeerWaits> waits_;             // Polling counts.
    const schedule::RowDtype dtype_;
    schedule::DispatchMode mode_ = schedule::DispatchMode::kAsync;
    const model::SmoothScales* smooth_ = nullptr;
    const schedule::LostRanks* lost_ranks_ = nullptr;
    bool has_rest_ = false;
    bool has_checksums_ = false;
    std::vector<std::byte> encoded_;  // A row as it goes into a slot, unless it goes as it is.
    std::vector<std::byte> taken_;    // With checksums: the rows of a round, as they came back.
};

}  // namespace afd::daemon

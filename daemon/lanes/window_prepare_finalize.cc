// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/window_prepare_finalize.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "daemon/lanes/topk_ids.h"
#include "ops/experts/combine.h"
#include "ops/fused_moe/plan/remote_capabilities.h"
#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/layout/execution_log.h"
#include "schedule/layout/row_checksum.h"

namespace afd::daemon {

WindowPrepareFinalize::WindowPrepareFinalize(schedule::DispatchTransport& transport,
                                             const schedule::Geometry& geometry,
                                             const schedule::ExpertPlacement& placement,
                                             uint32_t session,
                                             schedule::RouterPlacement router,
                                             schedule::RowDtype dtype)
    : geometry_(geometry),
      placement_(placement),
      session_(session),
      capability_(router == schedule::RouterPlacement::kFfn ? ops::kAfdWindowFfnRouterCapability
                                                            : ops::kAfdWindowCapability),
      rounds_(geometry.num_micro_batches),
      dtype_(dtype) {
    // What was not allowed is left with nothing, and refused at composition.
    capability_.dispatch_dtypes &= ops::bit(dtype);
    if (dtype != schedule::RowDtype::kBf16) encoded_.resize(geometry.attn_to_ffn_token_bytes);
    capability_.max_in_flight = geometry.num_micro_batches;
    lanes_.reserve(geometry.num_micro_batches);
    for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
        lanes_.emplace_back(transport, geometry, m);
    }
    if (!capability_.routes) return;
    for (Round& round : rounds_) round.topk_weights.resize(geometry.slots_per_micro_batch());
}

Result<ops::Ticket> WindowPrepareFinalize::prepare_async(const ops::MoeInput& input,
                                                         uint32_t slot) {
    schedule::DispatchLane& lane = lanes_[slot];
    const uint32_t num_experts = placement_.num_experts(input.layer_id) - input.num_shared;
    const bool is_routed = input.topk_ids != nullptr;
    if (is_routed) AFD_TRY(check_topk_ids(input, num_experts));
    const auto may_store = [&](uint32_t rank) { return lane.may_store_to(rank); };
    if (lane.has_voids() && !is_served_by(input.layer_id, may_store)) {
        // No accident: rounds are voided only where the placement is whole without their ranks.
        return unavailable(
            "layer {}: no FFN worker that has one of its experts has acknowledged what was voided "
            "of micro-batch {}",
            with(input.layer_id, slot));
    }
    const uint32_t left_out = is_routed ? 0 : left_out_ranks(lane, input.layer_id);
    lane.begin(static_cast<int32_t>(input.layer_id));
    for (uint32_t token = 0; token < input.num_tokens; ++token) {
        if (is_routed) {
            put_token(lane, input, token, num_experts);
        } else {
            offer_token(lane, input, token, num_experts, left_out);
        }
    }
    // As a rule only to ranks that got a row: one without would have to be waited for and woken all
    // the same.
    const int32_t published = lane.publish(mode_);
    if (waits_) waits_->published(lane);
    rounds_[slot].input = input;
    rounds_[slot].output = {};
    rounds_[slot].num_experts = num_experts;
    return ops::Ticket(this, slot, static_cast<uint64_t>(published));
}

std::span<const std::byte> WindowPrepareFinalize::row_of(const ops::MoeInput& input,
                                                         uint32_t token,
                                                         const float* smooth) {
    const size_t hidden = input.x.num_cols;
    const auto values = std::as_bytes(std::span(input.x.row(token), hidden));
    if (encoded_.empty()) return values;
    const size_t num_bytes = ops::sent_row_bytes(dtype_, hidden, has_rest_);
    if (dtype_ == schedule::RowDtype::kBf16) {
        std::ranges::copy(values, encoded_.begin());
        if (has_rest_) put_rest(input, token, &encoded_[values.size()]);
    } else {
        ops::encode_sent_row(dtype_, input.x.row(token), hidden, encoded_.data(), smooth);
    }
    if (!has_checksums_) return std::span(encoded_).first(num_bytes);
    schedule::seal_row(std::span(encoded_).first(num_bytes), &encoded_[num_bytes]);
    return std::span(encoded_).first(num_bytes + schedule::kRowSealBytes);
}

void WindowPrepareFinalize::put_rest(const ops::MoeInput& input, uint32_t token, std::byte* place) {
    const size_t bytes = input.x.num_cols * sizeof(ops::Bf16);
    if (input.topk_ids != nullptr) {
        // Nobody routes by it, but a row is sent again with the same bytes (R3).
        std::memset(place, 0, 2 * bytes);
        return;
    }
    AFD_ASSERT(input.x_middle.data != nullptr && input.x_low.data != nullptr,
               "layer %u is offered without a rest",
               input.layer_id);
    std::memcpy(place, input.x_middle.row(token), bytes);
    std::memcpy(place + bytes, input.x_low.row(token), bytes);
}

// A row for each slot, to the rank that holds its expert.
void WindowPrepareFinalize::put_token(schedule::DispatchLane& lane,
                                      const ops::MoeInput& input,
                                      uint32_t token,
                                      uint32_t num_experts) {
    std::span<const std::byte> row;
    if (smooth_ == nullptr) row = row_of(input, token);
    for (uint32_t k = 0; k < input.num_slots(); ++k) {
        const int32_t id = k < input.top_k ? input.topk_ids[size_t{token} * input.top_k + k]
                                           : static_cast<int32_t>(num_experts + k - input.top_k);
        // A masked slot: no rank gets it, and combine() leaves it out.
        if (id < 0) continue;
        if (smooth_ != nullptr) {
            row = row_of(input, token, smooth_->of(input.layer_id, static_cast<uint32_t>(id)));
        }
        lane.put(rank_of(lane, input.layer_id, static_cast<uint32_t>(id)), token, k, row);
    }
}

// One row to each rank. Who computes the shared experts is still decided here.
void WindowPrepareFinalize::offer_token(schedule::DispatchLane& lane,
                                        const ops::MoeInput& input,
                                        uint32_t token,
                                        uint32_t num_experts,
                                        uint32_t left_out) {
    lane.offer(token, input.top_k, row_of(input, token), left_out);
    for (uint32_t j = 0; j < input.num_shared; ++j) {
        lane.use(rank_of(lane, input.layer_id, num_experts + j), token, input.top_k + j);
    }
}

template <typename WillDo>
bool WindowPrepareFinalize::is_served_by(uint32_t layer_id, const WillDo& will_do) const {
    const auto will_do_replica = [&](const schedule::ExpertReplica& replica) {
        return will_do(replica.rank);
    };
    const uint32_t num_experts = placement_.num_experts(layer_id);
    for (uint32_t expert = 0; expert < num_experts; ++expert) {
        if (!placement_.choose_where(layer_id, expert, session_, will_do_replica)) return false;
    }
    return true;
}

uint32_t WindowPrepareFinalize::left_out_ranks(schedule::DispatchLane& lane,
                                               uint32_t layer_id) const {
    if (is_whole_to(lane)) return 0;
    uint32_t shut = 0;
    uint32_t spare = 0;
    const uint32_t num_ranks = std::min(lost_ranks_->num_ranks(), schedule::kLeftOutRanksMax);
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
        const bool is_spare = lost_ranks_->can_do_without() && lost_ranks_->is_lost(rank);
        if (is_spare) spare |= 1u << rank;
        if (!lane.may_store_to(rank)) shut |= 1u << rank;
    }
    // Of a rank that is back, and one that is lost now, both may be missing: then the successor of
    // the one that is lost answers.
    const auto is_asked = [&](uint32_t rank) {
        return rank >= num_ranks || ((shut | spare) & (1u << rank)) == 0;
    };
    return is_served_by(layer_id, is_asked) ? shut | spare : shut;
}

// The session's own choice if it is there, else the first replica that is; if none is, one that the
// session may store to: its successor will compute the row.
schedule::ExpertReplica WindowPrepareFinalize::other_rank_of(schedule::DispatchLane& lane,
                                                             uint32_t layer_id,
                                                             uint32_t expert) const {
    const auto may_store = [&](const schedule::ExpertReplica& replica) {
        return lane.may_store_to(replica.rank);
    };
    const auto is_there = [&](const schedule::ExpertReplica& replica) {
        return !lost_ranks_->is_lost(replica.rank) && may_store(replica);
    };
    auto chosen = placement_.choose_where(layer_id, expert, session_, is_there);
    if (!chosen) chosen = placement_.choose_where(layer_id, expert, session_, may_store);
    // prepare_async() has looked, and what may be stored to stays so.
    AFD_ASSERT(chosen.has_value(), "layer %u, expert %u: all ranks are void", layer_id, expert);
    return *chosen;
}

bool WindowPrepareFinalize::finalized(const ops::Ticket& ticket) const {
    schedule::DispatchLane& lane = lanes_[ticket.slot()];
    if (lane.poll() != schedule::RoundState::kPending) return true;
    if (waits_) waits_->look(lane);
    // Acknowledged without all results: finalize() says so instead of waiting for ever. What was
    // voided has none.
    return !lane.is_voided() && lane.acknowledged(schedule::Order::kAcquire) &&
           lane.poll() == schedule::RoundState::kPending;
}

Result<> WindowPrepareFinalize::finalize(ops::Ticket&& ticket,
                                         const ops::TopKWeightAndReduce&,
                                         ops::Rows<ops::Bf16> out,
                                         ops::Parallel& parallel) {
    const uint32_t slot = ticket.slot();
    ticket.release();
    schedule::DispatchLane& lane = lanes_[slot];
    Round& round = rounds_[slot];
    const schedule::RoundState state = lane.poll();
    if (state == schedule::RoundState::kRefused) {
        return Error{
            Code::kUnavailable,
            fmt::format("layer {}: the FFN worker refused micro-batch {} (round {}): it is "
                        "malformed, or its execution has killed the worker {} times",
                        lane.layer_id(),
                        slot,
                        lane.round(),
                        schedule::ExecutionLog::kDeadly)};
    }
    if (state != schedule::RoundState::kReady) {
        return Error{Code::kDataLoss,
                     fmt::format("layer {}: an FFN worker acknowledged micro-batch {} (round {}) "
                                 "without all of its results",
                                 lane.layer_id(),
                                 slot,
                                 lane.round())};
    }
    if (waits_) waits_->complete(lane);
    // Summed where they arrived, without a copy: each row's flag carries the round, so it is
    // complete (R5), and nobody writes it again before the next begin().
    const std::byte* rows = lane.row(0, 0).data();
    if (has_checksums_) {
        AFD_TRY(take_rows(lane, round));
        rows = taken_.data();
    }
    const bool is_routed = round.input.topk_ids != nullptr;
    if (!is_routed) read_weights(rows, round);
    const size_t row_bytes = geometry_.ffn_to_attn_token_bytes;
    ops::combine({.num_tokens = round.input.num_tokens,
                  .top_k = round.input.top_k,
                  .num_shared = round.input.num_shared + round.output.num_shared,
                  .topk_ids = round.input.topk_ids,
                  .num_experts = round.num_experts,
                  .topk_weights = is_routed ? round.input.topk_weights : round.topk_weights.data(),
                  .rows = rows,
                  .token_stride_bytes = row_bytes * geometry_.selected_expert_num,
                  .slot_stride_bytes = row_bytes,
                  .row_index = nullptr,
                  .shared_rows = round.output.shared,
                  .out = out},
                 parallel);
    return {};
}

void WindowPrepareFinalize::send_rest() {
    has_rest_ = true;
    encoded_.resize(geometry_.attn_to_ffn_token_bytes);
}

void WindowPrepareFinalize::use_checksums() {
    has_checksums_ = true;
    encoded_.resize(geometry_.attn_to_ffn_token_bytes);
    taken_.resize(geometry_.slots_per_micro_batch() * geometry_.ffn_to_attn_token_bytes);
}

// The copy is looked at and summed, so that no row changes between the two.
Result<> WindowPrepareFinalize::take_rows(const schedule::DispatchLane& lane, const Round& round) {
    const size_t num_bytes =
        round.input.x.num_cols * sizeof(ops::Bf16) + (capability_.routes ? sizeof(float) : 0);
    for (size_t i = 0; i < lane.num_slots(); ++i) {
        const uint32_t token = lane.slot_index(i) / geometry_.selected_expert_num;
        const uint32_t k = lane.slot_index(i) % geometry_.selected_expert_num;
        std::byte* row = &taken_[size_t{lane.slot_index(i)} * geometry_.ffn_to_attn_token_bytes];
        std::memcpy(row, lane.row(token, k).data(), num_bytes + schedule::kRowSealBytes);
        const schedule::RowState state = schedule::look_at_row({row, num_bytes}, row + num_bytes);
        if (state == schedule::RowState::kIntact) continue;
        const auto rank = lane.slot_rank(i);
        return data_loss(
            "layer {}: the row of token {}, slot {} of micro-batch {} (round {}) was corrupted on "
            "its way {} FFN worker {}",
            with(lane.layer_id(),
                 token,
                 k,
                 lane.micro_batch(),
                 lane.round(),
                 state == schedule::RowState::kInputCorrupted ? "to" : "back from",
                 rank ? std::to_string(*rank) : "that chose it"));
    }
    return {};
}

// The weight of a slot stands behind the values of its row.
void WindowPrepareFinalize::read_weights(const std::byte* rows, Round& round) const {
    const size_t value_bytes = round.input.x.num_cols * sizeof(ops::Bf16);
    for (uint32_t token = 0; token < round.input.num_tokens; ++token) {
        for (uint32_t k = 0; k < round.input.top_k; ++k) {
            const size_t slot = size_t{token} * geometry_.selected_expert_num + k;
            std::memcpy(&round.topk_weights[size_t{token} * round.input.top_k + k],
                        rows + slot * geometry_.ffn_to_attn_token_bytes + value_bytes,
                        sizeof(float));
        }
    }
}

void WindowPrepareFinalize::cancel(uint32_t slot, uint64_t) {
    // Nothing to undo: the lane blocks the slot until its peers have acknowledged (R7).
    rounds_[slot].input = {};
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/remote_two_phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "daemon/config/instance_geometry.h"
#include "model/decoder/smooth_rows.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "proto/check.h"

namespace afd::daemon {

using ops::DType;
using ops::make_tensor;
using schedule::Order;
using schedule::Segment;
using schedule::TwoPhaseSegment;

namespace {

// Rows that one thread encodes at a time: enough to pay for handing them out.
constexpr size_t kEncodeRows = 32;

}  // namespace

RemoteTwoPhase::RemoteTwoPhase(const Settings& settings, const Parts& parts)
    : settings_(settings),
      parts_(parts),
      num_ranks_(parts.sender->num_ranks()),
      num_local_experts_(parts.placement->num_local_experts_max()),
      row_bytes_(two_phase_row_bytes(settings.dispatch_dtype, settings.hidden)),
      row_elements_(ops::sent_row_elements(settings.dispatch_dtype, settings.hidden)),
      capability_(ops::kAfdTwoPhaseCapability),
      peers_(num_ranks_),
      sorted_indices_(size_t{settings.num_tokens_max} * (settings.top_k + settings.num_shared)),
      receivers_(num_ranks_),
      result_views_(num_ranks_) {
    capability_.dispatch_dtypes = ops::bit(settings.dispatch_dtype);
    if (settings.dispatch_dtype != ops::DispatchDtype::kBf16 && !is_smooth()) {
        encoded_.resize(settings.num_tokens_max * row_elements_);
    }
    make_tables();
    const size_t num_keys = size_t{num_ranks_} * num_local_experts_;
    for (std::vector<int32_t>* counts : {&send_counts_, &block_counts_}) counts->resize(num_keys);
    for (std::vector<int64_t>* rows : {&grants_, &sent_, &block_base_, &block_done_}) {
        rows->resize(num_keys);
    }
    for (Peer& peer : peers_) peer.offer.counts.resize(num_local_experts_);

    // The largest call of each operator: a block of the widest layer.
    const size_t num_experts = key_of_expert_.size();
    ops::TwoPhasePayloadRequest payload;
    payload.num_ranks = num_ranks_;
    payload.num_local_experts = num_local_experts_;
    payload.block_size = settings.block_tokens;
    payload.shared_expert_num = static_cast<int64_t>(settings.num_shared);
    payload.expert_ids =
        make_tensor<const void>(nullptr, DType::kInt32, {settings.num_tokens_max, settings.top_k});
    payload.expert_rank_table =
        make_tensor<const void>(nullptr, DType::kInt32, {1, num_experts, num_replicas_, 2});
    ops::TwoPhaseLayoutRequest layout;
    static_cast<ops::TwoPhaseRouting&>(layout) = payload;
    ops::TwoPhaseCombineRequest combine;
    static_cast<ops::TwoPhaseBlocks&>(combine) = payload;
    workspace_.reserve(
        std::max({ops::two_phase_layout_workspace_bytes(layout, parts.parallel->num_threads()),
                  ops::two_phase_payload_workspace_bytes(payload),
                  ops::two_phase_combine_workspace_bytes(combine)}));
}

// The placement in the form of the operators.
void RemoteTwoPhase::make_tables() {
    const schedule::ExpertPlacement& placement = *parts_.placement;
    size_t num_experts_max = 0;
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        num_experts_max = std::max<size_t>(num_experts_max, placement.num_experts(layer));
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            num_replicas_ = std::max(num_replicas_, placement.replicas(layer, expert).size());
        }
    }
    key_of_expert_.resize(num_experts_max);
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        const size_t num_experts = placement.num_experts(layer);
        std::vector<int32_t>& table = tables_.emplace_back(num_experts * num_replicas_ * 2, -1);
        for (uint32_t expert = 0; expert < num_experts; ++expert) {
            int32_t* pair = &table[expert * num_replicas_ * 2];
            for (const schedule::ExpertReplica& replica : placement.replicas(layer, expert)) {
                *pair++ = static_cast<int32_t>(replica.rank);
                *pair++ = replica.local_id;
            }
        }
    }
}

ops::TwoPhaseRouting RemoteTwoPhase::routing() const {
    ops::TwoPhaseRouting routing;
    routing.num_ranks = num_ranks_;
    routing.num_local_experts = num_local_experts_;
    routing.shared_expert_num = input_.num_shared;
    routing.session_id = settings_.session;
    routing.block_size = settings_.block_tokens;
    routing.expert_ids =
        make_tensor<const void>(input_.topk_ids, DType::kInt32, {input_.num_tokens, input_.top_k});
    const std::vector<int32_t>& table = tables_[input_.layer_id];
    routing.expert_rank_table = make_tensor<const void>(
        table.data(), DType::kInt32, {1, table.size() / (num_replicas_ * 2), num_replicas_, 2});
    return routing;
}

Result<ops::Ticket> RemoteTwoPhase::prepare_async(const ops::MoeInput& input, uint32_t slot) {
    AFD_ASSERT(slot == 0 && input.num_tokens <= settings_.num_tokens_max &&
                   out_.num_rows >= input.num_tokens,
               "slot %u, %u tokens of %u, output of %zu rows",
               slot,
               input.num_tokens,
               settings_.num_tokens_max,
               out_.num_rows);
    const uint32_t num_experts = parts_.placement->num_experts(input.layer_id) - input.num_shared;
    for (size_t i = 0; i < size_t{input.num_tokens} * input.top_k; ++i) {
        if (input.topk_ids[i] >= static_cast<int32_t>(num_experts)) {
            return Error{Code::kInternal,
                         fmt::format("layer {}: expert {} was chosen, the layer has {}",
                                     input.layer_id,
                                     input.topk_ids[i],
                                     num_experts)};
        }
    }
    input_ = input;
    output_ = {};
    num_shared_tokens_ = 0;
    ops::TwoPhaseLayoutRequest request;
    static_cast<ops::TwoPhaseRouting&>(request) = routing();
    request.sorted_indices = make_tensor<void>(
        sorted_indices_.data(), DType::kInt32, {size_t{input.num_tokens} * input.num_slots()});
    request.send_counts =
        make_tensor<void>(send_counts_.data(), DType::kInt32, {num_ranks_, num_local_experts_});
    const auto laid_out = ops::two_phase_layout(request, workspace_.bytes(), *parts_.parallel);
    AFD_ASSERT(laid_out.ok(), "%s", laid_out.error().message.c_str());
    offer_round();
    stage_ = Stage::kGranting;
    return ops::Ticket(this, slot, static_cast<uint64_t>(parts_.sender->round()));
}

// Rows of the block for each key, into block_counts_.
void RemoteTwoPhase::count_block(uint32_t block) {
    ops::two_phase_block_counts(
        routing(), sorted_indices_.data(), block, key_of_expert_, block_counts_);
}

void RemoteTwoPhase::offer_round() {
    num_blocks_ = (input_.num_tokens + settings_.block_tokens - 1) / settings_.block_tokens;
    num_sent_ = 0;
    num_combined_ = 0;
    std::fill(sent_.begin(), sent_.end(), 0);
    const auto rows_of_rank = [&](const std::vector<int32_t>& counts, uint32_t rank) {
        const auto first = counts.begin() + size_t{rank} * num_local_experts_;
        return std::accumulate(first, first + num_local_experts_, uint64_t{0});
    };
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        schedule::TwoPhaseOffer& offer = peers_[rank].offer;
        offer.layer_id = static_cast<int32_t>(input_.layer_id);
        offer.num_blocks = num_blocks_;
        offer.block_rows_max = 0;
        std::copy_n(send_counts_.begin() + size_t{rank} * num_local_experts_,
                    num_local_experts_,
                    offer.counts.begin());
    }
    for (uint32_t block = 0; block < num_blocks_; ++block) {
        count_block(block);
        for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
            uint32_t& most = peers_[rank].offer.block_rows_max;
            most = std::max(most, static_cast<uint32_t>(rows_of_rank(block_counts_, rank)));
        }
    }
    parts_.sender->begin();
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        Peer& peer = peers_[rank];
        if (peer.offer.block_rows_max == 0) continue;
        peer.sizes = schedule::two_phase_sizes(peer.offer, row_bytes_);
        parts_.sender->offer(rank, peer.offer);
    }
}

bool RemoteTwoPhase::is_refused(Order order) const {
    const auto& ranks = parts_.sender->offered();
    return std::any_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
        return parts_.sender->answer(rank, order) == schedule::TwoPhaseSender::Answer::kRefused;
    });
}

bool RemoteTwoPhase::is_granted(Order order) const {
    const auto& ranks = parts_.sender->offered();
    return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
        return parts_.sender->answer(rank, order) == schedule::TwoPhaseSender::Answer::kGranted;
    });
}

bool RemoteTwoPhase::is_returned(uint32_t block, Order order) const {
    const auto& ranks = parts_.sender->offered();
    return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
        return parts_.sender->returned(rank, num_blocks_, order) > block;
    });
}

// Whether everything that the next block's sums need is here.
bool RemoteTwoPhase::may_combine(Order order) const {
    const size_t last = (size_t{num_combined_} + 1) * settings_.block_tokens;
    const bool has_shared =
        output_.num_shared == 0 || num_shared_tokens_ >= std::min<size_t>(last, input_.num_tokens);
    return has_shared && is_returned(num_combined_, order);
}

bool RemoteTwoPhase::can_advance(Order order) const {
    switch (stage_) {
        case Stage::kIdle:
            return parts_.sender->may_begin(order);
        case Stage::kGranting:
            return is_refused(order) || is_granted(order);
        case Stage::kStreaming:
            return num_sent_ < num_blocks_ || is_refused(order) || may_combine(order);
        case Stage::kDone:
        case Stage::kFailed:
            return true;
    }
    return false;
}

bool RemoteTwoPhase::advance() {
    if (!has_step(Order::kAcquire)) return false;
    if (is_refused(Order::kAcquire)) {
        fail({Code::kResourceExhausted,
              fmt::format(
                  "layer {}: an FFN worker refused {} tokens in two phases: it has no memory for "
                  "them, or they killed it",
                  input_.layer_id,
                  input_.num_tokens)});
    } else if (stage_ == Stage::kGranting) {
        const Result<> mapped = map_segments();
        stage_ = Stage::kStreaming;
        if (!mapped.ok()) fail(mapped.error());
    } else {
        if (num_sent_ < num_blocks_) send_block(num_sent_++);
        if (num_combined_ < num_blocks_ && may_combine(Order::kAcquire)) {
            combine_block(num_combined_++);
        }
        if (num_combined_ == num_blocks_) stage_ = Stage::kDone;
    }
    return true;
}

Result<> RemoteTwoPhase::map_segments() {
    const ops::StageTimer timer(profile(), ops::MoeStage::kDispatch);
    std::fill(receivers_.begin(), receivers_.end(), ops::TwoPhaseReceiver{});
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        receivers_[rank].recv_x = make_tensor<void>(nullptr, DType::kBf16, {0, row_elements_});
    }
    for (const uint32_t rank : parts_.sender->offered()) {
        Peer& peer = peers_[rank];
        AFD_TRY(parts_.sender->copy_grants(
            rank,
            peer.offer,
            std::span(grants_).subspan(size_t{rank} * num_local_experts_, num_local_experts_)));
        const int32_t round = parts_.sender->round();
        AFD_ASSIGN(peer.receive,
                   parts_.memory->map({TwoPhaseSegment::kReceive, rank, settings_.session, round},
                                      peer.sizes.receive_bytes,
                                      Segment::Access::kReadWrite));
        AFD_ASSIGN(peer.results,
                   parts_.memory->map({TwoPhaseSegment::kReturn, rank, settings_.session, round},
                                      peer.sizes.return_bytes,
                                      Segment::Access::kReadOnly));
        receivers_[rank].recv_x = make_tensor<void>(
            peer.receive + schedule::two_phase_rows_offset(num_blocks_, num_local_experts_),
            DType::kBf16,
            {peer.offer.num_rows(), row_elements_});
    }
    return {};
}

void RemoteTwoPhase::unmap_segments() {
    for (const uint32_t rank : parts_.sender->offered()) {
        for (const auto segment : {TwoPhaseSegment::kReceive, TwoPhaseSegment::kReturn}) {
            parts_.memory->unmap({segment, rank, settings_.session, parts_.sender->round()});
        }
    }
}

void RemoteTwoPhase::fail(Error error) {
    error_ = std::move(error);
    stage_ = Stage::kFailed;
}

// The batch's rows as they are sent, those of the block just made; the operators copy them without
// a look into them.
const ops::Bf16* RemoteTwoPhase::encoded_rows(uint32_t block) {
    if (encoded_.empty()) return input_.x.data;
    const size_t first = size_t{block} * settings_.block_tokens;
    const size_t count = std::min<size_t>(settings_.block_tokens, input_.num_tokens - first);
    parts_.parallel->run((count + kEncodeRows - 1) / kEncodeRows, [&](size_t task, unsigned) {
        const size_t last = first + std::min(count, (task + 1) * kEncodeRows);
        for (size_t token = first + task * kEncodeRows; token < last; ++token) {
            ops::encode_sent_row(settings_.dispatch_dtype,
                                 input_.x.row(token),
                                 settings_.hidden,
                                 reinterpret_cast<std::byte*>(&encoded_[token * row_elements_]));
        }
    });
    return encoded_.data();
}

void RemoteTwoPhase::send_block(uint32_t block) {
    const ops::StageTimer timer(profile(), ops::MoeStage::kDispatch);
    count_block(block);
    for (const uint32_t rank : parts_.sender->offered()) {
        std::memcpy(peers_[rank].receive + size_t{block} * num_local_experts_ * sizeof(int32_t),
                    &block_counts_[size_t{rank} * num_local_experts_],
                    num_local_experts_ * sizeof(int32_t));
    }
    ops::TwoPhasePayloadRequest request;
    static_cast<ops::TwoPhaseRouting&>(request) = routing();
    request.first_block = block;
    request.num_blocks = 1;
    request.sorted_indices = make_tensor<const void>(
        sorted_indices_.data(), DType::kInt32, {size_t{input_.num_tokens} * input_.num_slots()});
    request.send_counts = make_tensor<const void>(
        send_counts_.data(), DType::kInt32, {num_ranks_, num_local_experts_});
    request.base =
        make_tensor<const void>(grants_.data(), DType::kInt64, {num_ranks_, num_local_experts_});
    request.done = make_tensor<void>(sent_.data(), DType::kInt64, {num_ranks_, num_local_experts_});
    request.x = make_tensor<const void>(
        encoded_rows(block), DType::kBf16, {input_.num_tokens, row_elements_});
    request.receivers = receivers_;
    std::optional<model::SmoothRows> smooth_rows;
    if (is_smooth()) {
        request.row_writer = &smooth_rows.emplace(input_.x, input_.layer_id, *parts_.smooth);
    }
    const auto sent = ops::two_phase_payload(request, workspace_.bytes(), *parts_.parallel);
    AFD_ASSERT(sent.ok(), "%s", sent.error().message.c_str());
    for (const uint32_t rank : parts_.sender->offered()) {
        parts_.sender->publish_sent(rank, block + 1);
    }
}

// The results of a block lie in the order of its sorted indices, rank by rank.
void RemoteTwoPhase::combine_block(uint32_t block) {
    const ops::StageTimer timer(profile(), ops::MoeStage::kCombine);
    count_block(block);
    std::fill(block_done_.begin(), block_done_.end(), 0);
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        int64_t num_rows = 0;
        for (size_t e = 0; e < num_local_experts_; ++e) {
            const size_t key = size_t{rank} * num_local_experts_ + e;
            block_base_[key] = num_rows;
            num_rows += block_counts_[key];
        }
        const Peer& peer = peers_[rank];
        const std::byte* rows =
            num_rows == 0
                ? nullptr
                : peer.results + schedule::two_phase_return_offset(
                                     block, peer.offer.block_rows_max, row_bytes_.returned);
        result_views_[rank] = make_tensor<const void>(
            rows, DType::kBf16, {static_cast<size_t>(num_rows), settings_.hidden});
    }
    ops::TwoPhaseCombineRequest request;
    static_cast<ops::TwoPhaseRouting&>(request) = routing();
    request.first_block = block;
    request.num_blocks = 1;
    request.sorted_indices = make_tensor<const void>(
        sorted_indices_.data(), DType::kInt32, {size_t{input_.num_tokens} * input_.num_slots()});
    request.send_counts = make_tensor<const void>(
        block_counts_.data(), DType::kInt32, {num_ranks_, num_local_experts_});
    request.base = make_tensor<const void>(
        block_base_.data(), DType::kInt64, {num_ranks_, num_local_experts_});
    request.done =
        make_tensor<void>(block_done_.data(), DType::kInt64, {num_ranks_, num_local_experts_});
    request.expert_scales = make_tensor<const void>(
        input_.topk_weights, DType::kFp32, {input_.num_tokens, input_.top_k});
    request.senders = result_views_;
    if (output_.num_shared > 0) {
        request.shared_rows =
            make_tensor<const void>(output_.shared.data,
                                    DType::kBf16,
                                    {input_.num_tokens, output_.num_shared, settings_.hidden});
    }
    request.y = make_tensor<void>(out_.data, DType::kBf16, {input_.num_tokens, settings_.hidden});
    const auto combined = ops::two_phase_combine(request, workspace_.bytes(), *parts_.parallel);
    AFD_ASSERT(combined.ok(), "%s", combined.error().message.c_str());
    for (const uint32_t rank : parts_.sender->offered()) {
        parts_.sender->publish_combined(rank, block + 1);
    }
}

void RemoteTwoPhase::end_round() {
    unmap_segments();
    parts_.sender->close();
    stage_ = Stage::kIdle;
}

Result<void> RemoteTwoPhase::finalize(ops::Ticket&& ticket,
                                      const ops::TopKWeightAndReduce&,
                                      ops::Rows<ops::Bf16> out,
                                      ops::Parallel&) {
    ticket.release();
    AFD_ASSERT(out.data == out_.data && (stage_ == Stage::kDone || stage_ == Stage::kFailed),
               "finalize in stage %d, or of another output",
               static_cast<int>(stage_));
    const bool is_done = stage_ == Stage::kDone;
    end_round();
    if (is_done) return {};
    return error_;
}

void RemoteTwoPhase::cancel(uint32_t, uint64_t) {
    if (stage_ != Stage::kIdle) end_round();
}

std::optional<schedule::WaitInfo> RemoteTwoPhase::wait_info() const {
    auto info = parts_.sender->wait_info(num_combined_);
    if (info) info->micro_batch = static_cast<int32_t>(settings_.micro_batch);
    return info;
}

}  // namespace afd::daemon

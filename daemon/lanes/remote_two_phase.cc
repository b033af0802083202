// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/remote_two_phase.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "daemon/config/instance_geometry.h"
#include "daemon/lanes/topk_ids.h"
#include "proto/check.h"
#include "proto/crash_point.h"
#include "proto/failure.h"
#include "schedule/layout/row_checksum.h"

namespace afd::daemon {

using schedule::Order;

RemoteTwoPhase::RemoteTwoPhase(const Settings& settings, const Parts& parts)
    : settings_(settings),
      parts_(parts),
      num_ranks_(parts.sender->num_ranks()),
      row_bytes_(
          two_phase_row_bytes(settings.dispatch_dtype, settings.hidden, settings.row_checksums)),
      capability_(ops::kAfdTwoPhaseCapability),
      operators_({.session = settings.session,
                  .num_ranks = num_ranks_,
                  .hidden = settings.hidden,
                  .top_k = settings.top_k,
                  .num_shared = settings.num_shared,
                  .num_tokens_max = settings.num_tokens_max,
                  .block_tokens = settings.block_tokens,
                  .dispatch_dtype = settings.dispatch_dtype,
                  .row_checksums = settings.row_checksums},
                 *parts.placement,
                 parts.smooth,
                 *parts.parallel),
      peers_(num_ranks_) {
    capability_.dispatch_dtypes = ops::bit(settings.dispatch_dtype);
    for (Peer& peer : peers_) peer.offer.counts.resize(operators_.num_local_experts());
    if (!settings.row_checksums) return;
    // Of a block, from all ranks.
    const size_t num_rows = size_t{std::min(settings.block_tokens, settings.num_tokens_max)} *
                            (settings.top_k + settings.num_shared);
    unsealed_.resize(num_rows * settings.hidden * sizeof(ops::Bf16));
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
    AFD_TRY(check_topk_ids(input, num_experts));
    input_ = input;
    output_ = {};
    num_shared_tokens_ = 0;
    operators_.begin(input);
    offer_round();
    AFD_CRASH_POINT("offer.made");
    stage_ = Stage::kGranting;
    return ops::Ticket(this, slot, static_cast<uint64_t>(parts_.sender->round()));
}

// What each rank is told: the rows of each of its experts, and the most that a block brings it.
void RemoteTwoPhase::offer_round() {
    num_blocks_ = (input_.num_tokens + settings_.block_tokens - 1) / settings_.block_tokens;
    num_sent_ = 0;
    num_combined_ = 0;
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        schedule::TwoPhaseOffer& offer = peers_[rank].offer;
        offer.layer_id = static_cast<int32_t>(input_.layer_id);
        offer.num_blocks = num_blocks_;
        offer.block_rows_max = 0;
        const auto counts = operators_.send_counts(rank);
        std::copy(counts.begin(), counts.end(), offer.counts.begin());
    }
    for (uint32_t block = 0; block < num_blocks_; ++block) {
        operators_.count_block(block);
        for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
            const auto counts = operators_.block_counts(rank);
            const auto rows = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
            uint32_t& most = peers_[rank].offer.block_rows_max;
            most = std::max(most, static_cast<uint32_t>(rows));
        }
    }
    parts_.sender->begin();
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        Peer& peer = peers_[rank];
        // A rank without a row is not asked for memory, and not waited for.
        if (peer.offer.block_rows_max == 0) continue;
        peer.sizes = schedule::two_phase_sizes(peer.offer, row_bytes_);
        parts_.sender->offer(rank, peer.offer);
    }
}

// Of all ranks: one that refuses ends the round, one that is silent holds it up.
RemoteTwoPhase::Answer RemoteTwoPhase::answer(Order order) const {
    Answer all = Answer::kGranted;
    for (const uint32_t rank : parts_.sender->offered()) {
        const Answer one = parts_.sender->answer(rank, order);
        if (one == Answer::kRefused) return one;
        if (one == Answer::kPending) all = one;
    }
    return all;
}

bool RemoteTwoPhase::is_returned(uint32_t block, Order order) const {
    const auto& ranks = parts_.sender->offered();
    return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
        return parts_.sender->returned(rank, num_blocks_, order) > block;
    });
}

bool RemoteTwoPhase::may_send() const {
    return num_sent_ < num_blocks_ && num_sent_ - num_combined_ < parts_.sender->blocks_ahead();
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
            return answer(order) != Answer::kPending;
        case Stage::kStreaming:
            return may_send() || answer(order) == Answer::kRefused || may_combine(order);
        case Stage::kDone:
        case Stage::kFailed:
            return true;
    }
    return false;
}

void RemoteTwoPhase::take_segments(WorkerCommand& command) {
    const auto offered = parts_.sender->offered();
    const bool is_awaited =
        stage_ == Stage::kGranting && command.round == parts_.sender->round() &&
        std::find(offered.begin(), offered.end(), command.rank) != offered.end();
    if (!is_awaited || parts_.memory == nullptr) return;
    if (command.segments == nullptr) {
        fail({command.code,
              fmt::format("layer {}: the memory of {} tokens in two phases cannot be mapped",
                          input_.layer_id,
                          input_.num_tokens)});
        return;
    }
    parts_.memory->hand_over(
        command.rank, settings_.session, command.round, std::move(*command.segments));
}

bool RemoteTwoPhase::advance() {
    if (stage_ != Stage::kGranting && stage_ != Stage::kStreaming) return false;
    // One look, not has_step() and then another: a rank that takes back a refusal in between would
    // pass for one that granted.
    const Answer answered = answer(Order::kAcquire);
    if (answered == Answer::kRefused) {
        fail({Code::kResourceExhausted,
              fmt::format(
                  "layer {}: an FFN worker refused {} tokens in two phases: it has no memory for "
                  "them, they killed it, afdd did not answer it, or the connection to it ended",
                  input_.layer_id,
                  input_.num_tokens)});
        return true;
    }
    if (stage_ == Stage::kGranting) {
        if (answered == Answer::kPending) return false;
        AFD_CRASH_POINT("grant.seen");
        const Result<> mapped = open_round();
        AFD_CRASH_POINT("grant.mapped");
        stage_ = Stage::kStreaming;
        if (!mapped.ok()) fail(mapped.error());
        return true;
    }
    // One block each way a step: between two steps the loop serves the windows.
    const bool sends = may_send();
    if (sends) send_block(num_sent_++);
    const bool combines = num_combined_ < num_blocks_ && may_combine(Order::kAcquire);
    if (combines) {
        if (const Result<> combined = combine_block(num_combined_++); !combined.ok()) {
            fail(combined.error());
            return true;
        }
    }
    if (num_combined_ == num_blocks_) stage_ = Stage::kDone;
    return sends || combines || stage_ == Stage::kDone;
}

Result<> RemoteTwoPhase::open_round() {
    const ops::StageTimer timer(profile(), ops::MoeStage::kDispatch);
    for (const uint32_t rank : parts_.sender->offered()) {
        Peer& peer = peers_[rank];
        AFD_TRY(parts_.sender->copy_grants(rank, peer.offer, operators_.grants(rank)));
        AFD_ASSIGN(peer.memory, parts_.sender->open(rank, peer.sizes));
        operators_.set_receiver(rank,
                                peer.memory.sent + schedule::two_phase_rows_offset(
                                                       num_blocks_, operators_.num_local_experts()),
                                peer.offer.num_rows());
    }
    return {};
}

void RemoteTwoPhase::fail(Error error) {
    error_ = std::move(error);
    stage_ = Stage::kFailed;
}

// A rank learns the counts of a block before its rows: both are there when the block is published.
void RemoteTwoPhase::send_block(uint32_t block) {
    const ops::StageTimer timer(profile(), ops::MoeStage::kDispatch);
    operators_.count_block(block);
    for (const uint32_t rank : parts_.sender->offered()) {
        const auto counts = operators_.block_counts(rank);
        std::memcpy(peers_[rank].memory.sent + block * counts.size_bytes(),
                    counts.data(),
                    counts.size_bytes());
    }
    operators_.send_block(block);
    for (const uint32_t rank : parts_.sender->offered()) {
        put_block(rank, block);
        parts_.sender->publish_sent(rank, block + 1);
    }
}

// The block's counts, and of each expert the rows that were just written.
void RemoteTwoPhase::put_block(uint32_t rank, uint32_t block) {
    const auto counts = operators_.block_counts(rank);
    const auto grants = operators_.grants(rank);
    const auto sent = operators_.sent(rank);
    parts_.sender->put(rank, block * counts.size_bytes(), counts.size_bytes());
    const uint64_t rows =
        schedule::two_phase_rows_offset(num_blocks_, operators_.num_local_experts());
    for (size_t e = 0; e < counts.size(); ++e) {
        if (counts[e] == 0) continue;
        const int64_t row = grants[e] + sent[e] - counts[e];
        parts_.sender->put(rank,
                           rows + static_cast<uint64_t>(row) * row_bytes_.sent,
                           static_cast<uint64_t>(counts[e]) * row_bytes_.sent);
    }
}

// Copies the rows of the block that was counted last, with a rank that has any, and looks at each
// as it was copied: what is summed must be what was judged, whatever is stored there meanwhile.
// Returns their number.
Result<size_t> RemoteTwoPhase::unseal_results(uint32_t rank,
                                              const std::byte* results,
                                              std::byte* to) const {
    const auto counts = operators_.block_counts(rank);
    const auto num_rows = std::accumulate(counts.begin(), counts.end(), size_t{0});
    const size_t value_bytes = settings_.hidden * sizeof(ops::Bf16);
    const std::byte* seals =
        results + two_phase_seals_offset(peers_[rank].offer.block_rows_max, settings_.hidden);
    for (size_t i = 0; i < num_rows; ++i) {
        std::byte* const copy = to + i * value_bytes;
        std::memcpy(copy, results + i * value_bytes, value_bytes);
        const schedule::RowState state =
            schedule::look_at_row({copy, value_bytes}, seals + i * schedule::kRowSealBytes);
        if (state == schedule::RowState::kIntact) continue;
        return data_loss(
            "layer {}: row {} of {} in a block of a two-phase round was corrupted on its way {} "
            "FFN worker {}; the batch goes through the windows",
            with(input_.layer_id,
                 i,
                 num_rows,
                 state == schedule::RowState::kInputCorrupted ? "to" : "back from",
                 rank));
    }
    return num_rows;
}

Result<> RemoteTwoPhase::combine_block(uint32_t block) {
    const ops::StageTimer timer(profile(), ops::MoeStage::kCombine);
    operators_.count_block(block);
    const size_t value_bytes = settings_.hidden * sizeof(ops::Bf16);
    std::byte* unsealed = unsealed_.data();
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        const Peer& peer = peers_[rank];
        // A rank without rows of the round has no segment.
        const std::byte* results =
            peer.offer.block_rows_max == 0
                ? nullptr
                : peer.memory.received + schedule::two_phase_return_offset(
                                             block, peer.offer.block_rows_max, row_bytes_.returned);
        if (settings_.row_checksums && results != nullptr) {
            AFD_ASSIGN(const size_t num_rows, unseal_results(rank, results, unsealed));
            results = std::exchange(unsealed, unsealed + num_rows * value_bytes);
        }
        operators_.set_results(rank, results);
    }
    operators_.combine_block(block, output_, out_);
    for (const uint32_t rank : parts_.sender->offered()) {
        parts_.sender->publish_combined(rank, block + 1);
    }
    return {};
}

void RemoteTwoPhase::end_round() {
    // Before the next round and after a failure alike: every rank lets go of the memory (R4).
    parts_.sender->close();
    stage_ = Stage::kIdle;
}

Result<> RemoteTwoPhase::finalize(ops::Ticket&& ticket,
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

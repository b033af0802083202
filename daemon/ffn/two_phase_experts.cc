// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/two_phase_experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "daemon/config/instance_geometry.h"
#include "daemon/program/logging.h"
#include "ops/two_phase/offsets.h"
#include "proto/check.h"
#include "proto/crash_point.h"
#include "proto/failure.h"
#include "schedule/layout/row_checksum.h"

namespace afd::daemon {
namespace {

using schedule::Order;

// Rows that one call of the experts takes at most: bounds its scratch.
constexpr size_t kRowsPerCall = 2048;

// The control thread empties a full ring of events within a turn of its loop.
constexpr uint64_t kNoRoomUs = 500;

}  // namespace

TwoPhaseExperts::TwoPhaseExperts(const Parts& parts)
    : parts_(parts),
      row_bytes_(two_phase_row_bytes(parts.dispatch_dtype, parts.hidden, parts.row_checksums)),
      rounds_(parts.receiver->num_sessions()),
      counts_(parts.placement->num_local_experts_max()),
      arrived_(parts.dispatch_dtype, parts.hidden, kRowsPerCall) {
    groups_.reserve(counts_.size());
    if (parts.row_checksums) {
        unsealed_.resize(kRowsPerCall * (row_bytes_.sent - schedule::kRowSealBytes));
        intact_.resize(kRowsPerCall);
    }
    const ops::WorkspaceShapes shapes = parts.experts->workspace_shapes(
        {.format = ops::ActivationFormat::kGrouped, .num_rows = kRowsPerCall});
    workspace13_.reserve(shapes.workspace13_bytes);
    workspace2_.reserve(shapes.workspace2_bytes);
    for (uint32_t session = 0; session < rounds_.size(); ++session) {
        // A predecessor may have acknowledged, and died before its release had left the process.
        // Released twice does no harm (docs/protocol/control.pml, NO_MADE_UP).
        const int32_t last = parts_.receiver->acknowledged(session);
        if (last != 0 && parts_.receiver->open_round(session, Order::kAcquire) == 0) {
            release(session, last);
        }
    }
}

bool TwoPhaseExperts::advance() {
    for (size_t i = 0; i < rounds_.size(); ++i) {
        const uint32_t session = next_session_;
        // In turns, a step of one session at a time: a long round holds up no other.
        next_session_ = (session + 1) % static_cast<uint32_t>(rounds_.size());
        if (step(session)) return true;
    }
    return false;
}

bool TwoPhaseExperts::has_work(Order order) const {
    const schedule::TwoPhaseReceiver& receiver = *parts_.receiver;
    for (uint32_t session = 0; session < rounds_.size(); ++session) {
        const Round& round = rounds_[session];
        switch (round.state) {
            case State::kIdle:
                if (receiver.open_round(session, order) != 0) return true;
                break;
            case State::kRequested:
                if (receiver.is_closed(session, round.number, order)) return true;
                if (parts_.now_us() >= round.due_us) return true;
                break;
            case State::kGranted:
                if (has_block(session, order)) return true;
                [[fallthrough]];
            case State::kRefused:
                if (receiver.is_closed(session, round.number, order)) return true;
                break;
        }
    }
    return false;
}

uint64_t TwoPhaseExperts::due_us() const {
    uint64_t due_us = UINT64_MAX;
    for (const Round& round : rounds_) {
        if (round.state == State::kRequested) due_us = std::min(due_us, round.due_us);
    }
    return due_us;
}

bool TwoPhaseExperts::step(uint32_t session) {
    Round& round = rounds_[session];
    if (round.state == State::kIdle) {
        const int32_t number = parts_.receiver->open_round(session, Order::kAcquire);
        return number != 0 && open(session, number);
    }
    // Before anything else of the round: a cancelled batch gives its memory back at once. Of one
    // that was only requested too: afdd takes the release after the request.
    if (parts_.receiver->is_closed(session, round.number, Order::kAcquire)) {
        end(session);
        return true;
    }
    if (round.state == State::kRequested && parts_.now_us() >= round.due_us) {
        request_again(session);
        return true;
    }
    if (round.state != State::kGranted || !has_block(session, Order::kAcquire)) return false;
    if (const Result<> run = run_block(session); !run.ok()) refuse(session, run.error());
    return true;
}

// Phase 1: the counts are here. Returns whether the round got anywhere.
bool TwoPhaseExperts::open(uint32_t session, int32_t number) {
    Round& round = rounds_[session];
    round.number = number;
    if (parts_.receiver->is_closed(session, number, Order::kAcquire)) {
        end(session);
        return true;
    }
    // A predecessor refused it. What was said to the session is not taken back.
    if (parts_.receiver->granted(session, number) < 0) {
        round.state = State::kRefused;
        return true;
    }
    if (parts_.receiver->num_unfinished(session, number) >= schedule::ExecutionLog::kDeadly) {
        refuse(session, {Code::kUnavailable, "its execution has killed the worker repeatedly"});
        return true;
    }
    if (const Result<> copied = parts_.receiver->copy_offer(session, round.offer); !copied.ok()) {
        refuse(session, copied.error());
        return true;
    }
    AFD_CRASH_POINT("offer.copied");
    round.sizes = schedule::two_phase_sizes(round.offer, row_bytes_);
    round.requested_us = parts_.now_us();
    round.num_requests = 0;
    round.state = State::kRequested;
    request(session);
    return true;
}

// Asks afdd for the round's segments, and notes when to look for the answer, or, as long as there
// was no room for the question, when to ask it.
void TwoPhaseExperts::request(uint32_t session) {
    Round& round = rounds_[session];
    WorkerEvent event{.kind = WorkerEvent::Kind::kSegmentRequest};
    event.segment = {session, round.number, round.sizes.receive_bytes, round.sizes.return_bytes};
    if (parts_.port->push(std::move(event))) {
        parts_.port->flush();
        AFD_CRASH_POINT("offer.memory_asked");
        ++round.num_requests;
    }
    const uint64_t pause_us = round.num_requests == 0 ? kNoRoomUs : parts_.ask_again_us;
    round.due_us =
        std::min(parts_.now_us() + pause_us, round.requested_us + parts_.answer_timeout_us);
}

// No answer came in time. Asked twice does no harm: afdd answers with the same segments.
void TwoPhaseExperts::request_again(uint32_t session) {
    const Round& round = rounds_[session];
    const uint64_t waited_us = parts_.now_us() - round.requested_us;
    const std::string text =
        fmt::format("rank {} waits for afdd to make {} + {} bytes, asked for {} times in {} ms",
                    parts_.receiver->rank(),
                    round.sizes.receive_bytes,
                    round.sizes.return_bytes,
                    round.num_requests,
                    waited_us / 1000);
    if (waited_us >= parts_.answer_timeout_us) {
        refuse(session, deadline_exceeded("{}; the batch goes through the windows", with(text)));
        return;
    }
    if (round.num_requests > 0) {
        log::info("two-phase round {} of session {}: {}", round.number, session, text);
    }
    request(session);
}

void TwoPhaseExperts::on_segment(WorkerCommand& command) {
    if (command.session >= rounds_.size()) return;
    Round& round = rounds_[command.session];
    // An answer to a round that was closed in the meantime, or to a predecessor.
    if (round.state != State::kRequested || round.number != command.round) return;
    if (command.code != Code::kOk) {
        refuse(command.session, {command.code, "afdd made no memory for the round"});
        return;
    }
    AFD_CRASH_POINT("grant.memory_made");
    round.state = State::kGranted;
    if (parts_.memory != nullptr && command.segments != nullptr) {
        parts_.memory->hand_over(
            parts_.receiver->rank(), command.session, command.round, std::move(*command.segments));
    }
    const auto opened = parts_.receiver->open(command.session, round.number, round.sizes);
    if (!opened.ok()) {
        refuse(command.session, opened.error());
        return;
    }
    round.memory = opened.value();
    if (const Result<> granted = grant(command.session); !granted.ok()) {
        refuse(command.session, granted.error());
    }
}

// Where the rows of each expert go; for a successor also how far its predecessor came.
Result<> TwoPhaseExperts::grant(uint32_t session) {
    Round& round = rounds_[session];
    const size_t num_experts = round.offer.counts.size();
    // Derived from the offer and not read back from the own words: a successor computes the same
    // numbers.
    round.grants.resize(num_experts);
    round.done.assign(num_experts, 0);
    int64_t total = 0;
    const auto offsets = ops::two_phase_offsets(
        {.send_counts = ops::make_tensor<const void>(
             round.offer.counts.data(), ops::DType::kInt32, {1, 1, num_experts}),
         .base =
             ops::make_tensor<void>(round.grants.data(), ops::DType::kInt64, {1, 1, num_experts}),
         .recv_total = ops::make_tensor<void>(&total, ops::DType::kInt64, {1})},
        {},
        *parts_.parallel);
    AFD_ASSERT(offsets.ok(), "%s", offsets.error().message.c_str());
    if (parts_.receiver->granted(session, round.number) == 0) {
        round.num_returned = 0;
        parts_.receiver->grant(session, round.number, round.grants);
        return {};
    }
    AFD_ASSIGN(round.num_returned, parts_.receiver->copy_returned(session, round.offer.num_blocks));
    for (uint32_t block = 0; block < round.num_returned; ++block) {
        AFD_TRY(take_counts(round, block));
        for (size_t e = 0; e < num_experts; ++e) round.done[e] += counts_[e];
    }
    return {};
}

void TwoPhaseExperts::refuse(uint32_t session, const Error& error) {
    Round& round = rounds_[session];
    // afdd says why it made no memory; that it said nothing only this side knows.
    const bool is_silence = error.code == Code::kDeadlineExceeded;
    log::line(is_silence ? log::Level::kWarn : log::Level::kDebug,
              "two-phase round {} of session {}: {}",
              round.number,
              session,
              error.message);
    round.state = State::kRefused;
    parts_.receiver->refuse(session, round.number);
}

void TwoPhaseExperts::end(uint32_t session) {
    Round& round = rounds_[session];
    AFD_CRASH_POINT("close.seen");
    parts_.receiver->close(session, round.number);
    release(session, round.number);
    AFD_CRASH_POINT("close.released");
    parts_.receiver->acknowledge(session, round.number);
    round.state = State::kIdle;
}

// A release that finds the ring full is made up for by the next request of the session.
void TwoPhaseExperts::release(uint32_t session, int32_t number) {
    WorkerEvent event{.kind = WorkerEvent::Kind::kSegmentRelease};
    event.segment = {session, number, 0, 0};
    parts_.port->push(std::move(event));
    parts_.port->flush();
}

bool TwoPhaseExperts::has_block(uint32_t session, Order order) const {
    const uint32_t num_blocks = rounds_[session].offer.num_blocks;
    const uint32_t returned = rounds_[session].num_returned;
    if (parts_.receiver->sent(session, num_blocks, order) <= returned) return false;
    const uint32_t combined = parts_.receiver->combined(session, num_blocks, order);
    // Block b lies where block b − 2 lay, so that one must have been used.
    return returned < combined + schedule::kTwoPhaseReturnBlocks;
}

// Copies the block's counts and compares them with what was offered.
Result<> TwoPhaseExperts::take_counts(Round& round, uint32_t block) {
    std::memcpy(counts_.data(),
                round.memory.received + size_t{block} * counts_.size() * sizeof(int32_t),
                counts_.size() * sizeof(int32_t));
    uint64_t num_rows = 0;
    for (size_t e = 0; e < counts_.size(); ++e) {
        const int64_t left = round.offer.counts[e] - round.done[e];
        // `left` is what the offer has room for, so the sum of all blocks never leaves the segment.
        if (counts_[e] < 0 || counts_[e] > left) {
            return Error{Code::kInvalidArgument,
                         fmt::format("block {} has {} rows for local expert {}; {} of its {} are "
                                     "left",
                                     block,
                                     counts_[e],
                                     e,
                                     left,
                                     round.offer.counts[e])};
        }
        num_rows += static_cast<uint32_t>(counts_[e]);
    }
    if (num_rows <= round.offer.block_rows_max) return {};
    return Error{Code::kInvalidArgument,
                 fmt::format("block {} has {} rows; block_rows_max was {}",
                             block,
                             num_rows,
                             round.offer.block_rows_max)};
}

Result<> TwoPhaseExperts::run_block(uint32_t session) {
    Round& round = rounds_[session];
    const uint32_t block = round.num_returned;
    AFD_TRY(take_counts(round, block));
    // Only now (R11): counts that were refused are the session's mistake and no execution.
    parts_.receiver->start_block(session, round.number);
    const size_t num_returned = run_experts(round, block);
    AFD_CRASH_POINT("block.computed");
    parts_.receiver->put(
        session,
        schedule::two_phase_return_offset(block, round.offer.block_rows_max, row_bytes_.returned),
        (parts_.row_checksums ? round.offer.block_rows_max : num_returned) * row_bytes_.returned);
    for (size_t e = 0; e < counts_.size(); ++e) {
        round.done[e] += counts_[e];
        num_rows_ += static_cast<uint32_t>(counts_[e]);
    }
    round.num_returned = block + 1;
    parts_.receiver->publish_returned(session, round.num_returned);
    return {};
}

// Copies the rows, which lie together, and looks at each as it was copied.
const std::byte* TwoPhaseExperts::unseal_rows(const std::byte* sealed, size_t num_rows) {
    const size_t sent_bytes = row_bytes_.sent - schedule::kRowSealBytes;
    size_t num_corrupted = 0;
    for (size_t i = 0; i < num_rows; ++i) {
        const std::byte* row = sealed + i * row_bytes_.sent;
        std::byte* const copy = &unsealed_[i * sent_bytes];
        std::memcpy(copy, row, sent_bytes);
        const bool is_intact = schedule::look_at_row({copy, sent_bytes}, row + sent_bytes) ==
                               schedule::RowState::kIntact;
        intact_[i] = is_intact ? 1 : 0;
        num_corrupted += is_intact ? 0 : 1;
    }
    if (num_corrupted > 0) warn_of_corrupted(num_corrupted, num_rows);
    return unsealed_.data();
}

void TwoPhaseExperts::warn_of_corrupted(size_t num_corrupted, size_t num_rows) {
    const auto num_unsaid = corruptions_.take(parts_.now_us() / 1000);
    if (!num_unsaid) return;
    log::warn("{} of {} rows of a two-phase block were corrupted on their way here{}",
              num_corrupted,
              num_rows,
              LogLimit::more(*num_unsaid));
}

void TwoPhaseExperts::seal_results(const std::byte* rows, size_t num_rows, std::byte* seals) const {
    const size_t value_bytes = parts_.hidden * sizeof(ops::Bf16);
    for (size_t i = 0; i < num_rows; ++i) {
        schedule::seal_row({rows + i * value_bytes, value_bytes},
                           seals + i * schedule::kRowSealBytes,
                           intact_[i] != 0);
    }
}

// The rows of an expert lie together, those of the block behind those of the blocks before. Rows
// of several experts that follow each other go through the experts in one call. Returns their
// number.
size_t TwoPhaseExperts::run_experts(const Round& round, uint32_t block) {
    const size_t hidden = parts_.hidden;
    const size_t value_bytes = hidden * sizeof(ops::Bf16);
    const size_t first_key = static_cast<size_t>(round.offer.layer_id) *
                             parts_.placement->num_local_experts_per_layer(parts_.receiver->rank());
    const std::byte* rows = round.memory.received +
                            schedule::two_phase_rows_offset(round.offer.num_blocks, counts_.size());
    std::byte* results =
        round.memory.sent +
        schedule::two_phase_return_offset(block, round.offer.block_rows_max, row_bytes_.returned);
    int64_t first_row = 0;  // Of the call, as is
    int64_t num_rows = 0;
    size_t num_returned = 0;
    const auto call = [&] {
        if (num_rows == 0) return;
        const auto count = static_cast<size_t>(num_rows);
        const std::byte* x = rows + static_cast<size_t>(first_row) * row_bytes_.sent;
        if (parts_.row_checksums) x = unseal_rows(x, count);
        std::byte* const made = results + num_returned * value_bytes;
        void* y = made;
        const auto computed = parts_.experts->apply(
            ops::GroupedActivations{.x = arrived_.decode(x, count, *parts_.parallel),
                                    .groups = groups_},
            ops::make_rows(static_cast<ops::Bf16*>(y), count, hidden),
            {workspace13_.bytes(), workspace2_.bytes(), parts_.parallel, parts_.profile});
        // Experts that this rank does not hold were refused with the offer.
        AFD_ASSERT(computed.ok(), "%s", computed.error().message.c_str());
        if (parts_.row_checksums) {
            seal_results(made,
                         count,
                         results + two_phase_seals_offset(round.offer.block_rows_max, hidden) +
                             num_returned * schedule::kRowSealBytes);
        }
        num_returned += count;
        num_rows = 0;
        groups_.clear();
    };
    for (size_t e = 0; e < counts_.size(); ++e) {
        int64_t row = round.grants[e] + round.done[e];
        for (int64_t left = counts_[e]; left > 0;) {
            const int64_t room = static_cast<int64_t>(kRowsPerCall) - num_rows;
            if (row != first_row + num_rows || room == 0) {
                call();
                first_row = row;
                continue;
            }
            const int64_t taken = std::min(left, room);
            groups_.push_back({static_cast<int64_t>(first_key + e), taken});
            num_rows += taken;
            row += taken;
            left -= taken;
        }
    }
    call();
    return num_returned;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/round_memory.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/program/logging.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// A message's own: the memory may be given back before it has left.
Result<std::vector<UniqueFd>> copies(const TwoPhaseSegments::Descriptors& of) {
    std::vector<UniqueFd> fds;
    for (const int fd : {of.receive, of.results}) {
        if (fd < 0) continue;
        fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
        if (fds.back().valid()) continue;
        return resource_exhausted("the memory of a two-phase round cannot be handed over: {}",
                                  with(std::strerror(errno)));
    }
    return fds;
}

}  // namespace

Result<TwoPhaseSegments::Descriptors> RoundMemory::acquire(
    const WorkerSlot& slot, const control::SegmentRequest& request) const {
    if (slot.role() != control::FFN) {
        return failed_precondition(
            "it asked for the memory of round {} with session {}; only FFN workers may",
            with(request.round(), request.session()));
    }
    if (!source_.acquire) {
        return failed_precondition(
            "it asked for the memory of round {} with session {}; this instance makes none",
            with(request.round(), request.session()));
    }
    return source_.acquire(slot.index(), request);
}

Result<> RoundMemory::hand_over(WorkerSlot& rank, const control::SegmentRequest& request) const {
    AFD_ASSIGN(const TwoPhaseSegments::Descriptors made, acquire(rank, request));
    control::SupervisorMessage message;
    control::SegmentAnswer& segment = *message.mutable_segment();
    segment.set_rank(rank.index());
    segment.set_session(request.session());
    segment.set_round(request.round());
    segment.set_receive_bytes(made.receive < 0 ? 0 : request.receive_bytes());
    segment.set_return_bytes(made.results < 0 ? 0 : request.return_bytes());
    const bool has_memory = made.receive >= 0 || made.results >= 0;
    if (has_memory && request.session() < sessions_.size()) {
        WorkerSlot& session = *sessions_[request.session()];
        // One that starts has no round that it would send rows to (R10).
        const bool is_ready = session.state() == WorkerSlot::State::kReady;
        if (is_ready) {
            AFD_ASSIGN(std::vector<UniqueFd> fds, copies(made));
            AFD_TRY(session.send(message, std::move(fds)));
        }
    }
    AFD_ASSIGN(std::vector<UniqueFd> fds, copies(made));
    return rank.answer(message, std::move(fds));
}

void RoundMemory::on_request(WorkerSlot& slot, const control::SegmentRequest& request) {
    const Result<> done = hand_over(slot, request);
    if (done.ok()) return;
    // A worker may ask as often as it likes.
    if (const auto num_unsaid = refusals_.take(loop_.now_ms())) {
        log::warn("{}: {}; the batch goes through the windows{}",
                  slot.name(),
                  done.error().message,
                  LogLimit::more(*num_unsaid));
    }
    control::SupervisorMessage refusal;
    refusal.mutable_segment()->set_session(request.session());
    refusal.mutable_segment()->set_round(request.round());
    refusal.mutable_segment()->set_code(static_cast<uint32_t>(done.error().code));
    refusal.mutable_segment()->set_message(done.error().message);
    slot.answer(refusal);
}

void RoundMemory::on_release(const WorkerSlot& slot, const control::SegmentRelease& release) const {
    if (slot.role() == control::FFN && source_.release) source_.release(slot.index(), release);
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// RoundMemory: hands the memory of a two-phase round to the two workers that share it, as
// descriptors on their control channels: to the session first, and then to the rank that asked. So
// what the rank grants finds the memory there, or soon (docs/protocol/control.pml, NO_SESSION).
// Where workers share no windows the rank hears alone, and without descriptors: it may take that
// much of its own.
//
// Whoever leaves too many descriptors unread gets no further ones (WorkerWire::kUnreadFdsMax), and
// the round goes through the windows, as it does whenever there is no memory. Who leaves too many
// answers of any kind unread is killed (kUnreadAnswersMax).

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/loop/event_loop.h"
#include "daemon/program/log_limit.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "daemon/supervisor/worker_slot.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class RoundMemory {
  public:
    // Who makes it. Without the first, requests are refused.
    struct Source {
        std::function<Result<TwoPhaseSegments::Descriptors>(uint32_t rank,
                                                            const control::SegmentRequest&)>
            acquire;
        std::function<void(uint32_t rank, const control::SegmentRelease&)> release;
    };
    using Slots = std::vector<std::unique_ptr<WorkerSlot>>;

    // `sessions`: the attention workers. All outlive the object.
    RoundMemory(EventLoop& loop, const Source& source, const Slots& sessions)
        : loop_(loop), source_(source), sessions_(sessions) {}

    // Every request gets an answer: a rank that heard nothing would hold up its session.
    void on_request(WorkerSlot& slot, const control::SegmentRequest& request);
    void on_release(const WorkerSlot& slot, const control::SegmentRelease& release) const;

  private:
    Result<TwoPhaseSegments::Descriptors> acquire(const WorkerSlot& slot,
                                                  const control::SegmentRequest& request) const;
    Result<> hand_over(WorkerSlot& rank, const control::SegmentRequest& request) const;

    EventLoop& loop_;
    const Source& source_;
    const Slots& sessions_;
    LogLimit refusals_;
};

}  // namespace afd::daemon

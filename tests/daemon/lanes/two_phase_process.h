// SPDX-License-Identifier: Apache-2.0
#pragma once

// An FFN worker's two-phase part as a process of its own, and what afdd does for it, over segments
// in /dev/shm: for tests that fork.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "daemon/config/instance_geometry.h"
#include "daemon/ffn/two_phase_experts.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/shared_memory/attach.h"

namespace afd::daemon {

// A worker's pipes to afdd. They end with the process: a successor gets new ones.
struct RankPipes {
    std::array<int, 2> requests{-1, -1};
    std::array<int, 2> answers{-1, -1};

    bool open() { return ::pipe(requests.data()) == 0 && ::pipe(answers.data()) == 0; }
    void close() {
        for (const int fd : {requests[0], requests[1], answers[0], answers[1]}) ::close(fd);
    }
};

struct RankProcess {
    schedule::AttachConfig config;
    const schedule::ExpertPlacement* placement = nullptr;
    uint32_t rank = 0;
    size_t hidden = 0;
    schedule::TwoPhaseCall call;  // What the sessions offer at most.
    ops::Experts* experts = nullptr;
    RankPipes pipes;
    // Called where there is nothing to do, with what says whether there is, and what is rung then.
    std::function<void(const TwoPhaseExperts&, schedule::Doorbell)> wait;
    // Called after every step.
    std::function<void()> stepped = [] {};
};

// A worker's life, until it is killed.
[[noreturn]] inline void run_rank_process(const RankProcess& of) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ops::SerialParallel serial;
    WorkerPort port(16, 16, -1);
    const auto windows = schedule::attach_returns(of.config, of.rank).value();
    const auto transport = windows->two_phase().value();
    schedule::TwoPhaseReceiver receiver(
        *transport,
        *of.placement,
        {.num_experts = of.placement->num_local_experts_max(),
         .row_bytes = two_phase_row_bytes(schedule::RowDtype::kBf16, of.hidden),
         .call = of.call});
    TwoPhaseExperts part({.receiver = &receiver,
                          .placement = of.placement,
                          .experts = of.experts,
                          .hidden = of.hidden,
                          .parallel = &serial,
                          .port = &port});
    for (;;) {
        part.advance() ? of.stepped() : of.wait(part, windows->doorbell());
        WorkerEvent event;
        while (port.pop_event(event)) {
            if (::write(of.pipes.requests[1], &event, sizeof(event)) != sizeof(event)) {
                std::_Exit(2);
            }
            if (event.kind != WorkerEvent::Kind::kSegmentRequest) continue;
            WorkerCommand answer;
            if (::read(of.pipes.answers[0], &answer, sizeof(answer)) != sizeof(answer)) {
                std::_Exit(3);
            }
            part.on_segment(answer);
        }
    }
}

// What afdd does with a worker's event. Returns whether memory was given back.
inline bool serve_rank(TwoPhaseSegments& segments,
                       uint32_t rank,
                       const WorkerEvent& event,
                       const RankPipes& pipes) {
    const SegmentRound& round = event.segment;
    if (event.kind == WorkerEvent::Kind::kSegmentRelease) {
        segments.release(rank, round.session, round.round);
        return true;
    }
    const auto made = segments.acquire(
        rank, round.session, round.round, {round.receive_bytes, round.return_bytes});
    WorkerCommand answer{.kind = WorkerCommand::Kind::kSegment};
    answer.session = round.session;
    answer.round = round.round;
    answer.code = made.ok() ? Code::kOk : made.error().code;
    // A worker that was killed meanwhile does not read it.
    EXPECT_EQ(::write(pipes.answers[1], &answer, sizeof(answer)),
              static_cast<ssize_t>(sizeof(answer)));
    return false;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseExperts: an FFN worker's part in two-phase rounds (schedule/layout/two_phase_control.h).
// For each session at most one round:
//
//   idle --offer--> requested --afdd made the segments--> granted --closed--> idle
//                       '--- no memory or answer, bad bytes --> refused --closed--^
//
// In `requested` it asks again from time to time, and refuses the round when no answer comes before
// a deadline: then the batch goes through the windows, as after any refusal. A round that is closed
// meanwhile ends without the answer, which then finds no round to belong to.
//
// In `granted` it runs the experts on each block as its rows arrive, and returns the results. It
// advances by one block at a time, so that windows are served in between. A successor asks afdd
// again for the segments of an open round, finds the rows untouched, and goes on with the first
// block that was not returned.
//
// Data thread only. A round allocates and maps memory: it is not the steady state.

#include <cstdint>
#include <vector>

#include "daemon/control/worker_port.h"
#include "daemon/program/log_limit.h"
#include "ops/fused_moe/experts.h"
#include "ops/fused_moe/sent_rows.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/shared_memory/two_phase_memory.h"
#include "schedule/two_phase/two_phase_receiver.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

class TwoPhaseExperts {
  public:
    // All outlive the object.
    struct Parts {
        schedule::TwoPhaseReceiver* receiver = nullptr;
        // Where the receiver's transport finds what afdd hands over; null: it needs nothing.
        schedule::HandedTwoPhaseMemory* memory = nullptr;
        const schedule::ExpertPlacement* placement = nullptr;
        // Key = layer_id * num_local_experts_per_layer(rank) + local id.
        // REQUIRES: takes kGrouped.
        ops::Experts* experts = nullptr;
        size_t hidden = 0;
        schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;  // How rows arrive.
        bool row_checksums = false;  // Rows arrive sealed, and their results are.
        ops::Parallel* parallel = nullptr;
        WorkerPort* port = nullptr;
        ops::StageProfile* profile = nullptr;  // Optional: time per stage on this side.
        // A request without an answer is made again after the one, and given up after the other.
        uint64_t ask_again_us = 1'000'000;
        uint64_t answer_timeout_us = 60'000'000;
        uint64_t (*now_us)() = schedule::steady_now_us;
    };

    // Gives back what a predecessor acknowledged and may not have given back.
    explicit TwoPhaseExperts(const Parts& parts);

    // afdd's answer to a request, WorkerCommand::Kind::kSegment: takes what it hands over.
    void on_segment(WorkerCommand& command);

    // Does what can be done without waiting, with at most one block of one session.
    // Returns whether there was anything.
    bool advance();

    // Whether advance() would do something (R9).
    bool has_work(schedule::Order order) const;
    // When it will by the clock alone, which rings nobody; UINT64_MAX: never.
    uint64_t due_us() const;

    // Rows computed since the start.
    uint64_t num_rows() const { return num_rows_; }

  private:
    enum class State { kIdle, kRequested, kGranted, kRefused };
    struct Round {
        State state = State::kIdle;
        int32_t number = 0;
        schedule::TwoPhaseOffer offer;
        schedule::TwoPhaseSizes sizes;
        std::vector<int64_t> grants;  // [num_experts]: first row of each expert.
        std::vector<int64_t> done;    // [num_experts]: rows of the blocks before.
        uint32_t num_returned = 0;    // Blocks. Not read back from the shared word.
        schedule::TwoPhaseRoundMemory memory;
        // About `requested`: when afdd was asked first, how often, and when to look again.
        uint64_t requested_us = 0;
        uint32_t num_requests = 0;
        uint64_t due_us = 0;
    };

    bool step(uint32_t session);
    bool open(uint32_t session, int32_t number);
    void request(uint32_t session);
    void request_again(uint32_t session);
    Result<> grant(uint32_t session);
    void refuse(uint32_t session, const Error& error);
    void end(uint32_t session);
    void release(uint32_t session, int32_t number);

    bool has_block(uint32_t session, schedule::Order order) const;
    Result<> take_counts(Round& round, uint32_t block);
    Result<> run_block(uint32_t session);
    size_t run_experts(const Round& round, uint32_t block);
    const std::byte* unseal_rows(const std::byte* sealed, size_t num_rows);
    void warn_of_corrupted(size_t num_corrupted, size_t num_rows);
    void seal_results(const std::byte* rows, size_t num_rows, std::byte* seals) const;

    Parts parts_;
    const schedule::TwoPhaseRowBytes row_bytes_;
    uint32_t next_session_ = 0;
    uint64_t num_rows_ = 0;
    std::vector<Round> rounds_;             // [A]
    std::vector<int32_t> counts_;           // [num_experts], of a block.
    std::vector<ops::ExpertGroup> groups_;  // Capacity num_experts.
    // With row_checksums: the rows of a call without their seals, and whether each was intact.
    std::vector<std::byte> unsealed_;
    std::vector<uint8_t> intact_;
    LogLimit corruptions_;
    ops::ArrivedRows arrived_;
    ops::Workspace workspace13_;
    ops::Workspace workspace2_;
};

}  // namespace afd::daemon

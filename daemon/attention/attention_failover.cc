// SPDX-License-Identifier: Apache-2.0

// How the attention loop goes on without an FFN worker (R12): rounds that a lost rank has are
// voided by afdd, or fenced off between machines, and their rows go to replicas.

#include "daemon/attention/attention_loop.h"
#include "daemon/program/logging.h"
#include "proto/crash_point.h"

namespace afd::daemon {

void AttentionLoop::on_rank_state(uint32_t rank, bool is_lost) {
    if (parts_.lost_ranks == nullptr) return;
    parts_.lost_ranks->set(rank, is_lost);
    // A round in two phases has no rank to spare: it ends when all that it concerns have ended it.
    batcher_.use_long_lane(!parts_.lost_ranks->can_do_without());
    AFD_CRASH_POINT("void.rank_state_heard");
}

void AttentionLoop::on_void_answer(const WorkerCommand& answer) {
    if (answer.micro_batch >= micro_batches_.size()) return;
    micro_batches_[answer.micro_batch].lane().answer_void({answer.rank, answer.round},
                                                          answer.is_granted);
    AFD_CRASH_POINT("void.answer_heard");
}

// Also for lanes that nobody wants now: their next rows would wait.
bool AttentionLoop::let_go_of_lost_ranks() {
    if (parts_.lost_ranks == nullptr || !parts_.lost_ranks->can_do_without()) return false;
    bool any = false;
    for (MicroBatch& micro_batch : micro_batches_) {
        // These rows have lost a rank before. They may be what both ranks died of, and R11 counts
        // the deaths of one rank only: they are not let go of.
        const bool is_suspect =
            micro_batch.has_lost_rank && micro_batch.stage == MicroBatch::Stage::kExperts;
        if (is_suspect) continue;
        any |= micro_batch.lane().fence_lost_ranks();
        const auto round = micro_batch.lane().voidable();
        // Without room for the question it is asked in a later turn.
        if (!round || !has_event_room()) continue;
        WorkerEvent event{.kind = WorkerEvent::Kind::kVoidRequest};
        event.voidable = {round->rank, micro_batch.index(), round->round};
        parts_.port->push(std::move(event));
        micro_batch.lane().ask_void(*round);
        any = true;
        AFD_CRASH_POINT("void.asked");
    }
    return any;
}

// Rows that a lost rank had go to replicas: in a round like any other, as soon as the other ranks
// have let go of this one (R4). Those of a long prompt go through the windows instead.
bool AttentionLoop::leave_lost_rank(MicroBatch& micro_batch) {
    using Stage = MicroBatch::Stage;
    const bool is_long = micro_batch.lane().traits().rows == LaneRows::kLongPrompts;
    const bool may_leave =
        micro_batch.stage == Stage::kExperts || (is_long && micro_batch.stage == Stage::kDispatch);
    if (!may_leave || !micro_batch.lane().is_voided()) return false;
    end_wait(micro_batch);
    micro_batch.lane().cancel();
    if (is_long) {
        give_back(micro_batch);
    } else {
        probe_.left();
        micro_batch.has_lost_rank = true;
        micro_batch.stage = Stage::kDispatch;
    }
    AFD_CRASH_POINT("void.round_left");
    return true;
}

}  // namespace afd::daemon

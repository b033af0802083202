// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionLoop: the data thread of an attention worker. It carries micro-batches through the
// layers, each over a lane of its own to the experts and back (daemon/lanes/expert_lane.h), and
// talks to the control thread through its port. Several micro-batches are with the experts while
// one has its attention; where the experts are, only the lanes know.
//
// Never blocks on the control thread and never on a peer beyond a deadline (R7). Nothing allocates
// in the steady state. The ring of events always has room for what was promised: an end for each
// running sequence, and what the rows in flight can yield. Nothing else may take these places, so
// rows are scheduled, sequences admitted and waits reported only where room is left beyond them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/attention/attention_probe.h"
#include "daemon/attention/batcher.h"
#include "daemon/attention/micro_batch.h"
#include "daemon/attention/sequence_table.h"
#include "daemon/attention/token_emitter.h"
#include "daemon/control/worker_port.h"
#include "daemon/lanes/expert_lane.h"
#include "daemon/metrics/metrics.h"
#include "daemon/program/log_limit.h"
#include "model/attention/kv_cache.h"
#include "model/decoder/attention_half.h"
#include "model/decoder/embedding_head.h"
#include "ops/tensor/parallel.h"
#include "schedule/context/context_words.h"
#include "schedule/context/heartbeat.h"
#include "schedule/dispatch/lost_ranks.h"
#include "schedule/wait/adaptive_wait.h"
#include "schedule/wait/lived_time.h"

namespace afd::daemon {

class AttentionLoop {
  public:
    struct Settings {
        uint32_t session = 0;
        uint32_t micro_batch_size = 1;       // BS: rows that attention takes at once.
        uint32_t sequences_max = 1;          // Running at once.
        uint32_t long_prompt_threshold = 0;  // Longer prompts take the lane of long prompts.
        uint64_t wait_report_us = 0;         // First report of a wait that lasts (R7).
        uint64_t round_timeout_us = 0;       // End of the requests that wait for a round (R7).
        // Multiply-adds for each thread of the scores and weighted sums that attention computes
        // before the loop takes commands again, but for a single row: 5 to 10 ms with AVX-512 BF16,
        // 25 with AVX2. The matrices around attention are read anew for every tile of rows, so it
        // should not be less.
        size_t tile_products = size_t{1} << 29;
        bool has_prefix_cache = false;  // Sequences that begin alike share blocks.
        bool row_checksums = false;     // Rows that were corrupted are sent again.
    };

    // What the loop works with; all outlive it.
    struct Parts {
        const model::AttentionHalf* attention = nullptr;
        const model::EmbeddingHead* head = nullptr;
        const model::KvCache* cache = nullptr;
        // One micro-batch each, numbered in this order. Lanes that take any rows have BS of them;
        // at most one lane takes long prompts.
        std::span<const std::unique_ptr<ExpertLane>> lanes;
        ops::Parallel* parallel = nullptr;
        WorkerPort* port = nullptr;
        schedule::Heartbeat heartbeat;
        Metrics metrics;
        schedule::ContextWords words = {};  // Of the worker's context, for observers.
        // Ranks that the lanes avoid; null: no lane has ranks.
        schedule::LostRanks* lost_ranks = nullptr;
        // Of the deadlines of waits.
        uint64_t (*now_us)() = schedule::steady_now_us;
    };

    AttentionLoop(const Settings& settings, const Parts& parts, schedule::AdaptiveWait wait);

    // Returns after kShutdown, and when run_flag is 0 before a turn.
    void run();

  private:
    bool take_commands();
    bool admit_held();
    bool has_event_room() const;
    bool make_room();
    bool advance_all();
    bool advance(MicroBatch& micro_batch);
    bool drop_if_unwanted(MicroBatch& micro_batch);
    bool advance_experts(MicroBatch& micro_batch);
    bool fill(MicroBatch& micro_batch);
    bool is_in_order(const MicroBatch& micro_batch) const;
    void run_attention(MicroBatch& micro_batch);
    void dispatch(MicroBatch& micro_batch);
    void combine(MicroBatch& micro_batch);
    bool send_again(MicroBatch& micro_batch, const Error& error);
    void warn(LogLimit& limit, const std::string& text) const;
    static void end_poisoned(const MicroBatch& micro_batch, const float* topk_weights);
    void run_head(MicroBatch& micro_batch);
    void release(const BatchPiece& piece);
    void finish_step(MicroBatch& micro_batch);
    void fail(MicroBatch& micro_batch, Code code, const char* text);
    void give_back(MicroBatch& micro_batch);
    bool end_finished_sequences();
    void end_sequence(Sequence& sequence);

    // In attention_failover.cc.
    void on_rank_state(uint32_t rank, bool is_lost);
    void on_void_answer(const WorkerCommand& answer);
    bool let_go_of_lost_ranks();
    bool leave_lost_rank(MicroBatch& micro_batch);

    // In attention_waits.cc.
    void wait_for_peers();
    bool may_progress(schedule::Order order) const;
    void watch_waits(uint64_t now_us);
    void watch_wait(MicroBatch& micro_batch, uint64_t now_us);
    void watch_blocked(Sequence& sequence, uint64_t now_us);
    const MicroBatch* blocked_lane_of(const Sequence& sequence) const;
    bool is_awaited(const MicroBatch& micro_batch) const;
    bool is_awaited_by(const MicroBatch& micro_batch, const Sequence& sequence) const;
    bool is_nobody_computing() const;
    void report_wait(MicroBatch& micro_batch, uint64_t now_us);
    bool push_wait(WorkerEvent event);
    void end_wait(MicroBatch& micro_batch);
    void end_wait_unless_blocked(MicroBatch& micro_batch);
    std::string describe(const MicroBatch& micro_batch, uint64_t now_us) const;
    std::string describe(const LaneWait& wait) const;

    // So often an idle loop looks around, and a turn adds no more to the time that is waited.
    static constexpr uint64_t kIdleTickUs = 1'000'000;

    const Settings settings_;
    Parts parts_;
    schedule::AdaptiveWait wait_;
    schedule::LivedTime lived_;   // What waits are measured in.
    bool expects_answer_ = true;  // False after a tick without one: the next wait does not spin.
    AttentionProbe probe_;
    SequenceTable sequences_;
    Batcher batcher_;
    const size_t tile_positions_;  // That the rows of one tile attend to, but for a single row.
    TokenEmitter emitter_;
    model::AttentionWorkspace workspace_;
    std::vector<MicroBatch> micro_batches_;  // One for each lane.
    size_t events_reserved_ = 0;             // By the micro-batches in flight.
    // An admission that waits for room for its end; no command is taken meanwhile. Or null.
    std::unique_ptr<SequenceRequest> held_;
    bool is_stopping_ = false;
    LogLimit corruptions_;  // Of rows that are sent again,
    LogLimit data_losses_;  // and of those that are not.
};

}  // namespace afd::daemon

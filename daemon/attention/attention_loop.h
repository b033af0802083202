// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionLoop: the data thread of an attention worker. It carries micro-batches through the
// layers, keeps up to M of them in flight with the experts, and talks to the control thread
// through its port. The colocated mode is the same loop with a local composition of the experts.
// Long prompts take a lane of their own, which dispatches in two phases; between its tiles and
// blocks the other lanes go on.
//
// Never blocks on the control thread (room for events is reserved before rows are scheduled) and
// never on a peer beyond a deadline (R7). Nothing allocates in the steady state.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/attention/attention_probe.h"
#include "daemon/attention/batcher.h"
#include "daemon/attention/micro_batch.h"
#include "daemon/attention/sequence_table.h"
#include "daemon/attention/token_emitter.h"
#include "daemon/attention/two_phase_prepare_finalize.h"
#include "daemon/attention/window_prepare_finalize.h"
#include "daemon/metrics/metrics.h"
#include "daemon/worker/worker_port.h"
#include "model/decoder/attention_block.h"
#include "model/decoder/embedding_head.h"
#include "model/decoder/kv_cache.h"
#include "ops/fused_moe/fused_moe.h"
#include "schedule/adaptive_wait.h"
#include "schedule/heartbeat.h"
#include "schedule/transport.h"

namespace afd::daemon {

class AttentionLoop {
  public:
    struct Settings {
        uint32_t session = 0;
        uint32_t num_micro_batches = 1;    // M
        uint32_t micro_batch_size = 1;     // BS
        uint32_t sequences_max = 1;        // Running at once.
        uint32_t prefill_tokens_max = 0;   // Rows of the two-phase lane; 0: there is none.
        uint32_t two_phase_threshold = 0;  // Longer prompts take it.
        uint64_t wait_report_us = 0;       // First report of a wait that lasts (R7).
        uint64_t round_timeout_us = 0;     // End of the requests that wait for a round (R7).
    };

    // What the loop works with; all outlive it.
    struct Parts {
        const model::AttentionBlock* attention = nullptr;
        const model::EmbeddingHead* head = nullptr;
        const model::KvCache* cache = nullptr;
        ops::FusedMoe* moe = nullptr;
        ops::Parallel* parallel = nullptr;
        WorkerPort* port = nullptr;
        schedule::Heartbeat heartbeat;
        Metrics metrics;
        // Disaggregated only; null when the experts are local.
        WindowPrepareFinalize* windows = nullptr;
        schedule::DispatchTransport* transport = nullptr;
        // With a two-phase lane only: its part, and the layer composed of it.
        TwoPhasePrepareFinalize* two_phase = nullptr;
        ops::FusedMoe* two_phase_moe = nullptr;
    };

    AttentionLoop(const Settings& settings, const Parts& parts, schedule::AdaptiveWait wait);

    // Returns after kShutdown.
    void run();

  private:
    bool take_commands();
    void admit(SequenceRequest* request);
    bool advance_all();
    bool advance(MicroBatch& micro_batch);
    bool advance_two_phase(MicroBatch& micro_batch);
    bool advance_shared(MicroBatch& micro_batch);
    bool fill(MicroBatch& micro_batch);
    bool is_in_order(const MicroBatch& micro_batch) const;
    void run_attention(MicroBatch& micro_batch);
    void dispatch(MicroBatch& micro_batch);
    int32_t round_of(const MicroBatch& micro_batch) const;
    void combine(MicroBatch& micro_batch);
    static void end_poisoned(const MicroBatch& micro_batch, const float* topk_weights);
    void finish_step(MicroBatch& micro_batch);
    void end_finished_sequences();
    void end_sequence(Sequence& sequence);
    void fail(MicroBatch& micro_batch, Code code, const char* text);
    void give_back(MicroBatch& micro_batch);

    bool is_two_phase(const MicroBatch& micro_batch) const {
        return micro_batch.index() == settings_.num_micro_batches;
    }
    // The composition that the lane goes through, and its slot there.
    ops::FusedMoe& moe_of(const MicroBatch& micro_batch) const {
        return is_two_phase(micro_batch) ? *parts_.two_phase_moe : *parts_.moe;
    }
    uint32_t slot_of(const MicroBatch& micro_batch) const {
        return is_two_phase(micro_batch) ? 0 : micro_batch.index();
    }
    bool slot_free(const MicroBatch& micro_batch) const {
        return moe_of(micro_batch).slot_free(slot_of(micro_batch));
    }

    // In attention_waits.cc.
    void wait_for_peers();
    bool may_progress(schedule::Order order);
    bool is_answered(const MicroBatch& micro_batch, schedule::Order order) const;
    std::optional<schedule::WaitInfo> wait_info(const MicroBatch& micro_batch) const;
    void watch_waits(uint64_t now_us);
    void report_wait(MicroBatch& micro_batch, uint64_t now_us);
    void end_wait(MicroBatch& micro_batch);
    std::string describe(const MicroBatch& micro_batch, uint64_t now_us);

    const Settings settings_;
    Parts parts_;
    schedule::AdaptiveWait wait_;
    bool expects_answer_ = true;  // False after a tick without one: the next wait does not spin.
    AttentionProbe probe_;
    SequenceTable sequences_;
    Batcher batcher_;
    TokenEmitter emitter_;
    model::AttentionWorkspace workspace_;
    std::vector<MicroBatch> micro_batches_;  // M, and behind them the two-phase lane.
    size_t events_reserved_ = 0;             // By the micro-batches in flight.
    bool is_stopping_ = false;
};

}  // namespace afd::daemon

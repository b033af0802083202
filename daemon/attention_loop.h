// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionLoop: the data thread of an attention worker. It carries micro-batches through the
// layers, keeps up to M of them in flight with the experts, and talks to the control thread
// through its port. The colocated mode is the same loop with a local composition of the experts.
//
// Never blocks on the control thread (room for events is reserved before rows are scheduled) and
// never on a peer beyond a deadline (R7). Nothing allocates in the steady state.

#include <cstdint>
#include <vector>

#include "daemon/batcher.h"
#include "daemon/metrics.h"
#include "daemon/micro_batch.h"
#include "daemon/sequence_table.h"
#include "daemon/token_emitter.h"
#include "daemon/window_prepare_finalize.h"
#include "daemon/worker_port.h"
#include "model/attention_block.h"
#include "model/embedding_head.h"
#include "model/kv_cache.h"
#include "ops/fused_moe/fused_moe.h"
#include "schedule/adaptive_wait.h"
#include "schedule/heartbeat.h"
#include "schedule/transport.h"

namespace afd::daemon {

class AttentionLoop {
  public:
    struct Settings {
        uint32_t session = 0;
        uint32_t num_micro_batches = 1;  // M
        uint32_t micro_batch_size = 1;   // BS
        uint32_t sequences_max = 1;      // Running at once.
        uint64_t wait_report_us = 0;     // First report of a wait that lasts (R7).
        uint64_t round_timeout_us = 0;   // End of the requests that wait for a round (R7).
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
        MetricsWriter metrics;
        // Disaggregated only; null when the experts are local.
        WindowPrepareFinalize* windows = nullptr;
        schedule::DispatchTransport* transport = nullptr;
    };

    AttentionLoop(const Settings& settings, const Parts& parts, schedule::AdaptiveWait wait);

    // Returns after kShutdown.
    void run();

  private:
    bool take_commands();
    void admit(SequenceRequest* request);
    bool advance_all();
    bool advance(MicroBatch& micro_batch);
    bool fill(MicroBatch& micro_batch);
    bool is_in_order(const MicroBatch& micro_batch) const;
    void run_attention(MicroBatch& micro_batch);
    void dispatch(MicroBatch& micro_batch);
    void combine(MicroBatch& micro_batch);
    static void end_poisoned(const MicroBatch& micro_batch, const float* topk_weights);
    void finish_step(MicroBatch& micro_batch);
    void end_finished_sequences();
    void end_sequence(Sequence& sequence);
    void fail(MicroBatch& micro_batch, Code code, const char* text);

    void wait_for_peers();
    bool may_progress(schedule::Order order);
    void watch_waits(uint64_t now_us);
    void report_wait(MicroBatch& micro_batch, uint64_t now_us);
    void end_wait(MicroBatch& micro_batch);
    std::string describe(const MicroBatch& micro_batch, uint64_t now_us);

    const Settings settings_;
    Parts parts_;
    schedule::AdaptiveWait wait_;
    SequenceTable sequences_;
    Batcher batcher_;
    TokenEmitter emitter_;
    model::AttentionWorkspace workspace_;
    std::vector<MicroBatch> micro_batches_;
    size_t events_reserved_ = 0;  // By the micro-batches in flight.
    bool is_stopping_ = false;
};

}  // namespace afd::daemon

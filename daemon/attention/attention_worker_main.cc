// SPDX-License-Identifier: Apache-2.0
//
// afd-attention-worker: holds sequences and their KV cache, runs attention, router and sampler, and
// sends tokens to the experts: through windows to the FFN workers, or, colocated, to its own.

#include <unistd.h>

#include <optional>
#include <utility>

#include "daemon/attention/attention_loop.h"
#include "daemon/attention/cache_warmer.h"
#include "daemon/control/worker_control.h"
#include "daemon/lanes/topology_lanes.h"
#include "daemon/worker/link_reports.h"
#include "daemon/worker/ucx_transport.h"
#include "daemon/worker/vocabulary_file.h"
#include "daemon/worker/worker_program.h"
#include "daemon/worker/worker_setup.h"
#include "model/attention/layer_windows.h"
#include "proto/crash_point.h"
#include "proto/standard_output.h"

namespace afd::daemon {
namespace {

// The model without its experts.
struct AttentionModel {
    model::AttentionHalf attention;
    model::EmbeddingHead head;
    model::KvCache cache;

    static Result<AttentionModel> load(const WorkerSetup& setup, const control::Welcome& welcome) {
        // Rows of two-phase rounds are routed here, whoever routes the others.
        const bool leaves =
            setup.router == schedule::RouterPlacement::kFfn && welcome.prefill_tokens_max() == 0;
        AFD_ASSIGN(model::AttentionHalf attention,
                   model::AttentionHalf::load(
                       setup.files,
                       setup.numeric_class,
                       leaves ? model::RouterUse::kLeave : model::RouterUse::kRoute));
        AFD_ASSIGN(model::EmbeddingHead head,
                   model::EmbeddingHead::load(setup.files, setup.numeric_class));
        const model::ModelConfig& config = setup.files.config();
        AFD_ASSIGN(
            model::KvCache cache,
            model::KvCache::create(model::kv_shape(config),
                                   welcome.kv_tokens(),
                                   model::LayerWindows::of(config).room(
                                       config, welcome.kv_tokens(), welcome.max_sequences()),
                                   welcome.process_restarted() ? model::KvCache::Memory::kLater
                                                               : model::KvCache::Memory::kNow));
        return AttentionModel{std::move(attention), std::move(head), std::move(cache)};
    }
};

AttentionLoop::Settings loop_settings(const WorkerSetup& setup,
                                      const control::Welcome& welcome,
                                      uint32_t session) {
    return {.session = session,
            .micro_batch_size = setup.layout.geometry.micro_batch_size,
            .sequences_max = welcome.max_sequences(),
            .long_prompt_threshold = welcome.two_phase_threshold(),
            .wait_report_us = welcome.wait_report_ms() * 1000,
            .round_timeout_us = welcome.round_timeout_ms() * 1000,
            .has_prefix_cache = welcome.prefix_cache(),
            .row_checksums = setup.row_checksums};
}

control::Ready ready_message(const WorkerSetup& setup,
                             const model::KvCache& cache,
                             uint64_t load_us) {
    control::Ready ready;
    ready.set_kv_tokens(uint64_t{cache.num_blocks()} * model::kKvBlockTokens);
    ready.set_numeric_class(setup.attach.identity.numeric_class);
    ready.set_model_identity(setup.files.identity());
    ready.set_load_us(load_us);
    return ready;
}

Result<> serve(WorkerControl& control, uint32_t session) {
    const control::Welcome& welcome = control.welcome();
    const uint64_t start_us = schedule::steady_now_us();
    AFD_ASSIGN(const WorkerSetup setup,
               WorkerSetup::make(control, schedule::Role::kAttention, session));
    AFD_ASSIGN(const SessionAttachment attachment,
               SessionAttachment::make(setup, control, session));
    schedule::Heartbeat heartbeat = attachment.own().heartbeat();
    heartbeat.start(getpid());
    AFD_CRASH_POINT("start.attention_attached");
    setup.metrics().start();

    const std::unique_ptr<threads::ThreadPool> threads = make_thread_pool(welcome);
    AFD_ASSIGN(const AttentionModel model, AttentionModel::load(setup, welcome));
    AFD_ASSIGN(const std::unique_ptr<ExpertLanes> lanes,
               make_expert_lanes({setup, welcome, attachment, *threads}));
    AttentionLoop loop(loop_settings(setup, welcome, session),
                       {.attention = &model.attention,
                        .head = &model.head,
                        .cache = &model.cache,
                        .lanes = lanes->lanes(),
                        .parallel = threads.get(),
                        .port = &control.port(),
                        .heartbeat = heartbeat,
                        .metrics = setup.metrics(),
                        .words = attachment.own().words(),
                        .lost_ranks = lanes->lost_ranks()},
                       make_wait(welcome, attachment.own().doorbell()));

    std::optional<CacheWarmer> warmer;
    if (welcome.process_restarted()) warmer.emplace(model.cache);
    AFD_ASSIGN(auto vocabulary, open_vocabulary(control, setup.files.config().vocab_size));
    control.set_vocabulary(std::move(vocabulary));
    confine_worker(welcome);
    AFD_CRASH_POINT("start.attention_loaded");
    control.ready(ready_message(setup, model.cache, schedule::steady_now_us() - start_us));
    AFD_CRASH_POINT("start.attention_ready");
    const LinkReports link_reports(control, attachment.transport.get());
    attachment.own().ring_peers();
    AFD_CRASH_POINT("start.attention_rung");
    if (warmer) warmer->begin();
    loop.run();
    return {};
}

}  // namespace
}  // namespace afd::daemon

int main(int argc, char** argv) {
#ifdef AFD_HAS_UCX
    afd::daemon::use_ucx();
#endif
    return afd::end_standard_output(
        "afd-attention-worker",
        afd::daemon::run_worker(argc, argv, afd::control::ATTENTION, afd::daemon::serve));
}

// SPDX-License-Identifier: Apache-2.0
//
// afd-attention-worker: holds sequences and their KV cache, runs attention, router and sampler, and
// sends tokens to the experts: through windows to the FFN workers, or, colocated, to its own.

#include <unistd.h>

#include <optional>

#include "daemon/attention/attention_loop.h"
#include "daemon/worker/worker_control.h"
#include "daemon/worker/worker_program.h"
#include "daemon/worker/worker_setup.h"
#include "model/decoder/expert_weights.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"

namespace afd::daemon {
namespace {

// The Experts part that the instance runs, here or in the FFN workers.
const ops::ExpertsCapability& experts_record(const model::ModelConfig& model) {
    const ops::WeightFormat format = model.quantisation.experts;
    if (format == ops::WeightFormat::kInt8) return ops::kGroupedInt8;
    return ops::is_int4(format) ? ops::kGroupedInt4 : ops::kGroupedBf16;
}

ops::ExpertQuantisation quantisation_of(const model::ModelConfig& model) {
    const ops::WeightFormat format = model.quantisation.experts;
    if (format == ops::WeightFormat::kInt8) return ops::ExpertQuantisation::kInt8;
    return ops::is_int4(format) ? ops::ExpertQuantisation::kInt4 : ops::ExpertQuantisation::kNone;
}

// int8 rows with smooth scales are a row for each expert; in one process it is the experts that
// quantise them, to the same bits.
ops::DispatchDtype local_dispatch_dtype(const WorkerSetup& setup) {
    const bool is_smooth = setup.files.config().quantisation.smooth;
    return setup.is_colocated && is_smooth && setup.dispatch_dtype == ops::DispatchDtype::kInt8
               ? ops::DispatchDtype::kBf16
               : setup.dispatch_dtype;
}

ops::FusedMoeConfig moe_config(const WorkerSetup& setup) {
    const model::ModelConfig& model = setup.files.config();
    const schedule::Geometry& geometry = setup.layout.geometry;
    return {.hidden = model.hidden,
            .num_experts = model.num_experts,
            .top_k = model.top_k,
            .num_shared = model.num_shared_slots(),
            .max_num_tokens = geometry.micro_batch_size,
            .num_micro_batches = geometry.num_micro_batches,
            .has_shared_stage = setup.has_shared_stage(),
            .quantisation = quantisation_of(model),
            .dispatch_dtype = local_dispatch_dtype(setup),
            .needs_routing = setup.router == schedule::RouterPlacement::kFfn};
}

// The experts of a worker that has them in its own process, or of one that sends tokens to the
// FFN workers: two compositions of the same framework.
struct MoeParts {
    std::unique_ptr<model::LoadedExperts> experts;  // Colocated: all; with a shared stage: its own.
    std::unique_ptr<ops::PrepareFinalize> prepare_finalize;
    std::unique_ptr<ops::Experts> expert_part;
    std::unique_ptr<ops::Experts> shared_stage;  // Or null.
    WindowPrepareFinalize* windows = nullptr;
    std::unique_ptr<model::SmoothScales> smooth;  // Of the rows that are sent; or null.
};

Result<MoeParts> make_local_parts(const WorkerSetup& setup,
                                  const control::Welcome& welcome,
                                  ops::Parallel& parallel) {
    const model::ModelConfig& config = setup.files.config();
    const size_t per_layer = model::experts_per_layer(config);
    AFD_ASSIGN(model::LoadedExperts experts,
               load_worker_experts(setup,
                                   welcome,
                                   model::all_expert_slots(config),
                                   config.num_layers * per_layer,
                                   parallel));
    MoeParts parts;
    parts.experts = std::make_unique<model::LoadedExperts>(std::move(experts));
    parts.prepare_finalize =
        std::make_unique<ops::LocalPrepareFinalize>(moe_config(setup), parallel);
    parts.expert_part = std::make_unique<ops::GroupedExperts>(parts.experts->table, per_layer);
    return parts;
}

// The shared experts of every MoE layer, key = layer.
std::vector<model::ExpertSlot> shared_expert_slots(const model::ModelConfig& config) {
    std::vector<model::ExpertSlot> slots;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        if (config.is_moe_layer(layer)) slots.push_back({layer, config.num_experts, layer});
    }
    return slots;
}

Result<MoeParts> make_window_parts(const WorkerSetup& setup,
                                   const control::Welcome& welcome,
                                   schedule::DispatchTransport& transport,
                                   uint32_t session,
                                   ops::Parallel& parallel) {
    MoeParts parts;
    auto windows = std::make_unique<WindowPrepareFinalize>(transport,
                                                           setup.layout.geometry,
                                                           setup.placement,
                                                           session,
                                                           setup.router,
                                                           setup.dispatch_dtype);
    parts.windows = windows.get();
    windows->set_metrics(setup.metrics());
    if (setup.dispatch_dtype == ops::DispatchDtype::kInt8 &&
        setup.files.config().quantisation.smooth) {
        AFD_ASSIGN(model::SmoothScales smooth, model::SmoothScales::load(setup.files));
        parts.smooth = std::make_unique<model::SmoothScales>(std::move(smooth));
        windows->set_smooth(*parts.smooth);
    }
    parts.prepare_finalize = std::move(windows);
    parts.expert_part = std::make_unique<ops::RemoteExperts>(experts_record(setup.files.config()));
    if (!setup.has_shared_stage()) return parts;
    const model::ModelConfig& config = setup.files.config();
    AFD_ASSIGN(model::LoadedExperts shared,
               load_worker_experts(
                   setup, welcome, shared_expert_slots(config), config.num_layers, parallel));
    parts.experts = std::make_unique<model::LoadedExperts>(std::move(shared));
    parts.shared_stage = std::make_unique<ops::GroupedExperts>(parts.experts->table, 1);
    return parts;
}

// The lane of long prompts, and what it works with.
struct TwoPhaseSession {
    schedule::TwoPhaseAreas areas;
    std::unique_ptr<schedule::ShmTwoPhaseMemory> memory;
    std::unique_ptr<schedule::TwoPhaseSender> sender;
    std::unique_ptr<TwoPhasePrepareFinalize> prepare_finalize;
    std::unique_ptr<ops::RemoteExperts> expert_part;
    std::optional<ops::FusedMoe> moe;
};

Result<TwoPhaseSession> make_two_phase(const WorkerSetup& setup,
                                       const schedule::ShmDispatchTransport& transport,
                                       const control::Welcome& welcome,
                                       const MoeParts& parts,
                                       ops::Parallel& parallel) {
    TwoPhaseSession made;
    const uint32_t session = transport.session();
    ops::FusedMoeConfig config = moe_config(setup);
    const size_t lane = config.num_micro_batches;
    config.max_shared_tokens = config.max_num_tokens;  // As attention: the windows go on between.
    config.max_num_tokens = welcome.prefill_tokens_max();
    config.num_micro_batches = 1;
    AFD_ASSIGN(made.areas,
               schedule::TwoPhaseAreas::attach(setup.attach, schedule::Role::kAttention, session));
    made.memory = std::make_unique<schedule::ShmTwoPhaseMemory>(setup.attach.prefix);
    made.sender = std::make_unique<schedule::TwoPhaseSender>(made.areas.layout,
                                                             session,
                                                             made.areas.own.data(),
                                                             made.areas.peer_areas(),
                                                             transport.ringers());
    made.prepare_finalize = std::make_unique<TwoPhasePrepareFinalize>(
        TwoPhasePrepareFinalize::Settings{.session = session,
                                          .micro_batch = static_cast<uint32_t>(lane),
                                          .hidden = config.hidden,
                                          .top_k = config.top_k,
                                          .num_shared = setup.num_dispatched_shared,
                                          .num_tokens_max = welcome.prefill_tokens_max(),
                                          .block_tokens = welcome.two_phase_block(),
                                          .dispatch_dtype = setup.dispatch_dtype},
        TwoPhasePrepareFinalize::Parts{.sender = made.sender.get(),
                                       .memory = made.memory.get(),
                                       .placement = &setup.placement,
                                       .parallel = &parallel,
                                       .smooth = parts.smooth.get()});
    made.expert_part = std::make_unique<ops::RemoteExperts>(experts_record(setup.files.config()));
    AFD_ASSIGN(
        made.moe,
        ops::FusedMoe::compose(
            *made.prepare_finalize, *made.expert_part, config, parallel, parts.shared_stage.get()));
    return made;
}

// The session's own control segment, and in the disaggregated topology the way to the FFN ranks.
struct Attached {
    schedule::Segment control;  // Colocated only; else the transport maps it.
    std::unique_ptr<schedule::ShmDispatchTransport> transport;
    schedule::ControlView view;
};

Result<Attached> attach(const WorkerSetup& setup, uint32_t session) {
    Attached attached;
    if (!setup.is_colocated) {
        AFD_ASSIGN(attached.transport,
                   schedule::ShmDispatchTransport::attach(setup.attach, session));
        attached.view = attached.transport->own_control();
        return attached;
    }
    AFD_ASSIGN(attached.control,
               schedule::Segment::attach(schedule::segment_name(setup.attach.prefix,
                                                                schedule::Role::kAttention,
                                                                session,
                                                                schedule::SegmentKind::kControl),
                                         setup.layout.attention_control_bytes,
                                         schedule::Segment::Access::kReadWrite));
    attached.view = schedule::ControlView(attached.control.data());
    AFD_ASSIGN(
        const schedule::SegmentHeader expected,
        schedule::make_segment_header(
            setup.layout.geometry, setup.attach.identity, schedule::Role::kAttention, session));
    AFD_TRY(schedule::check(attached.view.read_only().header(), expected));
    return attached;
}

Result<> serve(WorkerControl& control, uint32_t session) {
    const control::Welcome& welcome = control.welcome();
    const uint64_t start_us = schedule::steady_now_us();
    AFD_ASSIGN(WorkerSetup setup, WorkerSetup::make(control, schedule::Role::kAttention, session));
    AFD_ASSIGN(Attached attached, attach(setup, session));
    schedule::Heartbeat heartbeat(attached.view.heartbeat_words());
    heartbeat.start(getpid());
    setup.metrics().start();

    const std::unique_ptr<threads::ThreadPool> threads = make_thread_pool(welcome);
    AFD_ASSIGN(const model::AttentionBlock attention,
               model::AttentionBlock::load(setup.files,
                                           setup.numeric_class,
                                           setup.router == schedule::RouterPlacement::kFfn
                                               ? model::RouterUse::kLeave
                                               : model::RouterUse::kRoute));
    AFD_ASSIGN(const model::EmbeddingHead head,
               model::EmbeddingHead::load(setup.files, setup.numeric_class));
    AFD_ASSIGN(const model::KvCache cache,
               model::KvCache::create(setup.files.config(), welcome.kv_tokens()));
    MoeParts parts;
    if (setup.is_colocated) {
        AFD_ASSIGN(parts, make_local_parts(setup, welcome, *threads));
    } else {
        AFD_ASSIGN(parts,
                   make_window_parts(setup, welcome, *attached.transport, session, *threads));
    }
    AFD_ASSIGN(ops::FusedMoe moe,
               ops::FusedMoe::compose(*parts.prepare_finalize,
                                      *parts.expert_part,
                                      moe_config(setup),
                                      *threads,
                                      parts.shared_stage.get()));

    TwoPhaseSession two_phase;
    if (welcome.prefill_tokens_max() > 0) {
        AFD_ASSIGN(two_phase, make_two_phase(setup, *attached.transport, welcome, parts, *threads));
    }

    AttentionLoop loop(
        {.session = session,
         .num_micro_batches = setup.layout.geometry.num_micro_batches,
         .micro_batch_size = setup.layout.geometry.micro_batch_size,
         .sequences_max = welcome.max_sequences(),
         .prefill_tokens_max = welcome.prefill_tokens_max(),
         .two_phase_threshold = welcome.two_phase_threshold(),
         .wait_report_us = welcome.wait_report_ms() * 1000,
         .round_timeout_us = welcome.round_timeout_ms() * 1000},
        {.attention = &attention,
         .head = &head,
         .cache = &cache,
         .moe = &moe,
         .parallel = threads.get(),
         .port = &control.port(),
         .heartbeat = heartbeat,
         .metrics = setup.metrics(),
         .windows = parts.windows,
         .transport = attached.transport.get(),
         .two_phase = two_phase.prepare_finalize.get(),
         .two_phase_moe = two_phase.moe ? &*two_phase.moe : nullptr},
        make_wait(welcome, schedule::Doorbell(attached.view.armed(), control.own_doorbell_fd())));

    control::Ready ready;
    ready.set_kv_tokens(uint64_t{cache.num_blocks()} * model::kKvBlockTokens);
    ready.set_numeric_class(setup.attach.identity.numeric_class);
    ready.set_model_identity(setup.files.identity());
    ready.set_load_us(schedule::steady_now_us() - start_us);
    control.ready(ready);
    if (attached.transport != nullptr) attached.transport->ring_peers();
    loop.run();
    return {};
}

}  // namespace
}  // namespace afd::daemon

int main(int argc, char** argv) {
    return afd::daemon::run_worker(argc, argv, afd::control::ATTENTION, afd::daemon::serve);
}

// SPDX-License-Identifier: Apache-2.0
//
// afd-ffn-worker: holds the weights of its share of the experts, and computes what attention
// workers dispatch into its window.

#include <unistd.h>

#include <algorithm>

#include "daemon/config/instance_geometry.h"
#include "daemon/config/wire_choices.h"
#include "daemon/control/worker_control.h"
#include "daemon/ffn/beating_parallel.h"
#include "daemon/ffn/ffn_loop.h"
#include "daemon/program/logging.h"
#include "daemon/worker/ucx_transport.h"
#include "daemon/worker/worker_program.h"
#include "daemon/worker/worker_setup.h"
#include "daemon/worker/worker_transport.h"
#include "model/decoder/expert_weights.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "proto/crash_point.h"
#include "proto/standard_output.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/plugin/plugin_scheduler.h"

namespace afd::daemon {
namespace {

Result<WorkerExperts> load_shard(const WorkerSetup& setup,
                                 const control::Welcome& welcome,
                                 uint32_t rank,
                                 ops::Parallel& parallel,
                                 schedule::Heartbeat heartbeat) {
    const size_t keys_per_layer = setup.placement.num_local_experts_per_layer(rank);
    std::vector<model::ExpertSlot> slots;
    for (const schedule::HeldExpert& local : setup.placement.held_experts(rank)) {
        slots.push_back({local.layer_id,
                         local.expert,
                         local.layer_id * keys_per_layer + static_cast<size_t>(local.local_id)});
    }
    return load_worker_experts(
        setup, welcome, slots, setup.placement.num_layers() * keys_per_layer, parallel, heartbeat);
}

// afdd answers within milliseconds, or a second for gigabytes.
constexpr uint64_t kAskAgainUs = 1'000'000;

// The rank's part in two-phase rounds, and what it works with.
struct TwoPhaseRank {
    std::unique_ptr<schedule::TwoPhaseReturnTransport> transport;
    std::unique_ptr<schedule::TwoPhaseReceiver> receiver;
    std::unique_ptr<TwoPhaseExperts> experts;
};

Result<TwoPhaseRank> make_two_phase(const WorkerSetup& setup,
                                    schedule::ReturnTransport& transport,
                                    ops::Experts& experts,
                                    size_t hidden,
                                    ops::Parallel& parallel,
                                    WorkerControl& control) {
    TwoPhaseRank made;
    AFD_ASSIGN(made.transport, transport.two_phase());
    made.receiver = std::make_unique<schedule::TwoPhaseReceiver>(
        *made.transport,
        setup.placement,
        schedule::TwoPhaseReceiver::Limits{
            .num_experts = setup.placement.num_local_experts_max(),
            .row_bytes = two_phase_row_bytes(setup.dispatch_dtype, hidden, setup.row_checksums),
            .call = two_phase_call(control.welcome(), setup.layout.geometry)});
    // Half of the session's patience: the batch still has time to go through the windows.
    const uint64_t answer_timeout_us = control.welcome().round_timeout_ms() * 1000 / 2;
    made.experts = std::make_unique<TwoPhaseExperts>(
        TwoPhaseExperts::Parts{.receiver = made.receiver.get(),
                               .memory = setup.two_phase_memory.get(),
                               .placement = &setup.placement,
                               .experts = &experts,
                               .hidden = hidden,
                               .dispatch_dtype = setup.dispatch_dtype,
                               .row_checksums = setup.row_checksums,
                               .parallel = &parallel,
                               .port = &control.port(),
                               .ask_again_us = std::min(kAskAgainUs, answer_timeout_us / 4),
                               .answer_timeout_us = answer_timeout_us});
    return made;
}

// The built-in scheduler, or one of a user's own.
Result<std::unique_ptr<schedule::PassScheduler>> make_scheduler(const WorkerSetup& setup,
                                                                const control::Welcome& welcome) {
    const schedule::Geometry& geometry = setup.layout.geometry;
    if (!welcome.ffn_scheduler().empty()) {
        AFD_ASSIGN(const schedule::PluginLibrary library,
                   schedule::PluginLibrary::open(welcome.ffn_scheduler()));
        AFD_ASSIGN(
            auto scheduler,
            schedule::PluginScheduler::create(library,
                                              {.num_sessions = geometry.num_sessions,
                                               .num_micro_batches = geometry.num_micro_batches,
                                               .deadline_us = welcome.gather_us()}));
        log::info("passes are scheduled by {}", scheduler->name());
        return std::unique_ptr<schedule::PassScheduler>(std::move(scheduler));
    }
    AFD_ASSIGN(const schedule::FfnPolicy policy, from_wire(welcome.ffn_policy()));
    // With more data threads than cores a wait for further sessions gains nothing: they come while
    // this thread waits for a core.
    const bool gathers =
        policy == schedule::FfnPolicy::kGather || policy == schedule::FfnPolicy::kGroups;
    const bool never_gathers = gathers && welcome.oversubscribed();
    return std::unique_ptr<schedule::PassScheduler>(
        std::make_unique<schedule::FfnScheduler>(schedule::FfnSchedulerConfig{
            .policy = policy,
            .num_sessions = geometry.num_sessions,
            .num_micro_batches = geometry.num_micro_batches,
            .deadline_us = never_gathers ? 0 : welcome.gather_us(),
            .sync_group_size = std::max(1U, welcome.ffn_sync_group_size())}));
}

// R12: the sessions have sent these rows elsewhere, or do not want them. After the weights are
// there, since until now a session may have more rounds voided; before anything looks at what is
// acknowledged, as ReadyScan's constructor does.
Result<> acknowledge_voided(WorkerControl& control, schedule::ReturnTransport& transport) {
    // Between machines the sessions have fenced this rank off (R16).
    if (control.welcome().has_ucx()) return {};
    AFD_ASSIGN(const control::Voided told, control.ask_voided());
    AFD_CRASH_POINT("void.told");
    const schedule::Geometry& geometry = transport.layout().geometry;
    for (const control::VoidedRound& voided : told.rounds()) {
        const size_t lane =
            size_t{voided.session()} * geometry.num_micro_batches + voided.micro_batch();
        // Another round may stand there: afdd forgets with the Ready that came last.
        if (transport.descriptor_flags().at(lane, schedule::Order::kAcquire) != voided.round()) {
            continue;
        }
        transport.acknowledge(voided.session(), voided.micro_batch(), voided.round());
        AFD_CRASH_POINT("void.acknowledged");
    }
    return {};
}

Result<> serve(WorkerControl& control, uint32_t rank) {
    const control::Welcome& welcome = control.welcome();
    const uint64_t start_us = schedule::steady_now_us();
    AFD_ASSIGN(WorkerSetup setup, WorkerSetup::make(control, schedule::Role::kFfn, rank));
    AFD_ASSIGN(const std::unique_ptr<schedule::ReturnTransport> transport,
               attach_returns(setup, control, rank));
    // Before the weights are loaded, which takes long: peers and afdd see a new process that
    // starts.
    transport->heartbeat().start(getpid());
    AFD_CRASH_POINT("start.ffn_attached");
    setup.metrics().start();

    const std::unique_ptr<threads::ThreadPool> threads = make_thread_pool(welcome);
    AFD_ASSIGN(const WorkerExperts held,
               load_shard(setup, welcome, rank, *threads, transport->heartbeat()));
    const ops::ExpertTable& table = held.loaded.table;
    ops::GroupedExperts experts(table, setup.placement.num_local_experts_per_layer(rank));
    model::Router router;
    if (setup.router == schedule::RouterPlacement::kFfn) {
        // Not the gates of layers that route by token id; see ffn_router.cc.
        AFD_ASSIGN(
            router,
            model::Router::load(setup.files, setup.numeric_class, model::GateSet::kOtherLayers));
    }
    AFD_ASSIGN(auto scheduler, make_scheduler(setup, welcome));
    AFD_TRY(acknowledge_voided(control, *transport));
    BeatingParallel parallel(*threads, transport->heartbeat());
    TwoPhaseRank two_phase;
    if (welcome.prefill_tokens_max() > 0) {
        AFD_ASSIGN(two_phase,
                   make_two_phase(setup, *transport, experts, table.hidden(), parallel, control));
    }
    FfnLoop loop({.transport = transport.get(),
                  .placement = &setup.placement,
                  .experts = &experts,
                  .hidden = table.hidden(),
                  .dispatch_dtype = setup.dispatch_dtype,
                  .router = router.empty() ? nullptr : &router,
                  .rows_have_rest = rows_have_rest(setup.files.config(), setup.router),
                  .parallel = &parallel,
                  .port = &control.port(),
                  .metrics = setup.metrics(),
                  .row_checksums = setup.row_checksums,
                  .two_phase = two_phase.experts.get()},
                 std::move(scheduler),
                 make_wait(welcome, transport->doorbell()));

    confine_worker(welcome);
    control::Ready ready;
    ready.set_numeric_class(setup.attach.identity.numeric_class);
    ready.set_model_identity(setup.files.identity());
    ready.set_load_us(schedule::steady_now_us() - start_us);
    AFD_CRASH_POINT("start.ffn_loaded");
    control.ready(ready);
    AFD_CRASH_POINT("start.ffn_ready");
    // R9: a predecessor may have died between its flag and its ring.
    transport->ring_peers();
    AFD_CRASH_POINT("start.ffn_rung");
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
        "afd-ffn-worker",
        afd::daemon::run_worker(argc, argv, afd::control::FFN, afd::daemon::serve));
}

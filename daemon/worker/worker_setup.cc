// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_setup.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "daemon/config/instance_geometry.h"
#include "daemon/placement/placement_table.h"
#include "daemon/program/logging.h"
#include "daemon/worker/system_calls.h"
#include "daemon/worker/welcomed_model.h"
#include "proto/failure.h"
#include "schedule/shared_memory/attach.h"

namespace afd::daemon {
namespace {

// The worker opens the files itself. A checkpoint that was replaced since afdd started would give
// tokens of another model.
Result<> check_welcomed(const WelcomedModel& model, const control::Welcome& welcome) {
    if (!ops::supported(model.numeric_class)) {
        return failed_precondition(
            "numeric class {} is not supported by this machine's processor; start afdd with "
            "--numeric-class auto",
            with(welcome.numeric_class()));
    }
    if (model.files.identity() == welcome.model_identity()) return {};
    return failed_precondition(
        "{} is model {}, afdd was started with {}: was it replaced? Restart afdd",
        with(welcome.model_dir(), model.files.identity(), welcome.model_identity()));
}

[[noreturn]] void end_of_damage(const Error& error) {
    log::error("weight cache: {}; this worker ends, and its successor does so", error.message);
    // No destructors: the data thread may be in the middle of anything.
    std::_Exit(kExitDamagedFile);
}

}  // namespace

std::vector<schedule::LayerExperts> layer_experts(const model::ModelConfig& config,
                                                  uint32_t num_dispatched_shared) {
    std::vector<schedule::LayerExperts> layers;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        if (config.is_moe_layer(layer)) {
            layers.push_back({config.num_experts, num_dispatched_shared});
        } else {
            layers.push_back({.num_routed = 0, .num_replicated = 1});
        }
    }
    return layers;
}

Result<WorkerSetup> WorkerSetup::make(const WorkerControl& control,
                                      schedule::Role role,
                                      uint32_t index) {
    const control::Welcome& welcome = control.welcome();
    AFD_ASSIGN(WelcomedModel model, WelcomedModel::open(welcome));
    AFD_TRY(check_welcomed(model, welcome));
    AFD_ASSIGN(WelcomedWindows windows, model.windows(welcome));
    const schedule::Geometry geometry = windows.layout.geometry;
    const schedule::RouterPlacement router = windows.identity.router;
    const schedule::RowDtype dispatch_dtype = windows.identity.row_dtype;
    const uint32_t num_shared = dispatched_shared_slots(model.files.config(), welcome.geometry());
    const SessionRange sessions = role == schedule::Role::kAttention
                                      ? SessionRange{.first = index, .count = 1}
                                      : SessionRange{.first = 0, .count = geometry.num_sessions};
    // Colocated: a placement needs a rank, though nobody asks it.
    AFD_ASSIGN(schedule::ExpertPlacement placement,
               placement_of(welcome,
                            layer_experts(model.files.config(), num_shared),
                            std::max(1U, geometry.num_ffn_workers),
                            sessions));
    schedule::AttachConfig attach{
        .prefix = welcome.segment_prefix(),
        .layout = windows.layout,
        .identity = std::move(windows.identity),
        .own_doorbell = control.own_doorbell_fd(),
        .peer_doorbells = {control.peer_doorbell_fds().begin(), control.peer_doorbell_fds().end()},
        .segment_fds = control.segment_fds()};
    std::unique_ptr<schedule::HandedTwoPhaseMemory> two_phase_memory;
    if (!welcome.has_ucx()) {
        two_phase_memory = std::make_unique<schedule::HandedTwoPhaseMemory>();
        attach.two_phase_memory = two_phase_memory.get();
    }
    AFD_ASSIGN(schedule::Segment metrics, schedule::attach_metrics(attach, role, index));
    schedule::Segment own_control;
    if (welcome.has_ucx()) {
        AFD_ASSIGN(own_control, schedule::attach_own_control(attach, role, index));
    }
    return WorkerSetup{.files = std::move(model.files),
                       .numeric_class = model.numeric_class,
                       .layout = windows.layout,
                       .attach = std::move(attach),
                       .two_phase_memory = std::move(two_phase_memory),
                       .placement = std::move(placement),
                       .metrics_segment = std::move(metrics),
                       .own_control = std::move(own_control),
                       .router = router,
                       .is_colocated = geometry.num_ffn_workers == 0,
                       .num_dispatched_shared = num_shared,
                       .dispatch_dtype = dispatch_dtype,
                       .row_checksums = welcome.geometry().row_checksums()};
}

Result<WorkerExperts> load_worker_experts(const WorkerSetup& setup,
                                          const control::Welcome& welcome,
                                          std::span<const model::ExpertSlot> slots,
                                          size_t num_keys,
                                          ops::Parallel& parallel,
                                          schedule::Heartbeat heartbeat) {
    auto cache = model::WeightCache::open(welcome.weight_cache());
    if (!cache.ok()) {
        // A cache saves time and memory and nothing else: without it the worker serves all the
        // same.
        log::warn("weight cache: {}; going on with private memory", cache.error().message);
    }
    WorkerExperts experts;
    AFD_ASSIGN(experts.loaded,
               model::load_experts(setup.files,
                                   slots,
                                   num_keys,
                                   setup.numeric_class,
                                   parallel,
                                   cache.ok() ? cache.value() : model::WeightCache()));
    const model::WeightCacheReport& report = experts.loaded.report;
    if (!report.warning.empty()) {
        log::warn("weight cache: {}{}",
                  report.warning,
                  report.num_private > 0 ? "; going on with private memory" : "");
    }
    if (cache.ok() && cache.value().is_on()) {
        log::info(
            "experts of {} layers from {}: {} were there, {} packed now, {} in private "
            "memory; {:.1f} MiB mapped",
            report.num_mapped + report.num_written + report.num_private,
            cache.value().directory(),
            report.num_mapped,
            report.num_written,
            report.num_private,
            static_cast<double>(report.mapped_bytes) / (1 << 20));
    }
    if (model::MappedExperts* mapped = experts.loaded.mapped.get()) {
        mapped->on_damage(end_of_damage);
        mapped->while_reading([heartbeat]() mutable { heartbeat.beat(); });
        const std::vector<uint32_t> cpus(welcome.cpus().begin(), welcome.cpus().end());
        experts.reader =
            std::make_unique<WeightReader>(*mapped, setup.metrics(), cpus, end_of_damage);
    }
    return experts;
}

void confine_worker(const control::Welcome& welcome) {
    if (!welcome.seccomp() || !can_confine()) return;
    // Others ask devices and make files.
    if (welcome.has_ucx() && welcome.ucx().transports() != "tcp") {
        log::warn("system calls are not confined: ucx_transports is not tcp alone");
        return;
    }
    const Result<> confined =
        confine_system_calls(welcome.has_ucx() ? Reach::kSockets : Reach::kDescriptors);
    if (!confined.ok()) log::warn("{}; going on without", confined.error().message);
}

std::unique_ptr<threads::ThreadPool> make_thread_pool(const control::Welcome& welcome) {
    const std::vector<uint32_t> cpus(welcome.cpus().begin(), welcome.cpus().end());
    // Helpers stay awake for longer than a worker that waits for its peers: a step has parts for
    // one thread alone, and waits for whichever of many helpers slept and is woken last.
    constexpr uint32_t kHelperSpins = 4;
    const uint32_t spin_us = welcome.spin_us() * (welcome.oversubscribed() ? 1 : kHelperSpins);
    auto pool = std::make_unique<threads::ThreadPool>(
        std::max(1U, welcome.num_threads()), spin_us, welcome.oversubscribed(), cpus);
    if (!pool->pinned().ok()) log::warn("{}", pool->pinned().error().message);
    return pool;
}

schedule::AdaptiveWait make_wait(const control::Welcome& welcome, schedule::Doorbell doorbell) {
    return schedule::AdaptiveWait(doorbell, welcome.spin_us(), welcome.oversubscribed());
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/crew.h"

#include <fmt/core.h>

#include "daemon/config/wire_choices.h"

namespace afd::daemon {

namespace {

// What is read and packed in a second by the slowest disk and machine that are waited for. A worker
// has its share of the model, but all workers may share one disk.
constexpr uint64_t kLoadBytesPerSecond = uint64_t{32} << 20;

}  // namespace

std::string crew_size_text(uint64_t num_attention, uint64_t num_ffn) {
    return fmt::format("{} attention and {} ffn workers", num_attention, num_ffn);
}

std::string Crew::size_text() const {
    return crew_size_text(config().num_attention_workers(), config().num_ffn_workers());
}

Result<> Crew::hire(WorkerDoor& door, const std::string& worker_directory, const HostList* hosts) {
    const bool has_predecessors = supervisor_ != nullptr && supervisor_->is_all_ready();
    std::unique_ptr<Supervisor> before = std::move(supervisor_);
    metrics_ = std::make_unique<MetricsView>(layout_);
    Supervisor::Plan plan = supervisor_plan(worker_directory, hosts);
    plan.has_predecessors = has_predecessors;
    AFD_ASSIGN(supervisor_, Supervisor::create(loop_, door, std::move(plan)));
    return {};
}

void Crew::set_log_level(const std::string& level) {
    log_level_ = level;
    if (is_hired()) supervisor_->set_log_level(level);
}

Supervisor::Plan Crew::supervisor_plan(const std::string& worker_directory, const HostList* hosts) {
    const InstanceSetup& setup = layout_.setup();
    Supervisor::Plan plan;
    plan.config = layout_.config();
    if (!log_level_.empty()) plan.config.log_level = log_level_;
    plan.cpus = layout_.cpus();
    plan.control_socket = setup.paths().control_socket;
    plan.worker_directory = worker_directory;
    plan.load_ms = setup.model().tensors().total_bytes() / (kLoadBytesPerSecond / 1000);
    plan.welcome = layout_.common_welcome();
    plan.add_experts = [this](control::Role role, uint32_t index, control::Welcome& welcome) {
        layout_.add_experts(role, index, welcome);
    };
    plan.can_do_without = layout_.can_do_without();
    plan.segments = [this](control::Role role, uint32_t index) {
        return layout_.handles(role_of(role), index);
    };
    if (hosts != nullptr) {
        plan.host_of = [this](control::Role role, uint32_t index) {
            return layout_.hosts().host_of(role, index);
        };
        plan.find_host = [hosts](const std::string& name) { return hosts->find(name); };
    }
    plan.heartbeat = [this](control::Role role, uint32_t index) {
        return workers_.heartbeat(role, index);
    };
    plan.show_run_flag = [this](control::Role role, uint32_t index, bool runs) {
        layout_.segments().set_run_flag(role_of(role), index, runs);
    };
    plan.fill_metrics = [this](control::Role role, uint32_t index, client::Worker& worker) {
        workers_.fill_metrics(role, index, worker);
    };
    plan.mend_segments = [this](control::Role role, uint32_t index) {
        layout_.segments().restore(role_of(role), index);
        if (role == control::FFN) layout_.two_phase_segments().forget(index);
    };
    plan.begin_counts = [this](control::Role role, uint32_t index) {
        metrics_->begin(role, index);
    };
    plan.end_counts = [this](control::Role role, uint32_t index) { metrics_->end(role, index); };
    plan.round_memory.acquire = [this](uint32_t rank, const control::SegmentRequest& request) {
        return layout_.two_phase_segments().acquire(
            rank,
            request.session(),
            request.round(),
            {request.receive_bytes(), request.return_bytes()});
    };
    plan.round_memory.release = [this](uint32_t rank, const control::SegmentRelease& release) {
        layout_.two_phase_segments().release(rank, release.session(), release.round());
    };
    return plan;
}

void Crew::follow(const Crew& before) {
    metrics_->follow(before.metrics());
    supervisor_->continue_counts(before.supervisor());
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/slot_settings.h"

#include "daemon/config/worker_name.h"
#include "daemon/control/worker_options.h"

namespace afd::daemon {

namespace {

// Its place here is that of a stand-in (daemon/cluster/stand_in.h).
void run_on(const std::string& host, const SupervisorPlan& plan, WorkerSlot::Settings& settings) {
    settings.host = host;
    settings.executable = plan.worker_directory + "/afd-stand-in";
    settings.arguments.insert(
        settings.arguments.end(),
        {"--role", role_name(settings.role), "--cluster-dir", plan.config.cluster_dir});
    settings.hindrance = [&plan, host] {
        return plan.find_host(host) ? std::string() : "waits for host '" + host + "' to join";
    };
}

}  // namespace

WorkerSlot::Settings slot_settings(const SupervisorPlan& plan,
                                   const Doorbells& doorbells,
                                   control::Role role,
                                   uint32_t index) {
    const Config& config = plan.config;
    const bool is_ffn = role == control::FFN;
    WorkerSlot::Settings settings;
    settings.role = role;
    settings.index = index;
    settings.spawn = config.spawn;
    settings.has_predecessors = plan.has_predecessors;
    settings.executable = plan.worker_directory + "/" + worker_program_name(role_name(role));
    const std::string host = plan.host_of ? plan.host_of(role, index) : "";
    settings.arguments = arguments_of({.instance = host.empty() ? config.instance : "",
                                       .index = index,
                                       .control_socket = plan.control_socket,
                                       .log_level = config.log_level,
                                       .log_format = config.log_format,
                                       .own_process_group = true});
    settings.restart_first_ms = config.restart_first_ms;
    settings.restart_max_ms = config.restart_max_ms;
    settings.restart_reset_ms = config.restart_reset_ms;
    settings.start_attempts = config.start_attempts;
    settings.start_timeout_ms = config.start_timeout_ms;
    settings.load_ms = plan.load_ms;
    settings.hang_timeout_ms = config.hang_timeout_ms;
    settings.stop_timeout_ms = config.stop_timeout_ms;
    if (plan.show_run_flag) {
        settings.show_run_flag = [&plan, role, index](bool runs) {
            plan.show_run_flag(role, index, runs);
        };
    }
    settings.welcome = plan.welcome;
    const WorkerCpus& cpus = is_ffn ? plan.cpus.ffn[index] : plan.cpus.attention[index];
    settings.welcome.set_num_threads(cpus.num_threads);
    for (const uint32_t cpu : cpus.cpus) settings.welcome.add_cpus(cpu);
    settings.fds = doorbells.of(role, index);
    if (!host.empty()) run_on(host, plan, settings);
    if (!plan.segments) return settings;
    for (const auto& [name, fd] : plan.segments(role, index)) {
        settings.welcome.add_segments(name);
        settings.fds.push_back(fd);
    }
    return settings;
}

}  // namespace afd::daemon

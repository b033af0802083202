// SPDX-License-Identifier: Apache-2.0
#pragma once

// SupervisorPlan: what a supervisor is to have workers of, and what it may ask about them. Made by
// whoever knows the instance (daemon/afdd/crew.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/supervisor/round_memory.h"
#include "daemon/supervisor/service_state.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"
#include "schedule/context/heartbeat.h"

namespace afd::daemon {

struct SupervisorPlan {
    Config config;
    CpuPlan cpus;
    std::string control_socket;    // For the workers: the path of the door.
    std::string worker_directory;  // Where the two worker programs are.
    // The segments have had workers that were ready: their successors take over what is open in
    // them (R10), and are tried again for ever. There is no on_all_ready().
    bool has_predecessors = false;
    // For the weights, in addition to start_timeout_ms.
    uint64_t load_ms = 0;
    // Everything of a Welcome that does not depend on the worker.
    control::Welcome welcome;
    // Adds what a worker is to know of the experts, each time that one is welcomed: kept for each
    // of a thousand, it would be gigabytes. Empty: nothing.
    std::function<void(control::Role, uint32_t index, control::Welcome&)> add_experts;
    // Whether each expert is on a rank that is not lost [num_ffn_workers]; empty: never. Then
    // sessions go on without those that are (R12).
    CanDoWithout can_do_without;
    // Name and descriptor of each segment that a worker is handed; empty: none.
    std::function<std::vector<std::pair<std::string, int>>(control::Role, uint32_t index)> segments;
    // A look at a worker's heartbeat.
    std::function<schedule::HeartbeatView(control::Role, uint32_t index)> heartbeat;
    // Writes the run_flag of a worker's ScheduleContext; empty: it has none.
    std::function<void(control::Role, uint32_t index, bool runs)> show_run_flag;
    RoundMemory::Source round_memory;
    // A worker's process is gone: whatever it has spoilt of what its successor is to find is
    // mended. Empty: nothing is.
    std::function<void(control::Role, uint32_t index)> mend_segments;
    // A worker's process serves: what it counts is its own. It is gone: it counts no more.
    // Empty: nobody wants to know.
    std::function<void(control::Role, uint32_t index)> begin_counts;
    std::function<void(control::Role, uint32_t index)> end_counts;
    // On which host a worker is to run; empty: this one, as with no function.
    std::function<std::string(control::Role, uint32_t index)> host_of;
    // How a host is reached; nothing: it is not there.
    std::function<std::optional<control::RemoteHost>(const std::string& name)> find_host;
    // Adds what a worker counted (metrics.h) to its status.
    std::function<void(control::Role, uint32_t index, client::Worker&)> fill_metrics;
};

}  // namespace afd::daemon

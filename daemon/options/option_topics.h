// SPDX-License-Identifier: Apache-2.0
#pragma once

// The options by topic, each in a source of its name: here an option is described, once. Config
// (config.h) has a member for each. Only config_options.cc puts the topics together.

#include <vector>

#include "daemon/options/config_option.h"

namespace afd::daemon {

// Which model under which name, how many workers, and the size of their micro-batches.
std::vector<ConfigOption> instance_options();

// Over what rows travel between workers.
std::vector<ConfigOption> transport_options();

// Which hosts have which workers, and how they meet.
std::vector<ConfigOption> host_options();

// How prompts get to the FFN workers, and how much of one at a time.
std::vector<ConfigOption> two_phase_options();

// What a worker has: KV room, threads, time to spin.
std::vector<ConfigOption> resource_options();

// In which arithmetic all workers compute.
std::vector<ConfigOption> numeric_options();

// Who chooses, holds and computes experts, and what FFN workers wait for.
std::vector<ConfigOption> expert_options();

// After which time something is reported, ended, killed or tried again.
std::vector<ConfigOption> timeout_options();

// How much of the instance a client may have.
std::vector<ConfigOption> client_options();

// Where HTTP is served, and to whom.
std::vector<ConfigOption> http_options();

// What the processes use of the machine: cores, files, sockets, logs.
std::vector<ConfigOption> process_options();

}  // namespace afd::daemon

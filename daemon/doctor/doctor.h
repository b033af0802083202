// SPDX-License-Identifier: Apache-2.0
#pragma once

// The doctor: what of this machine would hinder an instance of this configuration, and how to mend
// it. Starts nothing and takes nothing: it may be asked beside a running afdd.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/doctor/finding.h"
#include "daemon/doctor/machine_facts.h"
#include "daemon/instance/instance_memory.h"
#include "daemon/program/exit_codes.h"
#include "proto/status.h"

namespace afd::daemon {

// What the configuration asks of the machine.
struct InstanceNeeds {
    std::string numeric_class;  // That would be taken;
    bool is_emulated = false;   // with other instructions than its own.
    // True for a host that joins: the afdd that leads decides which workers it gets. Then no
    // threads are counted, and the memory is unknown.
    bool is_share_unknown = false;
    uint32_t num_threads = 0;      // Data threads of this host's workers that compute at once.
    bool is_crowded = false;       // A core has several of them.
    uint32_t num_workers = 0;      // That afdd has places for.
    uint64_t num_connections = 0;  // That it is to have at once; 0: it has no clients.
    std::optional<InstanceMemory> memory;  // Nothing: unknown, as there is no model.
    uint64_t two_phase_bytes = 0;          // Beyond that, for long prompts.

    // Enough where nothing is known.
    CacheRoom cache_room() const { return memory ? memory->cache_room : CacheRoom(); }
};

// A checkpoint may be judged by its config.json before it is downloaded; one of which something is
// there must be whole. Needed weights need their tokenizer, too; check_model() judges the others'.
enum class Weights { kNeeded, kIfThere };

// Errors: what an afdd of this configuration would say of it or of its model; `exit_code` is then
// that with which it would end.
Result<InstanceNeeds> needs_of(const Config& config,
                               ExitCode& exit_code,
                               Weights weights = Weights::kNeeded);

// One finding of each subject, in a fixed order.
std::vector<Finding> examine(const MachineFacts& facts, const InstanceNeeds& needs);

}  // namespace afd::daemon

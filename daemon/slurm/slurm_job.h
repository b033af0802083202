// SPDX-License-Identifier: Apache-2.0
#pragma once

// SlurmJob: what `srun afdd --slurm` learns from the step that it is a task of: which nodes there
// are, which of them leads, and where that is reached. One afdd runs on each node.
//
// The variables of a task say which nodes (https://slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT
// VARIABLES"); scontrol says what a list of nodes stands for, and the address of a node.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::daemon {

struct SlurmJob {
    // The first port that a job may get, and how many there are: below those that the kernel gives
    // to whoever connects (32768 and up).
    static constexpr uint32_t kFirstPort = 20000;
    static constexpr uint32_t kNumPorts = 12000;

    uint32_t id = 0;
    std::vector<std::string> nodes;  // In Slurm's order, in lower case; the first one leads.
    size_t own = 0;                  // This one of them.
    std::string leader_address;      // Numbers.

    bool leads() const { return own == 0; }
    // Where the leader listens. The same of all tasks. Jobs that share a node get different ones,
    // but for two whose ids differ by a multiple of kNumPorts: the second one then cannot listen,
    // and says that cluster_listen can name another port.
    uint16_t port() const { return static_cast<uint16_t>(kFirstPort + id % kNumPorts); }

    // What it means for afdd: option -> text. A job of one node needs nothing but a name.
    std::map<std::string, std::string> options() const;
};

// Runs scontrol with these arguments; its output.
using AskSlurm = std::function<Result<std::string>(const std::vector<std::string>& arguments)>;

// Errors: kFailedPrecondition: this process is no task of a job, or there is more than one to a
// node. kInvalidArgument: a node has a name that hosts cannot have. kUnavailable: scontrol does not
// answer, or the address of the leader's node is not known.
Result<SlurmJob> read_slurm_job(const std::map<std::string, std::string>& environment,
                                const AskSlurm& ask);

// The program in PATH. What it warns of goes to standard error. Errors: kUnavailable, with what it
// said.
Result<std::string> ask_scontrol(const std::vector<std::string>& arguments);

}  // namespace afd::daemon

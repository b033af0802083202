// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostPlan: which worker of an instance runs on which host.
//
// A list of hosts for each role; the workers of the role are dealt out to them in turn. "local" is
// the host of the afdd that leads, and the only one where no list is given.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "proto/cluster.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// "local,b,c": its names in their order. Errors: kInvalidArgument: an empty name, or one that
// certificates cannot have.
Result<std::vector<std::string>> parse_hosts(const std::string& text);

class HostPlan {
  public:
    // REQUIRES: both lists were parsed, as resolve_config() does.
    explicit HostPlan(const Config& config);

    // Whether every worker is local.
    bool is_local() const { return names().empty(); }
    // The other hosts.
    std::set<std::string> names() const;
    // Where a worker runs; empty: here.
    std::string host_of(control::Role role, uint32_t index) const;
    // How many workers of the role a host runs; empty: this one.
    uint32_t num_workers(control::Role role, const std::string& host) const;

    // What each of the other hosts hears of the instance, and of the workers that are its.
    std::map<std::string, cluster::Joined> shares(const Config& config) const;

    // The plan of this host's cores for its workers. What the others have is theirs to plan; they
    // stand there with one thread.
    // Errors: those of plan_cpus().
    Result<CpuPlan> plan_local_cpus(const Config& config,
                                    const std::vector<uint32_t>& allowed_cpus,
                                    double quota = 0) const;

  private:
    std::vector<std::string> attention_;  // By session; empty: here.
    std::vector<std::string> ffn_;        // By rank.
};

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/host_plan.h"

#include <algorithm>

#include "daemon/config/comma_list.h"
#include "proto/check.h"
#include "proto/failure.h"
#include "proto/host_name.h"

namespace afd::daemon {

namespace {

std::vector<std::string> dealt_out(const std::string& hosts, uint32_t num_workers) {
    if (hosts.empty()) return std::vector<std::string>(num_workers);
    const auto names = parse_hosts(hosts);
    AFD_ASSERT(names.ok(), "hosts '%s'", hosts.c_str());
    std::vector<std::string> dealt;
    for (uint32_t index = 0; index < num_workers; ++index) {
        const std::string& name = names.value()[index % names.value().size()];
        dealt.push_back(name == kLocalHost ? "" : name);
    }
    return dealt;
}

// The plans of those that are here, in their order, among all.
std::vector<WorkerCpus> spread(const std::vector<std::string>& hosts,
                               const std::vector<WorkerCpus>& of_local) {
    std::vector<WorkerCpus> plans;
    size_t next = 0;
    for (const std::string& host : hosts) {
        plans.push_back(host.empty() ? of_local[next++] : WorkerCpus());
    }
    return plans;
}

}  // namespace

Result<std::vector<std::string>> parse_hosts(const std::string& text) {
    std::vector<std::string> names = comma_list(text);
    for (const std::string& name : names) {
        AFD_TRY(check_host_name(name));
        if (name == kLeaderName) {
            return invalid_argument("'{}' is what certificates call this host; write '{}'",
                                    with(kLeaderName, kLocalHost));
        }
    }
    return names;
}

HostPlan::HostPlan(const Config& config)
    : attention_(dealt_out(config.attention_hosts, config.num_attention_workers())),
      ffn_(dealt_out(config.ffn_hosts, config.num_ffn_workers())) {}

std::set<std::string> HostPlan::names() const {
    std::set<std::string> names(attention_.begin(), attention_.end());
    names.insert(ffn_.begin(), ffn_.end());
    names.erase("");
    return names;
}

std::string HostPlan::host_of(control::Role role, uint32_t index) const {
    const auto& hosts = role == control::FFN ? ffn_ : attention_;
    return index < hosts.size() ? hosts[index] : "";
}

uint32_t HostPlan::num_workers(control::Role role, const std::string& host) const {
    const auto& hosts = role == control::FFN ? ffn_ : attention_;
    return static_cast<uint32_t>(std::ranges::count(hosts, host));
}

std::map<std::string, cluster::Joined> HostPlan::shares(const Config& config) const {
    std::map<std::string, cluster::Joined> shares;
    for (const std::string& name : names()) {
        cluster::Joined& share = shares[name];
        share.set_instance(config.instance);
        share.set_ucx_transports(config.ucx_transports);
        share.set_num_attention_workers(num_workers(control::ATTENTION, name));
        share.set_num_ffn_workers(num_workers(control::FFN, name));
    }
    return shares;
}

Result<CpuPlan> HostPlan::plan_local_cpus(const Config& config,
                                          const std::vector<uint32_t>& allowed_cpus,
                                          double quota) const {
    Config local = config;
    local.attention_workers = num_workers(control::ATTENTION, "");
    local.ffn_workers = num_workers(control::FFN, "");
    AFD_ASSIGN(CpuPlan plan, plan_cpus(local, allowed_cpus, quota));
    plan.attention = spread(attention_, plan.attention);
    plan.ffn = spread(ffn_, plan.ffn);
    return plan;
}

}  // namespace afd::daemon

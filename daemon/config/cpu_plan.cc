// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/cpu_plan.h"

#include <sched.h>

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>

#include "proto/typed_number.h"
#include "schedule/shared_memory/control_group.h"

namespace afd::daemon {

namespace {

constexpr uint32_t kCpuMax = 8191;

Error bad_list(const std::string& text) {
    return Error{Code::kInvalidArgument,
                 "must be none, auto, or one list of cores per worker like \"0-3;4,6\"; '" + text +
                     "' is not a list of cores"};
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == separator) {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

std::optional<uint32_t> cpu_number(const std::string& text) {
    const auto number = whole_number(text);
    if (!number || *number > kCpuMax) return std::nullopt;
    return static_cast<uint32_t>(*number);
}

Result<std::vector<uint32_t>> parse_list(const std::string& text) {
    std::vector<uint32_t> cpus;
    for (const std::string& part : split(text, ',')) {
        const std::vector<std::string> ends = split(part, '-');
        const auto first = cpu_number(ends.front());
        const auto last = cpu_number(ends.back());
        if (ends.size() > 2 || !first || !last || *last < *first) return bad_list(text);
        for (uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    }
    return cpus;
}

uint32_t threads_of(uint64_t configured, size_t cores, uint64_t num_workers) {
    if (configured > 0) return static_cast<uint32_t>(configured);
    return static_cast<uint32_t>(std::max<uint64_t>(1, cores / std::max<uint64_t>(1, num_workers)));
}

std::vector<WorkerCpus*> all_workers(CpuPlan& plan) {
    std::vector<WorkerCpus*> workers;
    for (WorkerCpus& worker : plan.attention) workers.push_back(&worker);
    for (WorkerCpus& worker : plan.ffn) workers.push_back(&worker);
    return workers;
}

bool has_lists(const Config& config) {
    return config.pin != "auto" && config.pin != "none";
}

bool has_threads(const Config& config) {
    return config.attention_threads > 0 || config.ffn_threads > 0;
}

// Whether one attention and one FFN worker have a thread on every core and take turns. Half of the
// cores cannot read memory at full speed, nor multiply: on 16 virtual cores of an Emerald Rapids
// sixteen threads each give 1.3 to 1.6 times as many tokens a second as eight each. Whoever chose
// cores, threads or two micro-batches keeps the sides apart; so do workers that were started by
// hand, which would have to sleep between turns, and those of several hosts, which serve others
// meanwhile. With two or three cores half of them is one: then in any case.
bool take_turns(const Config& config, size_t num_cores) {
    if (config.attention_workers != 1 || config.num_ffn_workers() != 1) return false;
    if (num_cores < 4) return true;
    return config.spawn && !config.has_hosts() && config.join.empty() && !has_threads(config) &&
           config.micro_batches <= 1 && !has_lists(config);
}

size_t cores_within(double quota, size_t num_allowed) {
    if (quota <= 0 || quota >= static_cast<double>(num_allowed)) return num_allowed;
    return std::max<size_t>(1, static_cast<size_t>(quota));
}

Result<> pin_to_lists(const std::string& text,
                      const std::vector<uint32_t>& allowed,
                      CpuPlan& plan) {
    AFD_ASSIGN(const auto lists, parse_cpu_lists(text));
    const std::vector<WorkerCpus*> workers = all_workers(plan);
    if (lists.size() != workers.size()) {
        return Error{Code::kInvalidArgument,
                     "pin = '" + text + "': " + std::to_string(lists.size()) + " lists for " +
                         std::to_string(workers.size()) +
                         " workers; give one list per worker, separated by ';', attention workers "
                         "first"};
    }
    for (size_t i = 0; i < lists.size(); ++i) {
        for (const uint32_t cpu : lists[i]) {
            if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) continue;
            return Error{Code::kInvalidArgument,
                         "pin = '" + text + "': core " + std::to_string(cpu) +
                             " does not exist or is not allowed here"};
        }
        for (const uint32_t cpu : lists[i]) {
            std::vector<uint32_t>& cpus = workers[i]->cpus;
            if (std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) cpus.push_back(cpu);
        }
    }
    return {};
}

// REQUIRES: every worker has cores.
bool has_crowded_core(const std::vector<WorkerCpus*>& workers) {
    std::map<uint32_t, uint32_t> num_threads;
    for (const WorkerCpus* worker : workers) {
        // As the thread pool takes them.
        for (uint32_t i = 0; i < worker->num_threads; ++i) {
            if (++num_threads[worker->cpus[i % worker->cpus.size()]] > 1) return true;
        }
    }
    return false;
}

// With its cores, the plan of whoever listed them.
Result<> plan_lists(const Config& config,
                    const std::vector<uint32_t>& allowed,
                    bool in_turns,
                    CpuPlan& plan) {
    AFD_TRY(pin_to_lists(config.pin, allowed, plan));
    const auto count = [](uint64_t configured, std::vector<WorkerCpus>& workers) {
        for (WorkerCpus& worker : workers) {
            if (configured == 0) worker.num_threads = static_cast<uint32_t>(worker.cpus.size());
        }
    };
    count(config.attention_threads, plan.attention);
    count(config.ffn_threads, plan.ffn);
    plan.oversubscribed = has_crowded_core(all_workers(plan));
    plan.in_turns = in_turns && plan.oversubscribed && plan.attention[0].cpus == plan.ffn[0].cpus;
    return {};
}

}  // namespace

Result<std::vector<std::vector<uint32_t>>> parse_cpu_lists(const std::string& text) {
    std::vector<std::vector<uint32_t>> lists;
    for (const std::string& part : split(text, ';')) {
        AFD_ASSIGN(std::vector<uint32_t> cpus, parse_list(part));
        lists.push_back(std::move(cpus));
    }
    return lists;
}

Result<CpuPlan> plan_cpus(const Config& config,
                          const std::vector<uint32_t>& allowed,
                          double quota) {
    const size_t num_allowed = std::max<size_t>(1, allowed.size());
    const size_t num_cores = cores_within(quota, num_allowed);
    const uint32_t num_ffn = config.num_ffn_workers();
    // Each side gets half of the cores, unless they take turns; where there is one side, colocated
    // or the other on other hosts, it has all. A quota is time on whatever cores: who waits there
    // for its turn would use it up.
    const bool has_quota = num_cores < num_allowed && !has_lists(config);
    const bool in_turns = !has_quota && take_turns(config, num_allowed);
    const bool is_one_side = num_ffn == 0 || config.attention_workers == 0;
    const size_t side = is_one_side || in_turns ? num_cores : std::max<size_t>(1, num_cores / 2);
    CpuPlan plan;
    plan.attention.resize(config.attention_workers);
    plan.ffn.resize(num_ffn);
    size_t num_threads = 0;
    for (WorkerCpus& worker : plan.attention) {
        worker.num_threads = threads_of(config.attention_threads, side, config.attention_workers);
        num_threads += worker.num_threads;
    }
    for (WorkerCpus& worker : plan.ffn) {
        worker.num_threads = threads_of(config.ffn_threads, side, num_ffn);
        num_threads += worker.num_threads;
    }
    if (has_lists(config)) {
        AFD_TRY(plan_lists(config, allowed, in_turns, plan));
        return plan;
    }
    // More threads than cores: whoever waits must give its core away (threads/thread_pool.h).
    plan.oversubscribed = num_threads > num_allowed;
    plan.in_turns = in_turns && plan.oversubscribed;
    // Containers on one machine do not see each other's claims, and all would choose the same
    // cores.
    if (config.pin == "none" || has_quota) return plan;
    // Pinning is the default because a thread that moves finds none of its data in the new core's
    // caches. Control threads and afdd are left to the kernel: which core they get made no
    // difference that 14 pairs of runs could show.
    const std::vector<WorkerCpus*> workers = all_workers(plan);
    if (plan.oversubscribed) {
        // With any other number of threads some cores would get more of them than others.
        const bool all_on_all =
            std::all_of(workers.begin(), workers.end(), [&](const auto* worker) {
                return worker->num_threads == allowed.size();
            });
        for (WorkerCpus* worker : workers) {
            if (all_on_all) worker->cpus = allowed;
        }
        return plan;
    }
    size_t next = 0;
    for (WorkerCpus* worker : workers) {
        for (uint32_t i = 0; i < worker->num_threads; ++i) {
            worker->cpus.push_back(allowed[next++]);
        }
    }
    return plan;
}

double cpu_quota() {
    return schedule::control_group_cores(schedule::kControlGroupRoot,
                                         schedule::own_control_groups());
}

std::string quota_text(const Config& config, const std::vector<uint32_t>& allowed, double quota) {
    const size_t num_cores = cores_within(quota, allowed.size());
    if (num_cores >= allowed.size() || has_lists(config)) return "";
    return fmt::format(
        "the control group has time for {:.3g} of {} allowed cores: data threads whose number is "
        "not chosen are dealt out as for {}, and none is pinned",
        quota,
        allowed.size(),
        num_cores);
}

std::vector<uint32_t> allowed_cpus() {
    std::vector<uint32_t> cpus;
    // A cpu_set_t holds 1024 cores only, and the call fails on a machine that has more.
    cpu_set_t* set = CPU_ALLOC(kCpuMax + 1);
    const size_t bytes = CPU_ALLOC_SIZE(kCpuMax + 1);
    if (set == nullptr) return {0};
    if (::sched_getaffinity(0, bytes, set) == 0) {
        for (uint32_t cpu = 0; cpu <= kCpuMax; ++cpu) {
            if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
        }
    }
    CPU_FREE(set);
    return cpus.empty() ? std::vector<uint32_t>{0} : cpus;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/core_claims.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace afd::daemon {

namespace {

struct flock lock_of(short type, uint32_t core) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(core);
    lock.l_len = 1;
    return lock;
}

std::vector<uint32_t> pinned_cores(const CpuPlan& plan) {
    std::set<uint32_t> cores;
    for (const auto* workers : {&plan.attention, &plan.ffn}) {
        for (const WorkerCpus& worker : *workers) {
            cores.insert(worker.cpus.begin(), worker.cpus.end());
        }
    }
    return {cores.begin(), cores.end()};
}

}  // namespace

CoreClaims::CoreClaims(const std::string& directory, std::string topology)
    : file_(::open(
          (directory + "/cores.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)),
      topology_(std::move(topology)) {}

Result<CpuPlan> CoreClaims::plan(const std::vector<uint32_t>& allowed,
                                 const PlanWith& plan_with) const {
    AFD_ASSIGN(CpuPlan plan, plan_with(allowed));
    const size_t num_pinned = pinned_cores(plan).size();
    // One that uses all of them stays in the kernel's order, which keeps neighbours together.
    if (num_pinned > 0 && num_pinned < allowed.size()) {
        AFD_ASSIGN(plan, plan_with(by_preference(allowed, num_pinned)));
    }
    claim(pinned_cores(plan));
    return plan;
}

void CoreClaims::hold(const CpuPlan& plan) const {
    if (!file_.valid()) return;
    const std::vector<uint32_t> held = pinned_cores(plan);
    claim(held);
    // The cores between them, and behind the last: those that are held are never free for a moment.
    uint32_t first = 0;
    for (const uint32_t core : held) {
        if (core > first) release(first, core - first);
        first = core + 1;
    }
    constexpr uint32_t kToTheEnd = 0;
    release(first, kToTheEnd);
}

std::vector<uint32_t> CoreClaims::by_preference(const std::vector<uint32_t>& allowed,
                                                size_t num) const {
    std::map<uint32_t, std::tuple<bool, size_t, uint32_t>> ranks;
    for (const uint32_t core : allowed) {
        ranks[core] = {is_claimed_by_other(core), place_among_siblings(core), core};
    }
    std::vector<uint32_t> cores = allowed;
    std::ranges::sort(cores, {}, [&](uint32_t core) { return ranks[core]; });
    const auto rest = cores.begin() + static_cast<std::ptrdiff_t>(std::min(num, cores.size()));
    std::sort(cores.begin(), rest);
    std::sort(rest, cores.end());
    return cores;
}

// Locks of the open file, which no other descriptor of this process ends.
bool CoreClaims::is_claimed_by_other(uint32_t core) const {
    struct flock lock = lock_of(F_WRLCK, core);
    return file_.valid() && ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Shared: during an upgrade, or where cores are too few, each has a claim of its own.
void CoreClaims::claim(const std::vector<uint32_t>& cores) const {
    if (!file_.valid()) return;
    for (const uint32_t core : cores) {
        struct flock lock = lock_of(F_RDLCK, core);
        ::fcntl(file_.get(), F_OFD_SETLK, &lock);
    }
}

void CoreClaims::release(uint32_t first, uint32_t num) const {
    struct flock lock = lock_of(F_UNLCK, first);
    lock.l_len = static_cast<off_t>(num);
    ::fcntl(file_.get(), F_OFD_SETLK, &lock);
}

// "0,64" or "0-1": 0 for the first thread of a physical core, also where nothing is told.
size_t CoreClaims::place_among_siblings(uint32_t core) const {
    std::ifstream file(topology_ + "/cpu" + std::to_string(core) +
                       "/topology/thread_siblings_list");
    std::string text;
    if (!(file >> text)) return 0;
    const auto lists = parse_cpu_lists(text);
    if (!lists.ok() || lists.value().empty()) return 0;
    const std::vector<uint32_t>& siblings = lists.value().front();
    const auto at = std::ranges::find(siblings, core);
    return at == siblings.end() ? 0 : static_cast<size_t>(at - siblings.begin());
}

}  // namespace afd::daemon

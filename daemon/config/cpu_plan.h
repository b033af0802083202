// SPDX-License-Identifier: Apache-2.0
#pragma once

// CpuPlan: how many threads each worker computes with, and on which cores. Pure arithmetic over
// the configuration and the cores that this process may use.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "proto/status.h"

namespace afd::daemon {

struct WorkerCpus {
    uint32_t num_threads = 1;
    std::vector<uint32_t> cpus;  // Empty: not pinned.
};

struct CpuPlan {
    std::vector<WorkerCpus> attention;  // By session.
    std::vector<WorkerCpus> ffn;        // By rank.
    // One attention and one FFN worker that compute on the same cores, one after the other.
    bool in_turns = false;
    // A core has more than one data thread: waiting threads give their core away (R9).
    bool oversubscribed = false;
};

// Parses "0-3;4,6;7": one list of cores per worker, attention workers first, then FFN workers.
// Errors: kInvalidArgument.
Result<std::vector<std::vector<uint32_t>>> parse_cpu_lists(const std::string& text);

// Threads 0 means an equal share of the cores, half of them for each side (all of them when
// colocated), at least one; but of no more cores than `quota` has time for (0: of all), since all
// threads stand still when that is used up. With lists in pin it means a thread for each core of
// the worker's list, whatever the quota.
// One attention and one FFN worker both compute on all of them, in turns, where nothing else was
// chosen (cores, threads, two micro-batches, workers by hand or elsewhere).
// pin = auto deals consecutive cores in the order of the lists if there are enough for all threads,
// gives every worker all cores if each has as many threads, and else pins nothing; nor under a
// quota that leaves cores over.
// Errors: kInvalidArgument if pin's lists do not match the workers or name a forbidden core.
Result<CpuPlan> plan_cpus(const Config& config,
                          const std::vector<uint32_t>& allowed_cpus,
                          double quota = 0);

// How many cores' worth of time the control groups of this process get; 0: all.
double cpu_quota();

// What the log says of a quota that changes the plan; empty: it does not.
std::string quota_text(const Config& config,
                       const std::vector<uint32_t>& allowed_cpus,
                       double quota);

// The cores that this process may run on.
std::vector<uint32_t> allowed_cpus();

}  // namespace afd::daemon

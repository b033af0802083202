// SPDX-License-Identifier: Apache-2.0
#pragma once

// MachineFacts: what an instance needs to know of the machine before it starts, as the kernel tells
// it. Only reading; what it means is the doctor's business (doctor.h).

#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace afd::daemon {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

struct MachineFacts {
    std::string cpu_model;            // Empty: unknown, as all texts.
    std::set<std::string> cpu_flags;  // As /proc/cpuinfo has them.
    uint32_t num_cores = 0;           // That this process may run on.
    double cpu_quota = 0;             // Cores' worth of time that its cgroup gets; 0: all.
    bool has_memfd = false;           // Files in memory can be made.
    // Available: as the kernel estimates it, and as its cgroups leave it. kUnlimited: unknown.
    uint64_t memory_bytes = 0;
    // Limits: kUnlimited if there is none.
    uint64_t nofile = 0;  // To which afdd raises its own (descriptor_limit.h).
    uint64_t memlock = 0;
    uint64_t address_space = 0;
    std::string huge_pages;    // Transparent ones: always, madvise or never.
    std::string clock_source;  // tsc, kvm-clock, hpet, ...
    double clock_ns = 0;       // What reading CLOCK_MONOTONIC takes.
};

MachineFacts read_machine();

}  // namespace afd::daemon

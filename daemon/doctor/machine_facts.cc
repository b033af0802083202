// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/machine_facts.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "daemon/config/cpu_plan.h"
#include "schedule/shared_memory/memory_room.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// The value of the first line "key : value".
std::string value_of(const std::string& path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if (!line.starts_with(key) || colon == std::string::npos) continue;
        const size_t start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? "" : line.substr(start);
    }
    return "";
}

rlimit limits_of(__rlimit_resource_t resource) {
    rlimit limit{};
    ::getrlimit(resource, &limit);
    return limit;
}

uint64_t number_of(rlim_t limit) {
    return limit == RLIM_INFINITY ? kUnlimited : limit;
}

// "always [madvise] never": the one in brackets.
std::string chosen(const std::string& line) {
    const size_t open = line.find('[');
    const size_t end = line.find(']');
    if (open == std::string::npos || end == std::string::npos || end < open) return "";
    return line.substr(open + 1, end - open - 1);
}

// The least of short runs: a longer one that is interrupted would have the interruption in it.
double measure_clock_ns() {
    constexpr int kRuns = 20;
    constexpr int kReads = 500;
    uint64_t least_ns = UINT64_MAX;
    for (int run = 0; run < kRuns; ++run) {
        const uint64_t start_ns = schedule::steady_now_ns();
        uint64_t last_ns = start_ns;
        for (int i = 0; i < kReads; ++i) last_ns = schedule::steady_now_ns();
        least_ns = std::min(least_ns, last_ns - start_ns);
    }
    return static_cast<double>(least_ns) / kReads;
}

}  // namespace

MachineFacts read_machine() {
    MachineFacts facts;
    facts.cpu_model = value_of("/proc/cpuinfo", "model name");
    std::istringstream flags(value_of("/proc/cpuinfo", "flags"));
    for (std::string flag; flags >> flag;) facts.cpu_flags.insert(flag);
    facts.num_cores = static_cast<uint32_t>(allowed_cpus().size());
    facts.cpu_quota = cpu_quota();
    const int file = ::memfd_create("afd-doctor", MFD_CLOEXEC);
    facts.has_memfd = file >= 0;
    if (file >= 0) ::close(file);
    facts.memory_bytes = schedule::available_memory_bytes();
    facts.nofile = number_of(limits_of(RLIMIT_NOFILE).rlim_max);
    facts.memlock = number_of(limits_of(RLIMIT_MEMLOCK).rlim_cur);
    facts.address_space = number_of(limits_of(RLIMIT_AS).rlim_cur);
    facts.huge_pages = chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
    facts.clock_source =
        first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    facts.clock_ns = measure_clock_ns();
    return facts;
}

}  // namespace afd::daemon

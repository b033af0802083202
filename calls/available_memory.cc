// SPDX-License-Identifier: Apache-2.0
#include "calls/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace afd::calls {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kAlwaysThere = uint64_t{16} << 20;

uint64_t machine_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    for (uint64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
        if (name == "MemAvailable:") return kib * 1024;
    }
    return kUnlimited;
}

// Of control groups, version 2; "max" is no number.
uint64_t group_bytes() {
    std::ifstream own("/proc/self/cgroup");
    std::string line;
    std::getline(own, line);
    if (line.rfind("0::", 0) != 0) return kUnlimited;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3) + "/memory.";
    uint64_t most = 0;
    uint64_t used = 0;
    if (!(std::ifstream(folder + "max") >> most)) return kUnlimited;
    if (!(std::ifstream(folder + "current") >> used)) return kUnlimited;
    return most - std::min(most, used);
}

}  // namespace

uint64_t available_memory(uint64_t needed) {
    if (needed <= kAlwaysThere) return kUnlimited;
    return std::min(machine_bytes(), group_bytes());
}

}  // namespace afd::calls

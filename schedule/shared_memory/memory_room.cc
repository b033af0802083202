// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/memory_room.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

constexpr uint64_t kNoLimit = UINT64_MAX;

std::optional<uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    uint64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;  // No such file, or "max".
}

uint64_t machine_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        uint64_t kib = 0;
        if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
    }
    return kNoLimit;
}

// Where the hierarchy is mounted elsewhere nothing is found, and the machine's memory counts.
uint64_t control_group_bytes() {
    constexpr const char* kRoot = "/sys/fs/cgroup";
    std::ifstream file("/proc/self/cgroup");
    std::string group;
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("0::", 0) == 0) group = line.substr(3);
    }
    uint64_t least = kNoLimit;
    while (true) {
        const std::string directory = kRoot + (group == "/" ? "" : group);
        const auto limit = number_in(directory + "/memory.max");
        const auto used = number_in(directory + "/memory.current");
        if (limit && used) least = std::min(least, *limit - std::min(*limit, *used));
        const size_t parent = group.rfind('/');
        if (group.empty() || parent == std::string::npos) return least;
        group.resize(parent);
    }
}

}  // namespace

uint64_t available_memory_bytes() {
    return std::min(machine_bytes(), control_group_bytes());
}

Result<> check_memory_room(const std::string& what, uint64_t size_bytes) {
    const uint64_t available_bytes = available_memory_bytes();
    if (size_bytes <= available_bytes) return {};
    return resource_exhausted(
        "{} needs {} bytes of shared memory but {} are available; lower attention_workers, "
        "micro_batches or micro_batch_size, or raise the memory limit of the control group",
        with(what, size_bytes, available_bytes));
}

}  // namespace afd::schedule

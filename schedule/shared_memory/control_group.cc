// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/control_group.h"

#include <algorithm>
#include <fstream>
#include <optional>

namespace afd::schedule {
namespace {

std::optional<uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    uint64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;  // No such file, or "max".
}

// Clean file pages go at once, dirty ones once they are written. What is locked, or a tmpfs's, is
// on other lists.
uint64_t reclaimable_bytes(const std::string& directory) {
    std::ifstream file(directory + "/memory.stat");
    std::string name;
    uint64_t sum_bytes = 0;
    for (uint64_t bytes = 0; file >> name >> bytes;) {
        if (name == "inactive_file" || name == "active_file" || name == "slab_reclaimable") {
            sum_bytes += bytes;
        }
    }
    return sum_bytes;
}

uint64_t room_bytes(const std::string& directory) {
    const auto limit = number_in(directory + "/memory.max");
    const auto current = number_in(directory + "/memory.current");
    if (!limit || !current) return kNoMemoryLimit;
    const uint64_t used = *current - std::min(*current, reclaimable_bytes(directory));
    return *limit - std::min(*limit, used);
}

}  // namespace

std::string own_control_group() {
    std::ifstream file("/proc/self/cgroup");
    std::string group;
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("0::", 0) == 0) group = line.substr(3);
    }
    return group;
}

uint64_t control_group_room_bytes(const std::string& root, std::string group) {
    if (group == "/") group.clear();
    uint64_t least = room_bytes(root + group);
    while (!group.empty()) {
        const size_t parent = group.rfind('/');
        group.resize(parent == std::string::npos ? 0 : parent);
        least = std::min(least, room_bytes(root + group));
    }
    return least;
}

}  // namespace afd::schedule

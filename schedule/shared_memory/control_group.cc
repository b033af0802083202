// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/control_group.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

namespace afd::schedule {
namespace {

// What version 1 has as a limit where none is set: the largest multiple of a page.
constexpr uint64_t kUnlimitedV1 = uint64_t{1} << 62;

std::optional<int64_t> signed_in(const std::string& path) {
    std::ifstream file(path);
    int64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;  // No such file, or "max".
}

std::optional<uint64_t> number_in(const std::string& path) {
    const auto number = signed_in(path);
    if (!number || *number < 0) return std::nullopt;
    return static_cast<uint64_t>(*number);
}

// The number behind a name in a file of lines "name number".
std::optional<uint64_t> number_of(const std::string& path, const std::string& wanted) {
    std::ifstream file(path);
    std::string name;
    for (uint64_t number = 0; file >> name >> number;) {
        if (name == wanted) return number;
    }
    return std::nullopt;
}

// Clean file pages go at once, dirty ones once they are written. What is locked, or a tmpfs's, is
// on other lists. `prefix`: version 1 has sums over the groups below beside a group's own.
uint64_t reclaimable_bytes(const std::string& directory, const std::string& prefix) {
    // The file is read once: the kernel sums up the whole group for each reading.
    std::ifstream file(directory + "/memory.stat");
    uint64_t sum_bytes = 0;
    std::string name;
    for (uint64_t number = 0; file >> name >> number;) {
        for (const char* list : {"inactive_file", "active_file", "slab_reclaimable"}) {
            if (name == prefix + list) sum_bytes += number;
        }
    }
    return sum_bytes;
}

// The files of a group's memory, which differ in their names.
struct MemoryFiles {
    const char* limit;
    const char* current;
    const char* prefix;  // Of the sums in memory.stat.
};

constexpr MemoryFiles kVersion2 = {"/memory.max", "/memory.current", ""};
constexpr MemoryFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"};

// What is not needed is not read: each file costs ten microseconds, memory.stat more.
uint64_t room_of(const std::string& directory, const MemoryFiles& files, uint64_t wanted_bytes) {
    const auto limit = number_in(directory + files.limit);
    if (!limit || *limit >= kUnlimitedV1) return kNoMemoryLimit;
    const auto current = number_in(directory + files.current);
    if (!current) return kNoMemoryLimit;
    const uint64_t unused = *limit - std::min(*limit, *current);
    if (unused >= wanted_bytes) return unused;
    const uint64_t reclaimable = reclaimable_bytes(directory, files.prefix);
    return *limit - std::min(*limit, *current - std::min(*current, reclaimable));
}

// "max 100000" or "150000 100000": microseconds of a period.
double cores_v2(const std::string& directory) {
    std::ifstream file(directory + "/cpu.max");
    double quota = 0;
    double period = 0;
    return file >> quota >> period && period > 0 ? quota / period : 0;
}

double cores_v1(const std::string& directory) {
    const auto quota = signed_in(directory + "/cpu.cfs_quota_us");
    const auto period = signed_in(directory + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

// For the group's directory and those above it.
void for_each_above(const std::string& mount,
                    std::string group,
                    const std::function<void(const std::string& directory)>& visit) {
    if (group == "/") group.clear();
    visit(mount + group);
    while (!group.empty()) {
        const size_t parent = group.rfind('/');
        group.resize(parent == std::string::npos ? 0 : parent);
        visit(mount + group);
    }
}

}  // namespace

// "0::/user.slice" of version 2; "4:cpu,cpuacct:/user" of version 1.
ControlGroups parse_control_groups(const std::string& text) {
    ControlGroups groups;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string group = line.substr(second + 1);
        if (names == ",,") groups.unified = group;
        if (names.find(",memory,") != std::string::npos) groups.memory = group;
        if (names.find(",cpu,") != std::string::npos) groups.cpu = group;
    }
    return groups;
}

ControlGroups own_control_groups() {
    std::ifstream file("/proc/self/cgroup");
    return parse_control_groups({std::istreambuf_iterator<char>(file), {}});
}

uint64_t control_group_room_bytes(const std::string& root,
                                  const ControlGroups& groups,
                                  uint64_t wanted_bytes) {
    uint64_t least = kNoMemoryLimit;
    for_each_above(root, groups.unified, [&](const std::string& directory) {
        least = std::min(least, room_of(directory, kVersion2, wanted_bytes));
    });
    for_each_above(root + "/memory", groups.memory, [&](const std::string& directory) {
        least = std::min(least, room_of(directory, kVersion1, wanted_bytes));
    });
    return least;
}

double control_group_cores(const std::string& root, const ControlGroups& groups) {
    double least = 0;
    const auto take = [&](double cores) {
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
    };
    for_each_above(
        root, groups.unified, [&](const std::string& directory) { take(cores_v2(directory)); });
    for_each_above(root + "/cpu", groups.cpu, [&](const std::string& directory) {
        take(cores_v1(directory));
    });
    return least;
}

std::optional<uint64_t> control_group_oom_kills(const std::string& root,
                                                const ControlGroups& groups) {
    for (const std::string& directory : {root + groups.unified, root}) {
        const auto kills = number_of(directory + "/memory.events", "oom_kill");
        if (kills) return kills;
    }
    for (const std::string& directory : {root + "/memory" + groups.memory, root + "/memory"}) {
        const auto kills = number_of(directory + "/memory.oom_control", "oom_kill");
        if (kills) return kills;
    }
    return std::nullopt;
}

}  // namespace afd::schedule

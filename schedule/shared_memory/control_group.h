// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the limits of control groups leave to this process, of version 2 and of version 1, where
// each controller has a hierarchy of its own. A machine may have both; the least counts.
//
// `root` is where the hierarchies are mounted. A limit may stand at any group above the own one.
// Inside of a container the own group's path is often the host's: what is not found there is read
// at the root, which is the container's group.

#include <cstdint>
#include <optional>
#include <string>

namespace afd::schedule {

inline constexpr uint64_t kNoMemoryLimit = UINT64_MAX;
inline constexpr const char* kControlGroupRoot = "/sys/fs/cgroup";

// The groups of a process, each from its mount on: "/" or "/system.slice/afdd.service". Empty: it
// is in none.
struct ControlGroups {
    std::string unified;  // Version 2.
    std::string memory;   // Version 1, by controller.
    std::string cpu;
};

// Of a text as /proc/self/cgroup has it; and of this process.
ControlGroups parse_control_groups(const std::string& text);
ControlGroups own_control_groups();

// Of a group: its limit less what is in use, which is its usage less what the kernel gives back by
// itself before it refuses anything: file pages (mapped weights among them) and reclaimable slab.
// Shared memory is not among them: it is swap-backed and counts as anonymous in memory.stat. Groups
// without a limit, or whose files cannot be read, leave kNoMemoryLimit. `wanted_bytes`: where there
// are as many, the answer may be less than all that there are, and takes less time.
uint64_t control_group_room_bytes(const std::string& root,
                                  const ControlGroups& groups,
                                  uint64_t wanted_bytes = UINT64_MAX);

// How many cores' worth of time the groups get; 0: all.
double control_group_cores(const std::string& root, const ControlGroups& groups);

// How many processes of the own group the kernel has killed because memory ran out. Nothing: it
// does not count them.
std::optional<uint64_t> control_group_oom_kills(const std::string& root,
                                                const ControlGroups& groups);

}  // namespace afd::schedule

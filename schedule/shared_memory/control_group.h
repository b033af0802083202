// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory the limits of a control group (version 2) leave.

#include <cstdint>
#include <string>

namespace afd::schedule {

inline constexpr uint64_t kNoMemoryLimit = UINT64_MAX;

// The group of this process, from the mount on: "/" or "/system.slice/afdd.service". Empty if it
// is in none.
std::string own_control_group();

// The least of what `group` and the groups above it leave. `root` is where the hierarchy is
// mounted. Of a group: memory.max less what is in use, which is memory.current less what the kernel
// gives back by itself before it refuses anything: file pages (mapped weights among them) and
// reclaimable slab. Shared memory is not among them: it is swap-backed and counts as anonymous in
// memory.stat. A group without a limit, or whose files cannot be read, leaves kNoMemoryLimit.
uint64_t control_group_room_bytes(const std::string& root, std::string group);

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory this machine, or this process's control group, has left for segments. They are
// not in the file system of /dev/shm, so its size does not bound them.

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace afd::schedule {

// The smaller of MemAvailable (/proc/meminfo), of which the part on the memory nodes counts that
// this process may use (memory_nodes.h), and of what the control group and those above it leave
// (control_group.h). Memory that the kernel gives back by itself counts as available in both.
// UINT64_MAX if nobody says. `wanted_bytes`: where there are as many, the answer may be less than
// all that there are, and takes less time.
uint64_t available_memory_bytes(uint64_t wanted_bytes = UINT64_MAX);

// " on the memory nodes that it may use", where this process may not use all; else empty: for a
// message that says what is available.
std::string available_where();

// Whether there is room for `size_bytes` more; `what` needs them. `remedy`: what to do if there is
// not, besides giving the machine or the control group more.
// Errors: kResourceExhausted, naming what, the bytes, what is available and what to do.
Result<> check_memory_room(const std::string& what, uint64_t size_bytes, const std::string& remedy);

}  // namespace afd::schedule

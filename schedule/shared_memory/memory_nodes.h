// SPDX-License-Identifier: Apache-2.0
#pragma once

// From which memory nodes (NUMA) this process may take memory, and what of the machine's they have:
// of numactl --membind, and of a cpuset's mems. A process that is bound to nodes without room is
// killed beside others that are empty.

#include <cstdint>
#include <istream>
#include <optional>
#include <set>
#include <string>

namespace afd::schedule {

inline constexpr const char* kMemoryNodesRoot = "/sys/devices/system/node";

// Of this thread. Where get_mempolicy may not be called (containers, a worker's own filter), a
// cpuset's mems without what a policy leaves of them. Nothing: the kernel does not say.
std::optional<std::set<uint32_t>> allowed_memory_nodes();

// Those of Mems_allowed_list, as /proc/thread-self/status has it. Nothing: it is not there, or not
// to be understood.
std::optional<std::set<uint32_t>> memory_nodes_of_status(std::istream& status);

// The part of `machine_bytes`, which are available on all nodes together, that is on `allowed`. The
// kernel estimates what is available for the machine alone; of a node this goes by what is free,
// and by what is given back first: file pages and slab. `root`: where the kernel shows the nodes;
// without them all is there.
uint64_t available_on_nodes(const std::string& root,
                            const std::set<uint32_t>& allowed,
                            uint64_t machine_bytes);

// Whether nodes have room that are not `allowed`.
bool has_other_nodes(const std::string& root, const std::set<uint32_t>& allowed);

}  // namespace afd::schedule

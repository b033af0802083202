// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/memory_room.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "proto/failure.h"
#include "schedule/shared_memory/control_group.h"
#include "schedule/shared_memory/memory_nodes.h"

namespace afd::schedule {
namespace {

uint64_t machine_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        uint64_t kib = 0;
        if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
    }
    return kNoMemoryLimit;
}

uint64_t machine_bytes_for_us() {
    const uint64_t bytes = machine_bytes();
    const auto nodes = allowed_memory_nodes();
    if (bytes == kNoMemoryLimit || !nodes) return bytes;
    return available_on_nodes(kMemoryNodesRoot, *nodes, bytes);
}

}  // namespace

uint64_t available_memory_bytes(uint64_t wanted_bytes) {
    // Where the hierarchy is mounted elsewhere nothing is found, and the machine's memory counts.
    return std::min(
        machine_bytes_for_us(),
        control_group_room_bytes(kControlGroupRoot, own_control_groups(), wanted_bytes));
}

std::string available_where() {
    const auto nodes = allowed_memory_nodes();
    if (!nodes || !has_other_nodes(kMemoryNodesRoot, *nodes)) return "";
    return " on the memory nodes that it may use";
}

Result<> check_memory_room(const std::string& what,
                           uint64_t size_bytes,
                           const std::string& remedy) {
    const uint64_t available_bytes = available_memory_bytes(size_bytes);
    if (size_bytes <= available_bytes) return {};
    return resource_exhausted(
        "{} needs {} bytes of memory but {} are available; {}, or raise the memory limit of the "
        "control group",
        with(what, size_bytes, available_bytes, remedy));
}

}  // namespace afd::schedule

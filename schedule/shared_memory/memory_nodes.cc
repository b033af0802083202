// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace afd::schedule {
namespace {

constexpr size_t kNodesMax = 1024;  // Of a kernel's largest configuration.
constexpr size_t kWordBits = 8 * sizeof(unsigned long);

using NodeMask = std::array<unsigned long, kNodesMax / kWordBits>;

std::set<uint32_t> nodes_of(const NodeMask& mask) {
    std::set<uint32_t> nodes;
    for (uint32_t node = 0; node < kNodesMax; ++node) {
        if ((mask[node / kWordBits] >> (node % kWordBits) & 1) != 0) nodes.insert(node);
    }
    return nodes;
}

// "node12"; nothing: it is another entry of the directory.
std::optional<uint32_t> node_number(std::string_view name) {
    constexpr std::string_view kPrefix = "node";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    uint32_t number = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return number;
}

// "0-2,5".
std::optional<std::set<uint32_t>> parse_nodes(const std::string& text) {
    std::set<uint32_t> nodes;
    std::istringstream list(text);
    for (std::string range; std::getline(list, range, ',');) {
        const char* const end = range.data() + range.size();
        uint32_t first = 0;
        auto parsed = std::from_chars(range.data(), end, first);
        uint32_t last = first;
        if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
            parsed = std::from_chars(parsed.ptr + 1, end, last);
        }
        if (parsed.ec != std::errc() || parsed.ptr != end || last >= kNodesMax) return std::nullopt;
        for (uint32_t node = first; node <= last; ++node) nodes.insert(node);
    }
    return nodes;
}

// Lines are "Node 0 MemFree:  1024 kB".
uint64_t room_of(const std::filesystem::path& meminfo) {
    std::ifstream file(meminfo);
    uint64_t sum_kib = 0;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        std::string name;
        uint32_t node = 0;
        uint64_t kib = 0;
        if (!(words >> word >> node >> name >> kib)) continue;
        for (const char* part : {"MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:"}) {
            if (name == part) sum_kib += kib;
        }
    }
    return sum_kib * 1024;
}

struct Room {
    uint64_t on_all = 0;
    uint64_t on_allowed = 0;
};

Room room_on(const std::string& root, const std::set<uint32_t>& allowed) {
    Room room;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
        const auto node = node_number(entry.path().filename().string());
        if (!node) continue;
        const uint64_t bytes = room_of(entry.path() / "meminfo");
        room.on_all += bytes;
        if (allowed.contains(*node)) room.on_allowed += bytes;
    }
    return room;
}

}  // namespace

std::optional<std::set<uint32_t>> memory_nodes_of_status(std::istream& status) {
    for (std::string line; std::getline(status, line);) {
        std::istringstream words(line);
        std::string name;
        std::string list;
        if (words >> name >> list && name == "Mems_allowed_list:") return parse_nodes(list);
    }
    return std::nullopt;
}

std::optional<std::set<uint32_t>> allowed_memory_nodes() {
    NodeMask mask{};
    if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), kNodesMax, 0, MPOL_F_MEMS_ALLOWED) !=
        0) {
        std::ifstream status("/proc/thread-self/status");
        return memory_nodes_of_status(status);
    }
    NodeMask bound{};
    int mode = 0;
    // Other policies prefer nodes, and take others where there is no room.
    if (::syscall(SYS_get_mempolicy, &mode, bound.data(), kNodesMax, 0, 0) == 0 &&
        (mode & ~MPOL_MODE_FLAGS) == MPOL_BIND) {
        for (size_t i = 0; i < mask.size(); ++i) mask[i] &= bound[i];
    }
    return nodes_of(mask);
}

uint64_t available_on_nodes(const std::string& root,
                            const std::set<uint32_t>& allowed,
                            uint64_t machine_bytes) {
    const Room room = room_on(root, allowed);
    if (room.on_allowed == room.on_all) return machine_bytes;
    const double part = static_cast<double>(room.on_allowed) / static_cast<double>(room.on_all);
    return static_cast<uint64_t>(part * static_cast<double>(machine_bytes));
}

bool has_other_nodes(const std::string& root, const std::set<uint32_t>& allowed) {
    const Room room = room_on(root, allowed);
    return room.on_allowed < room.on_all;
}

}  // namespace afd::schedule

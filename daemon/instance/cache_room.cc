// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/cache_room.h"

#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <filesystem>
#include <system_error>

namespace afd::daemon {

std::string CacheRoom::warning(const std::string& directory) const {
    if (lacking_bytes() == 0) return "";
    return fmt::format(
        "the weight cache {} lacks {} MiB of packed experts, and its file system has {} MiB free: "
        "what finds no room is packed at each start, into private memory of each worker; make "
        "room, or name another weight_cache",
        directory,
        missing_bytes >> 20,
        free_bytes >> 20);
}

CacheRoom room_at(const std::string& directory, uint64_t missing_bytes) {
    CacheRoom room{.missing_bytes = missing_bytes};
    std::error_code error;
    std::filesystem::path there = std::filesystem::absolute(directory, error);
    while (there.has_relative_path() && !std::filesystem::exists(there, error)) {
        there = there.parent_path();
    }
    struct statfs found {};
    if (::statfs(there.c_str(), &found) != 0) return room;
    // A ramfs tells no size.
    const bool is_ramfs = found.f_type == RAMFS_MAGIC;
    room.is_memory = is_ramfs || found.f_type == TMPFS_MAGIC;
    if (is_ramfs) return room;
    room.free_bytes = uint64_t{found.f_bavail} * static_cast<uint64_t>(found.f_bsize);
    return room;
}

}  // namespace afd::daemon

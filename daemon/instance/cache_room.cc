// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/cache_room.h"

#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace afd::daemon {

std::string CacheRoom::warning(const std::string& directory) const {
    if (lacking_bytes() == 0) return "";
    return fmt::format(
        "the weight cache {} lacks {} MiB of packed experts, and {}: what finds no room is packed "
        "at each start, into private memory of each worker; make {}, or name another weight_cache",
        directory,
        missing_bytes >> 20,
        is_writable ? fmt::format("its file system has {} MiB free", free_bytes >> 20)
                    : "cannot be written",
        is_writable ? "room" : "it writable");
}

CacheRoom room_at(const std::string& directory, const model::CacheBytes& bytes) {
    CacheRoom room{.all_bytes = bytes.all, .missing_bytes = bytes.missing};
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
    // Knows of file systems that are mounted read-only, too.
    room.is_writable = ::access(there.c_str(), W_OK) == 0;
    if (!room.is_writable) {
        room.free_bytes = 0;
        return room;
    }
    if (is_ramfs) return room;
    room.free_bytes = uint64_t{found.f_bavail} * static_cast<uint64_t>(found.f_bsize);
    return room;
}

CacheRoom room_for_experts(const std::string& directory,
                           const model::ModelFiles& files,
                           ops::NumericClass numeric_class) {
    return room_at(directory, model::ExpertCache::bytes_in(directory, files, numeric_class));
}

}  // namespace afd::daemon

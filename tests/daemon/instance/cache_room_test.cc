// SPDX-License-Identifier: Apache-2.0
//
// Goal: too small a disk for the weight cache is known before anything is packed. Method: file
// systems that every Linux has. Oracle: what statvfs() and the kernel's list of mounts say.
#include "daemon/instance/cache_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <fstream>

#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// Of the file system that is mounted at `place`; empty: none is.
std::string type_at(const std::string& place) {
    std::ifstream mounts("/proc/self/mounts");
    std::string found;
    for (std::string device, at, type, rest;
         mounts >> device >> at >> type && std::getline(mounts, rest);) {
        if (at == place) found = type;
    }
    return found;
}

TEST(CacheRoom, IsThatOfTheFileSystem) {
    const test::TemporaryDirectory directory;
    struct statvfs before {};
    ASSERT_EQ(::statvfs(directory.path().c_str(), &before), 0);
    const CacheRoom room = room_at(directory.path("not/there/yet"), 7);
    EXPECT_EQ(room.missing_bytes, 7u);
    // Others use it, too.
    const auto free = static_cast<double>(before.f_bavail * before.f_frsize);
    EXPECT_NEAR(static_cast<double>(room.free_bytes), free, 1e9 + free / 10);
    EXPECT_EQ(room_at("no/directory", 7).missing_bytes, 7u);
}

TEST(CacheRoom, KnowsMemory) {
    EXPECT_EQ(room_at("/dev/shm/afd", 0).is_memory, type_at("/dev/shm") == "tmpfs");
    EXPECT_FALSE(room_at("/proc/self", 0).is_memory);
}

TEST(CacheRoom, WarnsWithBothNumbers) {
    CacheRoom room{.missing_bytes = uint64_t{3} << 30, .free_bytes = uint64_t{3} << 30};
    EXPECT_EQ(room.warning("/cache"), "");
    room.free_bytes = uint64_t{1} << 30;
    EXPECT_EQ(room.lacking_bytes(), uint64_t{2} << 30);
    EXPECT_THAT(room.warning("/cache"),
                HasSubstr("the weight cache /cache lacks 3072 MiB of packed experts, and its file "
                          "system has 1024 MiB free: "));
    EXPECT_EQ(CacheRoom().warning("/cache"), "");
}

}  // namespace
}  // namespace afd::daemon

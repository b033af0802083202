// SPDX-License-Identifier: Apache-2.0
//
// Goal: too small a disk for the weight cache is known before anything is packed. Method: file
// systems that every Linux has. Oracle: what statvfs() and the kernel's list of mounts say.
#include "daemon/instance/cache_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

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
    const CacheRoom room = room_at(directory.path("not/there/yet"), {.all = 9, .missing = 7});
    EXPECT_EQ(room.all_bytes, 9u);
    EXPECT_EQ(room.missing_bytes, 7u);
    EXPECT_TRUE(room.is_writable);
    // Others use it, too.
    const auto free = static_cast<double>(before.f_bavail * before.f_frsize);
    EXPECT_NEAR(static_cast<double>(room.free_bytes), free, 1e9 + free / 10);
    EXPECT_EQ(room_at("no/directory", {.all = 9, .missing = 7}).missing_bytes, 7u);
}

TEST(CacheRoom, KnowsMemory) {
    EXPECT_EQ(room_at("/dev/shm/afd", {}).is_memory, type_at("/dev/shm") == "tmpfs");
    EXPECT_FALSE(room_at("/proc/self", {}).is_memory);
}

// Goal: where nothing can be written, all that is missing finds no room. Method: a directory
// without the right to write, for a user who has no rights beyond. Oracle: no byte is free; the
// warning.
TEST(CacheRoom, IsNoneWhereNothingCanBeWritten) {
    const test::TemporaryDirectory directory;
    ASSERT_EQ(::chmod(directory.path().c_str(), 0555), 0);
    constexpr uid_t kNobody = 65534;
    const auto outcome = [&] {
        if (::getuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 2;
        const uint64_t bytes = uint64_t{3} << 20;
        const CacheRoom room = room_at(directory.path("cache"), {.all = bytes, .missing = bytes});
        if (room.is_writable || room.free_bytes != 0 || room.lacking_bytes() != bytes) return 3;
        const std::string warning = room.warning("/cache");
        const auto says = [&](const char* part) { return warning.find(part) != std::string::npos; };
        if (!says("the weight cache /cache lacks 3 MiB of packed experts, and cannot be written: "))
            return 4;
        return says("; make it writable, or name another weight_cache") ? 0 : 5;
    };
    EXPECT_EXIT(::_exit(outcome()), testing::ExitedWithCode(0), "");
    // None that is missing needs none.
    EXPECT_EQ(room_at(directory.path(), {.all = 9}).warning("/cache"), "");
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

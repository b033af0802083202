// SPDX-License-Identifier: Apache-2.0
//
// Goal: a container's page cache does not take the room of segments away. Method: a tree of files
// as the kernel shows them. Oracle: the sums, by hand.
#include "schedule/shared_memory/control_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "schedule/shared_memory/memory_room.h"
#include "schedule/shared_memory/oom_watch.h"

namespace afd::schedule {
namespace {

class ControlGroup : public testing::Test {
  protected:
    ControlGroup()
        : root_(std::filesystem::temp_directory_path() /
                ("afd-control-group-" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(root_);
    }
    ~ControlGroup() override { std::filesystem::remove_all(root_); }

    void write(const std::string& group, const std::string& name, const std::string& text) {
        std::filesystem::create_directories(root_.string() + group);
        std::ofstream(root_.string() + group + "/" + name) << text << "\n";
    }
    // Max, current, and what of it a container that has read its weights shows.
    void write_with_cache(const std::string& group) {
        write(group, "memory.max", "100");
        write(group, "memory.current", "95");
        write(group, "memory.stat", "anon 9\nfile 86\nshmem 6\ninactive_file 60\nactive_file 20");
    }
    uint64_t room(const std::string& group, uint64_t wanted_bytes = UINT64_MAX) const {
        return control_group_room_bytes(
            root_.string(), {.unified = group, .memory = "", .cpu = ""}, wanted_bytes);
    }

    std::filesystem::path root_;
};

TEST_F(ControlGroup, FilePagesAndSlabThatTheKernelGivesBackAreRoom) {
    write_with_cache("/pod");
    EXPECT_EQ(room("/pod"), 85u);
    write("/pod", "memory.stat", "inactive_file 60\nactive_file 20\nslab_reclaimable 5\nslab 7");
    EXPECT_EQ(room("/pod"), 90u);
}

TEST_F(ControlGroup, WithoutMemoryStatAllThatIsInUseCounts) {
    write("/pod", "memory.max", "100");
    write("/pod", "memory.current", "95");
    EXPECT_EQ(room("/pod"), 5u);
    write("/pod", "memory.current", "120");
    EXPECT_EQ(room("/pod"), 0u) << "a limit that was lowered below what is in use";
    write("/pod", "memory.stat", "inactive_file 1000");
    EXPECT_EQ(room("/pod"), 100u) << "more given back than in use: read at another time";
}

TEST_F(ControlGroup, WhatIsUnusedAnswersWhoWantsNoMore) {
    write_with_cache("/pod");
    EXPECT_EQ(room("/pod", 5), 5u);
    EXPECT_EQ(room("/pod", 6), 85u);
    EXPECT_EQ(room("/pod", 86), 85u);
}

TEST_F(ControlGroup, TheGroupWithTheLeastRoomDecides) {
    write_with_cache("/pods/pod/container");
    write("/pods/pod", "memory.max", "max");
    write("/pods/pod", "memory.current", "95");
    EXPECT_EQ(room("/pods/pod/container"), 85u);
    write("/pods", "memory.max", "200");
    write("/pods", "memory.current", "180");
    EXPECT_EQ(room("/pods/pod/container"), 20u);
    EXPECT_EQ(room("/pods"), 20u);
}

// Inside of a container the root has the container's limit, as everywhere else it has none.
TEST_F(ControlGroup, TheRootOfAContainerHasALimit) {
    EXPECT_EQ(room("/"), kNoMemoryLimit);
    EXPECT_EQ(room(""), kNoMemoryLimit);
    write_with_cache("");
    EXPECT_EQ(room("/"), 85u);
    EXPECT_EQ(room("/unknown/here"), 85u);
}

// As systemd mounts version 1, and as a container sees it: at the root of its own hierarchy, under
// a path that is the host's.
TEST_F(ControlGroup, VersionOneHasALimitPerHierarchy) {
    const ControlGroups groups{.unified = "/", .memory = "/docker/abc", .cpu = "/docker/abc"};
    const auto left = [&] { return control_group_room_bytes(root_.string(), groups); };
    write("/memory/docker", "memory.limit_in_bytes", "9223372036854771712");
    write("/memory/docker", "memory.usage_in_bytes", "500");
    EXPECT_EQ(left(), kNoMemoryLimit);
    write("/memory/docker/abc", "memory.limit_in_bytes", "100");
    write("/memory/docker/abc", "memory.usage_in_bytes", "95");
    write("/memory/docker/abc",
          "memory.stat",
          "inactive_file 1\ntotal_inactive_file 50\ntotal_active_file 20");
    EXPECT_EQ(left(), 75u);
    write("/memory", "memory.limit_in_bytes", "30");
    write("/memory", "memory.usage_in_bytes", "10");
    EXPECT_EQ(left(), 20u);
}

TEST_F(ControlGroup, TheSmallestQuotaOfTheOwnGroupAndThoseAboveCounts) {
    ControlGroups groups{.unified = "/system.slice/afdd.service", .memory = "", .cpu = "/afdd"};
    const auto cores = [&] { return control_group_cores(root_.string(), groups); };
    EXPECT_EQ(cores(), 0);
    write("/system.slice/afdd.service", "cpu.max", "max 100000");
    EXPECT_EQ(cores(), 0);
    write("/system.slice", "cpu.max", "150000 100000");
    EXPECT_EQ(cores(), 1.5);
    write("/cpu/afdd", "cpu.cfs_quota_us", "-1");
    write("/cpu/afdd", "cpu.cfs_period_us", "100000");
    EXPECT_EQ(cores(), 1.5);
    write("/cpu/afdd", "cpu.cfs_quota_us", "50000");
    EXPECT_EQ(cores(), 0.5);
}

TEST_F(ControlGroup, CountsWhatTheKernelKilledForMemory) {
    const auto kills = [&](const ControlGroups& groups) {
        return control_group_oom_kills(root_.string(), groups);
    };
    EXPECT_EQ(kills({.unified = "/pod", .memory = "/pod", .cpu = ""}), std::nullopt);
    write("/memory/pod", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2");
    EXPECT_EQ(kills({.unified = "/", .memory = "/pod", .cpu = ""}), 2u);
    write("/pod", "memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 1");
    EXPECT_EQ(kills({.unified = "/pod", .memory = "", .cpu = ""}), 1u);
}

TEST_F(ControlGroup, EachOfTheKernelsKillsIsTheEndOfOneProcess) {
    const ControlGroups groups{.unified = "/pod", .memory = "", .cpu = ""};
    write("/pod", "memory.events", "oom_kill 3");
    OomWatch watch(root_.string(), groups);
    const uint64_t at_start = watch.count();
    EXPECT_EQ(at_start, 3u);
    EXPECT_FALSE(watch.take(at_start)) << "what was before";
    write("/pod", "memory.events", "oom_kill 5");
    EXPECT_TRUE(watch.take(at_start));
    EXPECT_TRUE(watch.take(at_start));
    EXPECT_FALSE(watch.take(at_start)) << "killed by somebody else";
}

TEST_F(ControlGroup, NoneOfTheKernelsKillsIsTheEndOfALaterProcess) {
    const ControlGroups groups{.unified = "/pod", .memory = "", .cpu = ""};
    write("/pod", "memory.events", "oom_kill 3");
    OomWatch watch(root_.string(), groups);
    const uint64_t first = watch.count();
    write("/pod", "memory.events", "oom_kill 4");
    const uint64_t later = watch.count();
    EXPECT_FALSE(watch.take(later));
    EXPECT_TRUE(watch.take(first)) << "who was there";
    write("/pod", "memory.events", "oom_kill 5");
    EXPECT_TRUE(watch.take(later));
    EXPECT_FALSE(watch.take(first));
}

TEST(ControlGroups, AreOfEitherVersion) {
    const ControlGroups groups = parse_control_groups(
        "9:name=systemd:/s\n4:memory:/a:b\n3:cpuset:/c\n2:cpu,cpuacct:/d\n0::/e\nnonsense\n");
    EXPECT_EQ(groups.memory, "/a:b");
    EXPECT_EQ(groups.cpu, "/d");
    EXPECT_EQ(groups.unified, "/e");
    const ControlGroups none = parse_control_groups("");
    EXPECT_EQ(none.unified + none.memory + none.cpu, "");
}

TEST(MemoryRoom, SaysWhatNeedsHowMuch) {
    EXPECT_TRUE(check_memory_room("a round", 0, "send fewer rows").ok());
    ASSERT_LT(available_memory_bytes(), kNoMemoryLimit) << "Linux tells MemAvailable";
    const auto refused = check_memory_room("a round", kNoMemoryLimit - 1, "send fewer rows");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_EQ(refused.error().message.find("a round needs 18446744073709551614 bytes"), 0u)
        << refused.error().message;
    EXPECT_THAT(refused.error().message,
                testing::HasSubstr(
                    " are available; send fewer rows, or raise the memory limit of the control "
                    "group"));
}

}  // namespace
}  // namespace afd::schedule

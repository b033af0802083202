// SPDX-License-Identifier: Apache-2.0
//
// Goal: a process that is bound to memory nodes counts on no others. Method: a tree of files as the
// kernel shows nodes; and a binding of this thread. Oracle: the parts, by hand.
#include "schedule/shared_memory/memory_nodes.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "schedule/shared_memory/memory_room.h"
#include "tests/temporary_directory.h"

namespace afd::schedule {
namespace {

class MemoryNodes : public testing::Test {
  protected:
    void write_node(uint32_t node, uint64_t free_kib, uint64_t file_kib) {
        const std::string name = "Node " + std::to_string(node) + " ";
        const std::string directory = directory_.path("node" + std::to_string(node));
        std::filesystem::create_directory(directory);
        std::ofstream(directory + "/meminfo") << name << "MemTotal:       9999999 kB\n"
                                              << name << "MemFree:        " << free_kib << " kB\n"
                                              << name << "Active(anon):   5000000 kB\n"
                                              << name << "Active(file):   " << file_kib << " kB\n"
                                              << name << "Inactive(file): 0 kB\n"
                                              << name << "SReclaimable:   0 kB\n";
    }
    uint64_t available(const std::set<uint32_t>& allowed, uint64_t machine_bytes) const {
        return available_on_nodes(directory_.path(), allowed, machine_bytes);
    }

    const test::TemporaryDirectory directory_;
};

TEST_F(MemoryNodes, HaveTheirPartOfWhatIsAvailable) {
    write_node(0, 100, 100);
    write_node(1, 500, 100);
    write_node(12, 200, 0);
    std::filesystem::create_directory(directory_.path("power"));
    EXPECT_EQ(available({0}, 900), 180u);
    EXPECT_EQ(available({1}, 900), 540u);
    EXPECT_EQ(available({1, 12}, 1000), 800u);
    EXPECT_EQ(available({0, 1, 12, 13}, 900), 900u) << "as the kernel says it of the machine";
}

TEST_F(MemoryNodes, WithoutMemoryCountForNothing) {
    write_node(0, 100, 100);
    write_node(1, 0, 0);
    EXPECT_EQ(available({0}, 900), 900u);
    EXPECT_EQ(available({1}, 900), 0u);
    EXPECT_EQ(available_on_nodes(directory_.path("missing"), {0}, 900), 900u);
}

// A container may refuse both calls; then nobody says, as without nodes.
TEST(AllowedMemoryNodes, AreThoseOfABinding) {
    const auto before = allowed_memory_nodes();
    if (!before) {
        EXPECT_NE(::syscall(SYS_get_mempolicy, nullptr, nullptr, 0, 0, 0), 0);
        return;
    }
    ASSERT_FALSE(before->empty());
    const uint32_t last = *before->rbegin();
    ASSERT_LT(last, 64u);
    const unsigned long mask = 1UL << last;
    ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_BIND, &mask, 65), 0);
    EXPECT_EQ(allowed_memory_nodes(), std::set<uint32_t>{last});
    EXPECT_GT(available_memory_bytes(), 0u);
    ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0), 0);
    EXPECT_EQ(allowed_memory_nodes(), before);
}

}  // namespace
}  // namespace afd::schedule

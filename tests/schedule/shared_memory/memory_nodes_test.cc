// SPDX-License-Identifier: Apache-2.0
//
// Goal: a process that is bound to memory nodes counts on no others. Method: a tree of files as the
// kernel shows nodes; texts of a thread's status; and a binding of this thread. Oracle: the parts,
// by hand.
#include "schedule/shared_memory/memory_nodes.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

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

TEST_F(MemoryNodes, AreOthersOnlyWithRoom) {
    write_node(0, 100, 100);
    write_node(1, 0, 0);
    EXPECT_FALSE(has_other_nodes(directory_.path(), {0}));
    EXPECT_TRUE(has_other_nodes(directory_.path(), {1}));
    EXPECT_FALSE(has_other_nodes(directory_.path(), {0, 1}));
    EXPECT_FALSE(has_other_nodes(directory_.path("missing"), {1}));
}

// Goal: where get_mempolicy is refused, a cpuset counts all the same. Oracle: by hand; and of this
// thread, what the kernel's list has besides.
TEST(AllowedMemoryNodes, AreInTheStatusOfAThread) {
    const auto nodes_in = [](const std::string& text) {
        std::istringstream status("Name:\tafdd\nMems_allowed:\t00000000,00000001\n" + text);
        return memory_nodes_of_status(status);
    };
    using Nodes = std::set<uint32_t>;
    EXPECT_EQ(nodes_in("Mems_allowed_list:\t0\n"), Nodes{0});
    EXPECT_EQ(nodes_in("Mems_allowed_list:\t0-2,5,8-9\nvoluntary_ctxt_switches:\t1\n"),
              (Nodes{0, 1, 2, 5, 8, 9}));
    EXPECT_EQ(nodes_in(""), std::nullopt);
    for (const char* list : {"x", "1-", "1,,2", "-1", "0-9999999", "0-1023x", "4294967296"}) {
        EXPECT_EQ(nodes_in(std::string("Mems_allowed_list:\t") + list + "\n"), std::nullopt)
            << list;
    }
    std::ifstream own("/proc/thread-self/status");
    const auto nodes = memory_nodes_of_status(own);
    const auto allowed = allowed_memory_nodes();
    ASSERT_TRUE(nodes && allowed);
    EXPECT_TRUE(std::ranges::includes(*nodes, *allowed));
}

// A container may refuse both calls; then there is nothing to bind.
TEST(AllowedMemoryNodes, AreThoseOfABinding) {
    constexpr size_t kBits = 1024;
    using Mask = std::array<unsigned long, kBits / 64>;
    const auto set_policy = [](int mode, const Mask& mask) {
        // The kernel takes one bit less than it is told.
        return ::syscall(SYS_set_mempolicy, mode, mask.data(), kBits + 1);
    };
    // The test may run under numactl itself.
    int mode_before = 0;
    Mask mask_before{};
    if (::syscall(SYS_get_mempolicy, &mode_before, mask_before.data(), kBits, 0, 0) != 0) return;
    const auto before = allowed_memory_nodes();
    ASSERT_TRUE(before && !before->empty());
    const uint32_t last = *before->rbegin();
    ASSERT_LT(last, kBits);
    Mask mask{};
    mask[last / 64] = 1UL << last % 64;
    ASSERT_EQ(set_policy(MPOL_BIND, mask), 0);
    EXPECT_EQ(allowed_memory_nodes(), std::set<uint32_t>{last});
    EXPECT_GT(available_memory_bytes(), 0u);
    ASSERT_EQ(set_policy(mode_before, mask_before), 0);
    EXPECT_EQ(allowed_memory_nodes(), before);
    int mode_after = 0;
    Mask mask_after{};
    ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode_after, mask_after.data(), kBits, 0, 0), 0);
    EXPECT_EQ(mode_after, mode_before);
    EXPECT_EQ(mask_after, mask_before);
}

}  // namespace
}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/expert_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Oracle: std::stable_sort. Sizes around the cut into chunks, up to 32 of them.
TEST(ExpertSort, TheParallelFormIsTheStableSortAndItsInverse) {
    for (const size_t num_slots : {0, 1, 1000, 16384, 32769, 100003}) {
        for (const size_t num_keys : {1, 7, 256, 20000}) {
            std::mt19937 engine(static_cast<uint32_t>(num_slots + num_keys));
            std::vector<int32_t> keys(num_slots);
            for (int32_t& key : keys) {
                key = static_cast<int32_t>(engine() % (num_keys + 1)) - 1;
            }
            std::vector<int32_t> want;
            for (size_t i = 0; i < num_slots; ++i) {
                if (keys[i] >= 0) want.push_back(static_cast<int32_t>(i));
            }
            std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
                return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
            });
            std::vector<int32_t> scratch(expert_sort_scratch(num_slots, num_keys));
            std::vector<int32_t> order(num_slots);
            std::vector<int32_t> position(num_slots, 5);
            std::vector<ExpertGroup> groups(std::min(num_slots, num_keys));
            threads::ThreadPool parallel(3);
            for (int32_t* inverse : {static_cast<int32_t*>(nullptr), position.data()}) {
                const ExpertSort sorted = sort_by_expert(
                    keys, num_keys, scratch.data(), order.data(), inverse, groups.data(), parallel);
                ASSERT_EQ(sorted.num_rows, want.size());
                ASSERT_TRUE(std::equal(want.begin(), want.end(), order.begin()));
            }
            for (size_t i = 0; i < num_slots; ++i) {
                if (keys[i] < 0) {
                    ASSERT_EQ(position[i], -1);
                } else {
                    ASSERT_EQ(order[static_cast<size_t>(position[i])], static_cast<int32_t>(i));
                }
            }
        }
    }
}

// Goal: scratch for many keys is enough for fewer, of which there may be more chunks. Method: sizes
// at which a key less makes a chunk more. Oracle: what stands behind the scratch stays.
TEST(ExpertSort, ScratchForMoreKeysIsEnough) {
    constexpr int32_t kMark = 0x5a5a5a5a;
    struct Sizes {
        size_t num_slots;
        size_t num_keys;
        size_t num_reserved;
    };
    for (const Sizes& sizes :
         {Sizes{49152, 6144, 6145}, {65024, 8064, 8192}, {98304, 4096, 4097}}) {
        const size_t reserved = expert_sort_scratch(sizes.num_slots, sizes.num_reserved);
        std::vector<int32_t> scratch(reserved + (size_t{1} << 16), kMark);
        std::vector<int32_t> keys(sizes.num_slots);
        for (size_t i = 0; i < keys.size(); ++i) {
            keys[i] = static_cast<int32_t>(i * 7 % sizes.num_keys);
        }
        std::vector<int32_t> order(sizes.num_slots);
        std::vector<ExpertGroup> groups(sizes.num_keys);
        threads::ThreadPool parallel(3);
        const ExpertSort sorted = sort_by_expert(
            keys, sizes.num_keys, scratch.data(), order.data(), nullptr, groups.data(), parallel);
        EXPECT_EQ(sorted.num_rows, sizes.num_slots);
        EXPECT_EQ(
            std::count(scratch.begin() + static_cast<ptrdiff_t>(reserved), scratch.end(), kMark),
            1 << 16)
            << sizes.num_slots << " slots, " << sizes.num_keys << " keys";
    }
}

}  // namespace
}  // namespace afd::ops

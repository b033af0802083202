// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace afd::model {
namespace {

// Method: random pairs of few and of all ids, set again and again. Oracle: a map.
TEST(MergeTable, HasWhatWasSetLast) {
    MergeTable table;
    EXPECT_EQ(table.find(0, 0), nullptr);
    std::map<std::pair<uint32_t, uint32_t>, MergeTable::Merge> expected;
    std::mt19937 random(5);
    for (uint32_t i = 0; i < 20'000; ++i) {
        const uint32_t range = i % 2 == 0 ? 100 : UINT32_MAX;
        const std::pair<uint32_t, uint32_t> pair(random() % range, random() % range);
        table.set(pair.first, pair.second, {i, i + 1});
        expected.insert_or_assign(pair, MergeTable::Merge{i, i + 1});
    }
    for (const auto& [pair, merge] : expected) {
        const MergeTable::Merge* const found = table.find(pair.first, pair.second);
        ASSERT_NE(found, nullptr) << pair.first << " " << pair.second;
        EXPECT_EQ(found->rank, merge.rank);
        EXPECT_EQ(found->id, merge.id);
        if (!expected.contains({pair.second, pair.first})) {
            EXPECT_EQ(table.find(pair.second, pair.first), nullptr);
        }
    }
}

}  // namespace
}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/piece_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace afd::model {
namespace {

using testing::ElementsAre;

// Goal: what it says of a piece is what was kept of it last, or nothing. Method: random pieces,
// more than there are places, in random order. Oracle: the ids are made of the piece.
TEST(PieceCache, SaysWhatWasKeptOrNothing) {
    const auto ids_of = [](const std::string& piece) {
        std::vector<uint32_t> ids;
        for (size_t i = 0; i < piece.size(); i += 4) {
            ids.push_back(static_cast<uint32_t>(std::hash<std::string>{}(piece.substr(i))));
        }
        return ids;
    };
    PieceCache cache;
    std::mt19937 random(3);
    size_t num_found = 0;
    for (int i = 0; i < 300'000; ++i) {
        // Short ones repeat.
        std::string piece(1 + random() % PieceCache::kPieceBytesMax, 'a');
        for (size_t k = 0; k < std::min<size_t>(piece.size(), 4); ++k) {
            piece[random() % piece.size()] = static_cast<char>(random() % 256);
        }
        std::vector<uint32_t> found = {7};
        if (!cache.find(piece, found)) {
            EXPECT_THAT(found, ElementsAre(7));
            cache.keep(piece, ids_of(piece));
            continue;
        }
        ++num_found;
        std::vector<uint32_t> expected = ids_of(piece);
        expected.insert(expected.begin(), 7);
        ASSERT_EQ(found, expected);
    }
    EXPECT_GT(num_found, 1000U);
}

TEST(PieceCache, DoesNotKeepMoreIdsThanAPlaceHas) {
    PieceCache cache;
    std::vector<uint32_t> ids(PieceCache::kIdsMax + 1, 5);
    cache.keep("abc", ids);
    std::vector<uint32_t> found;
    EXPECT_FALSE(cache.find("abc", found));
    ids.pop_back();
    cache.keep("abc", ids);
    EXPECT_TRUE(cache.find("abc", found));
    EXPECT_EQ(found, ids);
    EXPECT_FALSE(cache.find("ab", found));
    EXPECT_FALSE(cache.find(std::string("abc\0", 4), found)) << "zeros behind it are not it";
}

}  // namespace
}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/unicode/utf8.h"

namespace afd::model {
namespace {

// Goal: the heap gives what the definition says. Method: random merges over three letters, random
// pieces. Oracle: repeatedly merge the leftmost pair of lowest rank, by scanning.
TEST(BytePairEncoder, MergesLowestRankLeftmostFirst) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        BytePairEncoder encoder;
        std::vector<std::string> tokens = {"a", "b", "c"};
        for (uint32_t i = 0; i < 3; ++i) encoder.set_byte(static_cast<uint8_t>('a' + i), i);
        std::vector<std::pair<uint32_t, uint32_t>> merges;
        while (tokens.size() < 24) {
            const auto left = static_cast<uint32_t>(random() % tokens.size());
            const auto right = static_cast<uint32_t>(random() % tokens.size());
            const std::string merged = tokens[left] + tokens[right];
            if (merged.size() > 6 || std::ranges::find(tokens, merged) != tokens.end()) continue;
            encoder.add_merge(left,
                              right,
                              static_cast<uint32_t>(tokens.size()),
                              static_cast<uint32_t>(merges.size()));
            merges.emplace_back(left, right);
            tokens.push_back(merged);
        }
        for (int piece_idx = 0; piece_idx < 20; ++piece_idx) {
            std::string piece;
            for (size_t i = random() % 40; i > 0; --i) {
                piece.push_back(static_cast<char>('a' + random() % 3));
            }
            std::vector<uint32_t> expected;
            for (const char c : piece) expected.push_back(static_cast<uint32_t>(c - 'a'));
            for (size_t rank = 0; rank < merges.size();) {
                size_t at = 0;
                while (at + 1 < expected.size() &&
                       std::pair(expected[at], expected[at + 1]) != merges[rank]) {
                    ++at;
                }
                if (at + 1 >= expected.size()) {
                    ++rank;
                    continue;
                }
                expected[at] = static_cast<uint32_t>(3 + rank);
                expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
                rank = 0;
            }
            std::vector<uint32_t> ids;
            encoder.encode(piece, ids);
            EXPECT_EQ(ids, expected) << piece;
        }
    }
}

// Goal: the parts of a piece have its ids. Method: random merges over six characters, one of two
// bytes and one that is no token, and long random pieces. Oracle: the whole piece, encoded at once.
TEST(BytePairEncoder, PartsOfAPieceHaveItsIds) {
    const std::vector<std::string> characters = {"a", "b", "c", "d", "\xc3\xa9", "z"};
    std::mt19937 random(11);
    size_t num_parts = 0;
    size_t num_pieces = 0;
    for (int round = 0; round < 50; ++round) {
        BytePairEncoder encoder;
        for (unsigned byte = 0; byte < 256; ++byte) {
            encoder.set_byte(static_cast<uint8_t>(byte), 1000 + byte);
        }
        std::vector<std::vector<size_t>> tokens;  // By their characters.
        for (size_t i = 0; i < 5; ++i) {
            encoder.set_character(characters[i], static_cast<uint32_t>(i));
            tokens.push_back({i});
        }
        for (uint32_t rank = 0; rank < 12; ++rank) {
            const size_t left = random() % tokens.size();
            const size_t right = random() % tokens.size();
            encoder.add_merge(static_cast<uint32_t>(left),
                              static_cast<uint32_t>(right),
                              static_cast<uint32_t>(tokens.size()),
                              rank);
            encoder.add_joint(characters[tokens[left].back()], characters[tokens[right].front()]);
            std::vector<size_t> merged = tokens[left];
            merged.insert(merged.end(), tokens[right].begin(), tokens[right].end());
            tokens.push_back(merged);
        }
        std::string piece;
        for (int i = 0; i < 400; ++i) piece += characters[random() % characters.size()];
        std::vector<uint32_t> whole;
        encoder.encode(piece, whole);
        std::vector<uint32_t> of_parts;
        for (std::string_view rest = piece; !rest.empty(); ++num_parts) {
            const size_t size = encoder.first_part(rest);
            ASSERT_TRUE(is_valid_utf8(rest.substr(0, size)));
            encoder.encode(rest.substr(0, size), of_parts);
            rest.remove_prefix(size);
        }
        ASSERT_EQ(of_parts, whole);
        ++num_pieces;
    }
    EXPECT_GT(num_parts, 20 * num_pieces) << "there are none";
}

TEST(BytePairEncoder, EncodesAVeryLongPiece) {
    BytePairEncoder encoder;
    encoder.set_byte('a', 0);
    encoder.add_merge(0, 0, 1, 0);
    std::vector<uint32_t> ids;
    encoder.encode(std::string(300001, 'a'), ids);
    ASSERT_EQ(ids.size(), 150001u);
    EXPECT_EQ(ids.front(), 1u);
    EXPECT_EQ(ids.back(), 0u);
}

}  // namespace
}  // namespace afd::model

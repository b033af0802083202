// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/row_checksum.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace afd::schedule {
namespace {

std::vector<std::byte> some_row(size_t num_bytes) {
    std::vector<std::byte> row(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i) row[i] = static_cast<std::byte>(i * 37 + 11);
    return row;
}

// Every flip of one bit, of the row and of its seal.
TEST(RowChecksum, FindsEachChangedBit) {
    for (const size_t num_bytes : {size_t{1}, size_t{16}, size_t{386}, size_t{2056}}) {
        std::vector<std::byte> row = some_row(num_bytes);
        std::array<std::byte, kRowSealBytes> seal{};
        seal_row(row, seal.data());
        EXPECT_EQ(look_at_row(row, seal.data()), RowState::kIntact);
        for (size_t bit = 0; bit < 8 * num_bytes; ++bit) {
            row[bit / 8] ^= std::byte{1} << bit % 8;
            EXPECT_EQ(look_at_row(row, seal.data()), RowState::kCorrupted) << bit;
            row[bit / 8] ^= std::byte{1} << bit % 8;
        }
        for (size_t bit = 0; bit < 8 * kRowSealBytes; ++bit) {
            seal[bit / 8] ^= std::byte{1} << bit % 8;
            EXPECT_EQ(look_at_row(row, seal.data()), RowState::kCorrupted) << bit;
            seal[bit / 8] ^= std::byte{1} << bit % 8;
        }
    }
}

TEST(RowChecksum, TellsABadInputFromABadRow) {
    std::vector<std::byte> row = some_row(400);
    std::array<std::byte, kRowSealBytes> seal{};
    seal_row(row, seal.data(), false);
    EXPECT_EQ(look_at_row(row, seal.data()), RowState::kInputCorrupted);
    row[7] ^= std::byte{4};
    EXPECT_EQ(look_at_row(row, seal.data()), RowState::kCorrupted);
}

}  // namespace
}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0

// Goal: the tile registers in software refuse what the processor refuses, so that a kernel that
// runs on them faults nowhere. Their arithmetic is checked in amx_test.cc.

#include "tests/ops/cpu/software_tiles.h"

#include <gtest/gtest.h>

#include <array>

namespace afd::ops {
namespace {

using Tiles = test::SoftwareTiles;

// C of 3 rows, A of 3 rows and 5 groups, B.
cpu::TileConfiguration sizes_of_a_product() {
    cpu::TileConfiguration sizes;
    sizes.set(0, 3, cpu::kTileRowBytes);
    sizes.set(4, 3, 20);
    sizes.set(6, 5, cpu::kTileRowBytes);
    return sizes;
}

class SoftwareTiles : public testing::Test {
  protected:
    ~SoftwareTiles() override { Tiles::release(); }
    std::array<std::byte, cpu::kTileRows * cpu::kTileRowBytes> memory_{};
};

TEST_F(SoftwareTiles, TakeAProductOfMatchingSizes) {
    Tiles::configure(sizes_of_a_product());
    Tiles::zero<0>();
    Tiles::load<4>(memory_.data(), 20);
    Tiles::load<6>(memory_.data(), cpu::kTileRowBytes);
    Tiles::add_bf16<0, 4, 6>();
    Tiles::add_bytes<0, 4, 6>();
    Tiles::store<0>(memory_.data(), cpu::kTileRowBytes);
    EXPECT_TRUE(Tiles::is_configured);
    Tiles::release();
    EXPECT_FALSE(Tiles::is_configured);
}

TEST_F(SoftwareTiles, RefuseAConfigurationThatTheProcessorRefuses) {
    const auto configure = [](const auto& change) {
        cpu::TileConfiguration sizes = sizes_of_a_product();
        change(sizes);
        Tiles::configure(sizes);
    };
    EXPECT_DEATH(configure([](auto& sizes) { sizes.palette = 0; }), "palette 0");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.start_row = 1; }), "start row 1");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.reserved[13] = 1; }), "reserved byte is 1");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.set(2, 17, 64); }), "tile 2: 17 rows of 64");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.set(2, 16, 68); }), "tile 2: 16 rows of 68");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.set(2, 16, 30); }), "tile 2: 16 rows of 30");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.rows[2] = 1; }), "tile 2: 1 rows of 0");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.row_bytes[2] = 64; }), "tile 2: 0 rows of 64");
    EXPECT_DEATH(configure([](auto& sizes) { sizes.set(8, 1, 64); }), "tile 8: 1 rows of 64");
}

TEST_F(SoftwareTiles, RefuseUseWithoutAConfiguration) {
    EXPECT_DEATH(Tiles::zero<0>(), "tile 0 is used without a configuration");
    Tiles::configure(sizes_of_a_product());
    EXPECT_DEATH(Tiles::zero<1>(), "tile 1 has no size");
    Tiles::release();
    EXPECT_DEATH(Tiles::store<0>(memory_.data(), 64), "tile 0 is used without a configuration");
}

TEST_F(SoftwareTiles, RefuseRowsThatOverlap) {
    Tiles::configure(sizes_of_a_product());
    EXPECT_DEATH(Tiles::load<0>(memory_.data(), 32), "rows of 64 bytes are 32 apart");
    EXPECT_DEATH(Tiles::store<0>(memory_.data(), 0), "rows of 64 bytes are 0 apart");
}

TEST_F(SoftwareTiles, RefuseProductsOfSizesThatDoNotMatch) {
    cpu::TileConfiguration sizes = sizes_of_a_product();
    sizes.set(1, 4, cpu::kTileRowBytes);
    sizes.set(5, 3, 24);
    Tiles::configure(sizes);
    EXPECT_DEATH((Tiles::add_bf16<1, 4, 6>()), "C 4 x 64, A 3 x 20, B 5 x 64");
    EXPECT_DEATH((Tiles::add_bytes<0, 5, 6>()), "C 3 x 64, A 3 x 24, B 5 x 64");
    EXPECT_DEATH((Tiles::add_bf16<0, 4, 0>()), "tiles 0, 4 and 0 are not three");
}

}  // namespace
}  // namespace afd::ops

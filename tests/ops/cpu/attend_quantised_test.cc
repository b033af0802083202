// SPDX-License-Identifier: Apache-2.0

// Kernels::attend_quantised. Goal: a block of a quantised cache is attended to as if it had been
// expanded first, and what stands behind its positions has no influence. Method: two blocks of
// random values, one whole and one not, with all numbers of heads and widths that it takes, whose
// scales are ordinary or not. Oracle: the same table's attend_block with rows that
// ops/attention/kv_tiles.h expanded, which has tests of its own; to the last bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ops/attention/head_attention.h"
#include "ops/attention/kv_tiles.h"
#include "ops/format/gqa_cache.h"
#include "tests/ops/cpu/kernel_tables.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

struct Case {
    KvDtype dtype;
    size_t num_heads;
    size_t latent;
    size_t num_positions;  // Of the second block.
    float odd_scale;       // Of a key and of a value.
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << name_of(c.dtype) << ", " << c.num_heads << " heads of " << c.latent << ", "
               << c.num_positions << " positions, a scale of " << c.odd_scale;
}

// A block of one head of keys, as a cache has it. Behind the positions everything is NaN.
class CacheBlock {
  public:
    CacheBlock(const Case& c, size_t num_positions, uint32_t seed)
        : c_(c),
          num_positions_(num_positions),
          keys_(kAttentionBlock * kv_tile_row_bytes(c.latent), std::byte{0xff}),
          values_(keys_.size(), std::byte{0xff}),
          keys_room_(kAttentionBlock * c.latent),
          values_room_(kAttentionBlock * c.latent) {
        std::mt19937 random(seed);
        for (size_t position = 0; position < num_positions; ++position) {
            const bool is_odd = position == num_positions / 2;
            for (size_t i = 0; i < c.latent; ++i) {
                keys_[key_pair_place(position, i)] = value(random);
                values_[position * row_bytes() + i] = value(random);
            }
            put_scale(is_odd ? c.odd_scale : scale(random),
                      &keys_[kAttentionBlock * c.latent + position * sizeof(float)]);
            put_scale(is_odd ? c.odd_scale : scale(random),
                      &values_[position * row_bytes() + c.latent]);
        }
    }

    cpu::QuantisedBlock quantised() {
        return {.dtype = c_.dtype,
                .keys = keys(),
                .values = rows(),
                .keys_room = keys_room_.data(),
                .values_room = values_room_.data(),
                .num_positions = num_positions_,
                .scale = 0.125f};
    }

    cpu::AttendBlock expanded() {
        expand_key_pairs(c_.dtype, keys(), keys_room_.data());
        expand_kv_rows(c_.dtype, rows(), values_room_.data());
        return {.ckv = keys_room_.data(),
                .values = values_room_.data(),
                .num_positions = num_positions_,
                .scale = 0.125f,
                .keys_in_pairs = true};
    }

  private:
    size_t row_bytes() const { return kv_tile_row_bytes(c_.latent); }

    // Any but the two NaNs of e4m3.
    static std::byte value(std::mt19937& random) {
        const auto byte = static_cast<uint8_t>(random() % 256);
        return std::byte{(byte & 0x7f) == 0x7f ? uint8_t{0x7e} : byte};
    }
    static float scale(std::mt19937& random) { return 1e-3f * static_cast<float>(random() % 9); }
    static void put_scale(float scale, std::byte* to) { std::memcpy(to, &scale, sizeof scale); }

    cpu::QuantisedKeyPairs keys() const {
        return {.values = keys_.data(),
                .scales = &keys_[kAttentionBlock * c_.latent],
                .count = c_.latent,
                .next = values_};
    }
    cpu::QuantisedRows rows() const {
        return {.values = values_.data(),
                .scales = &values_[c_.latent],
                .row_bytes = row_bytes(),
                .num_rows = num_positions_,
                .count = c_.latent,
                .next = keys_};
    }

    Case c_;
    size_t num_positions_;
    std::vector<std::byte> keys_;
    std::vector<std::byte> values_;
    std::vector<Bf16> keys_room_;
    std::vector<Bf16> values_room_;
};

std::vector<uint32_t> attend(const cpu::Kernels& kernels, const Case& c, bool is_quantised) {
    const test::RandomMatrix queries(c.num_heads, c.latent, 1);
    const Workspace workspace(heads_state_bytes(c.latent, 0));
    WorkspaceCursor cursor(workspace.bytes());
    cpu::HeadsState state = take_heads_state(c.latent, 0, cursor);
    state.num_heads = c.num_heads;
    kernels.begin_heads({.query = queries.values.data(), .query_rope = queries.values.data()},
                        state);
    for (const auto& [count, seed] : {std::pair(kAttentionBlock, 2u), {c.num_positions, 3u}}) {
        CacheBlock block(c, count, seed);
        if (is_quantised) {
            kernels.attend_quantised(block.quantised(), state);
        } else {
            kernels.attend_block(block.expanded(), state);
        }
    }
    std::vector<Bf16> out(c.num_heads * c.latent);
    kernels.finish_heads(state, out.data());
    return test::bits_of(std::span<const Bf16>(out));
}

TEST(AttendQuantised, HasTheBitsOfExpandedRows) {
    const float odd_scales[] = {
        0.004f, 0.0f, 1e-39f, 1e30f, std::numeric_limits<float>::quiet_NaN()};
    size_t num_tables = 0;
    for (const test::KernelTable& table : test::every_kernel_table()) {
        if (table.kernels.attend_quantised == nullptr) continue;
        ++num_tables;
        for (const KvDtype dtype : {KvDtype::kInt8, KvDtype::kFp8}) {
            for (size_t heads = 1; heads <= table.kernels.quantised_heads_max.of(dtype); ++heads) {
                for (const size_t latent : {32u, 64u, 96u, 128u}) {
                    ASSERT_TRUE(cpu::QuantisedBlock::takes(latent));
                    for (const size_t num_positions : {1u, 16u, 37u, 64u}) {
                        for (const float odd_scale : odd_scales) {
                            const Case c{dtype, heads, latent, num_positions, odd_scale};
                            ASSERT_EQ(attend(table.kernels, c, true),
                                      attend(table.kernels, c, false))
                                << table.name << ": " << c;
                        }
                    }
                }
            }
        }
    }
    // Only classes avx2 and avx512-bf16 have it.
    EXPECT_EQ(num_tables, supported(NumericClass::kAvx2) + supported(NumericClass::kAvx512Bf16));
}

}  // namespace
}  // namespace afd::ops

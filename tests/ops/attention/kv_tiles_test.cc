// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/attention/kv_tiles.h"
#include "ops/attention/latent_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/reference/kv_tiles.h"
#include "tests/ops/attention/gqa_layer.h"
#include "tests/ops/attention/mla_layer.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(KvCacheOf);

constexpr size_t kRowValues = 300;  // Two whole tiles and a part.
constexpr size_t kKvPositions = 150;
constexpr KvDtype kQuantised[] = {KvDtype::kInt8, KvDtype::kFp8};
constexpr KvDtype kQuantisedLatents[] = {KvDtype::kInt8, KvDtype::kFp8, KvDtype::kInt8Channel};

// What encode_kv_row() made.
void expand_row(KvDtype dtype, const std::byte* row, size_t count, Bf16* v) {
    expand_kv_rows(dtype, {.values = row, .scales = row + count, .count = count}, v);
}

// Rows of all kinds: usual ones, of one value, of zeros, tiny, huge, and values on the half.
std::vector<std::vector<Bf16>> kv_rows() {
    std::vector<std::vector<Bf16>> rows;
    for (const float factor : {1.0f, 1e-30f, 1e30f}) {
        rows.push_back(RandomMatrix(1, kRowValues, 3, factor).values);
    }
    rows.emplace_back(kRowValues, from_float(0.0f));
    rows.emplace_back(kRowValues, from_float(-2.5f));
    std::vector<Bf16>& halves = rows.emplace_back(kRowValues);
    for (size_t i = 0; i < kRowValues; ++i) {
        halves[i] = from_float(i % kKvTile == 0 ? 127.0f : static_cast<float>(i % 64) + 0.5f);
    }
    return rows;
}

// Goal: what a quantised cache gives back is what the reference says, to the last bit.
TEST(KvTiles, ComeBackAsTheReferenceSays) {
    for (const KvDtype dtype : kQuantised) {
        for (const std::vector<Bf16>& values : kv_rows()) {
            std::vector<std::byte> row(kv_tile_row_bytes(kRowValues));
            std::vector<Bf16> back(kRowValues);
            encode_kv_row(dtype, values.data(), kRowValues, row.data());
            expand_row(dtype, row.data(), kRowValues, back.data());
            reference::Matrix want = reference::widen(make_rows(values.data(), 1, kRowValues));
            reference::through_tiles(dtype, 0, kRowValues, want);
            for (size_t i = 0; i < kRowValues; ++i) {
                ASSERT_EQ(static_cast<double>(to_float(back[i])), want.at(0, i))
                    << name_of(dtype) << " value " << i << ": " << to_float(values[i]);
            }
        }
    }
}

// Goal: numbers that were worked out by hand, so that path and reference are not wrong together.
TEST(KvTiles, HaveTheBytesOfTheFormula) {
    const float v[] = {254.0f, -1.0f, 1.0f, 3.0f, -5.0f, 200.9f};
    std::byte q[6];
    float scale = 0;
    encode_int8_tiles(DType::kFp32, v, 6, q, reinterpret_cast<std::byte*>(&scale));
    EXPECT_EQ(scale, 2.0f);
    const int8_t want[] = {127, 0, 0, 2, -2, 100};  // -0.5, 0.5, 1.5 and -2.5 to even.
    EXPECT_EQ(std::memcmp(q, want, sizeof want), 0);
    Bf16 back[6];
    const auto* scales = reinterpret_cast<const std::byte*>(&scale);
    expand_kv_rows(KvDtype::kInt8, {.values = q, .scales = scales, .count = 6}, back);
    EXPECT_EQ(to_float(back[3]), 4.0f);
    EXPECT_EQ(to_float(back[5]), 200.0f);
}

TEST_P(KvCacheOf, ItsKernelDividesByTheFactorsOfTheChannels) {
    std::vector<int8_t> q(256);
    std::vector<float> factors(256);
    for (size_t i = 0; i < q.size(); ++i) {
        q[i] = static_cast<int8_t>(i);
        factors[i] = 0.37f * static_cast<float>(i + 1);
    }
    std::vector<Bf16> have(256);
    cpu::kernels(GetParam()).expand_int8_channels(q.data(), factors.data(), 256, have.data());
    for (size_t i = 0; i < q.size(); ++i) {
        ASSERT_EQ(have[i].bits, from_float(static_cast<float>(q[i]) / factors[i]).bits) << i;
    }
}

// Goal: a value that is no number shows, and spoils its own tile only.
TEST(KvTiles, ATileWithAValueThatIsNoNumberReadsAsNaN) {
    for (const KvDtype dtype : kQuantised) {
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<Bf16> values(kRowValues, from_float(1.0f));
            values[130] = from_float(bad);
            std::vector<std::byte> row(kv_tile_row_bytes(kRowValues));
            encode_kv_row(dtype, values.data(), kRowValues, row.data());
            expand_row(dtype, row.data(), kRowValues, values.data());
            for (size_t i = 0; i < kRowValues; ++i) {
                EXPECT_EQ(std::isnan(to_float(values[i])), i / kKvTile == 1) << i;
            }
        }
    }
}

// Goal: each kernel expands rows by the formula. Method: two rows that differ, of widths that have
// whole tiles, parts of them and what is left of a register; scales on either side of those that
// lanes take.
TEST_P(KvCacheOf, ItsKernelExpandsAsEveryOther) {
    constexpr size_t kNumRows = 2;
    constexpr size_t kRowBytes = 256;
    std::vector<std::byte> q(kNumRows * kRowBytes);
    for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<std::byte>(i * 7 + i / 256);
    for (const float scale : {0.37f,
                              0.0f,
                              -0.5f,
                              1e-39f,
                              0x1p-126f,
                              0x1.fffffep-127f,
                              0x1p-102f,
                              0x1.fffffep-103f,
                              0x1p102f,
                              0x1.fffffep101f,
                              3e36f,
                              0x1p127f,
                              std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
        for (const size_t count : {1u, 31u, 64u, 100u, 128u, 200u, 256u}) {
            std::vector<float> scales(kNumRows * kRowBytes / sizeof(float));
            for (size_t i = 0; i < scales.size(); ++i) {
                scales[i] = i / 64 == 0 ? scale : 0.01f * static_cast<float>(i);
            }
            std::vector<Bf16> have(kNumRows * count);
            cpu::kernels(GetParam())
                .expand_int8({.values = q.data(),
                              .scales = reinterpret_cast<const std::byte*>(scales.data()),
                              .row_bytes = kRowBytes,
                              .num_rows = kNumRows,
                              .count = count,
                              .next = q},
                             have.data());
            for (size_t i = 0; i < have.size(); ++i) {
                const size_t row = i / count;
                const size_t column = i % count;
                const auto value = static_cast<int8_t>(q[row * kRowBytes + column]);
                const Bf16 want =
                    from_float(static_cast<float>(value) * scales[row * 64 + column / kKvTile]);
                const bool is_nan = std::isnan(to_float(want));
                ASSERT_TRUE(is_nan ? std::isnan(to_float(have[i])) : have[i] == want)
                    << scale << " " << row << " " << column << " of " << count;
            }
        }
    }
}

// Goal: products are rounded as the formula rounds, ties too. Method: scales from 1 to 2, of which
// each 61st and all that are halfway between two bf16 numbers.
TEST_P(KvCacheOf, ItsKernelRoundsEveryProductToEven) {
    constexpr size_t kCount = 32;  // Of one step of the widest lanes.
    constexpr uint32_t kOne = 0x3f800000;
    std::vector<float> scales;
    for (uint32_t m = 0; m < 1u << 23; m += 61) scales.push_back(std::bit_cast<float>(kOne + m));
    for (uint32_t m = 0x8000; m < 1u << 23; m += 0x10000) {
        scales.push_back(std::bit_cast<float>(kOne + m));
    }
    constexpr std::array<int8_t, kCount> kValues = {1,    -1, 2,   64, 3,   -5, 7,  9,   11, 21, 85,
                                                    -127, 0,  33,  65, 127, -3, 5,  -64, 4,  8,  13,
                                                    77,   99, -99, 17, -33, 51, 63, 101, 0,  -2};
    std::array<std::byte, kCount + sizeof(float)> row;
    std::memcpy(row.data(), kValues.data(), kCount);
    const cpu::Kernels& kernels = cpu::kernels(GetParam());
    std::array<Bf16, kCount> have;
    for (const float scale : scales) {
        std::memcpy(row.data() + kCount, &scale, sizeof scale);
        kernels.expand_int8({.values = row.data(),
                             .scales = row.data() + kCount,
                             .row_bytes = row.size(),
                             .count = kCount},
                            have.data());
        for (size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(have[i], from_float(static_cast<float>(kValues[i]) * scale))
                << scale << " " << int{kValues[i]};
        }
    }
}

// Goal: keys in pairs expand to what their rows expand to. Oracle: the best class's rows, which
// have a test of their own; of ordinary scales, and beside one that is not.
TEST_P(KvCacheOf, ItsKernelExpandsKeyPairs) {
    constexpr size_t kCount = 200;
    std::vector<std::byte> values(kCount * kAttentionBlock);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 + i / 256);
    for (const float odd_scale : {0.25f, 0.0f, 1e-39f, std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> scales(num_kv_tiles(kCount) * kAttentionBlock);
        for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(i + 1);
        scales[3] = odd_scale;
        for (const KvDtype dtype : kQuantised) {
            const cpu::Kernels& kernels = cpu::kernels(GetParam());
            const cpu::QuantisedKeyPairs keys{
                .values = values.data(),
                .scales = reinterpret_cast<const std::byte*>(scales.data()),
                .count = kCount,
                .next = values};
            std::vector<Bf16> have(values.size());
            (dtype == KvDtype::kFp8 ? kernels.expand_fp8_pairs : kernels.expand_int8_pairs)(
                keys, have.data());
            for (size_t position = 0; position < kAttentionBlock; ++position) {
                std::vector<std::byte> row(kv_tile_row_bytes(kCount));
                for (size_t i = 0; i < kCount; ++i) row[i] = values[key_pair_place(position, i)];
                for (size_t tile = 0; tile < num_kv_tiles(kCount); ++tile) {
                    std::memcpy(&row[kCount + tile * sizeof(float)],
                                &scales[tile * kAttentionBlock + position],
                                sizeof(float));
                }
                std::vector<Bf16> want(kCount);
                expand_row(dtype, row.data(), kCount, want.data());
                for (size_t i = 0; i < kCount; ++i) {
                    ASSERT_EQ(have[key_pair_place(position, i)].bits, want[i].bits)
                        << name_of(dtype) << " " << odd_scale << " " << position << " " << i;
                }
            }
        }
    }
}

// Goal: attention reads a quantised cache as bf16 rows, and nothing else differs. Oracle: a bf16
// cache with those rows, to the last bit; and a bf16 layer's prolog for what fp8 rows are made of.
// 150 heads: ten groups, of which eight and two share an expansion.
TEST_P(KvCacheOf, LatentAttentionReadsExpandedRows) {
    for (const auto& [dtype, num_heads] : {std::pair(KvDtype::kInt8, 9),
                                           std::pair(KvDtype::kInt8, 150),
                                           std::pair(KvDtype::kFp8, 9),
                                           std::pair(KvDtype::kFp8, 150),
                                           std::pair(KvDtype::kInt8Channel, 9),
                                           std::pair(KvDtype::kInt8Channel, 150)}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << num_heads << " heads");
        const test::MlaLayer layer(GetParam(), 33, static_cast<size_t>(num_heads));
        const MlaShape& s = layer.shape;
        const RandomMatrix x(kKvPositions, s.hidden, 7);
        const auto positions = test::positions_from(0, kKvPositions);
        const std::vector<int32_t> table{3, 0, 5};
        SerialParallel serial;
        test::MlaCache cache(s, dtype);
        const auto have = test::mla_forward(layer, x, positions, table, cache.view(), serial);
        test::MlaCache plain(s);
        const auto bf16 = test::mla_forward(layer, x, positions, table, plain.view(), serial);
        EXPECT_EQ(test::bits_of(std::span<const Bf16>(have.query.values)),
                  test::bits_of(std::span<const Bf16>(bf16.query.values)));
        EXPECT_NE(test::bits_of(std::span<const Bf16>(have.out.values)),
                  test::bits_of(std::span<const Bf16>(bf16.out.values)));

        const LatentRows rows(cache.view(), s.kv_lora_rank, s.qk_rope_head_dim);
        test::MlaCache expanded(s);
        for (const size_t slot : {3u * 64, 0u, 5u * 64}) {
            const size_t count = slot == 5 * 64 ? kKvPositions - 128 : 64;
            rows.expand(slot,
                        count,
                        expanded.ckv.data() + slot * s.kv_lora_rank,
                        expanded.kr.data() + slot * s.qk_rope_head_dim);
        }
        EXPECT_EQ(test::bits_of(std::span<const Bf16>(expanded.kr)) ==
                      test::bits_of(std::span<const Bf16>(plain.kr)),
                  dtype != KvDtype::kInt8Channel);
        if (dtype == KvDtype::kFp8) {
            std::vector<std::byte> row(kv_tile_row_bytes(s.kv_lora_rank));
            std::vector<Bf16> back(s.kv_lora_rank);
            encode_kv_row(dtype, plain.ckv.data(), s.kv_lora_rank, row.data());
            expand_row(dtype, row.data(), s.kv_lora_rank, back.data());
            for (size_t i = 0; i < back.size(); ++i) {
                ASSERT_EQ(expanded.ckv[i].bits, back[i].bits);
            }
        }
        const std::vector<const int32_t*> tables(kKvPositions, table.data());
        RandomMatrix out(kKvPositions, s.num_heads * s.v_head_dim, 1);
        const Workspace workspace(mla_attention_workspace_bytes(s, kKvPositions, 1));
        ASSERT_TRUE(
            mla_attention({.weights = &layer.weights,
                           .query = have.query.rows(),
                           .query_rope = have.query_rope.rows(),
                           .batch = {kKvPositions, positions.data(), nullptr, tables.data()},
                           .cache = expanded.view(),
                           .out = out.mutable_rows()},
                          workspace.bytes(),
                          serial)
                .ok());
        EXPECT_EQ(test::bits_of(std::span<const Bf16>(have.out.values)),
                  test::bits_of(std::span<const Bf16>(out.values)));
    }
}

// Goal: chunk, blocks and threads change no bit. Oracle: one token at a time. 40 heads: three
// groups, which go over the keys together on one thread, and as two and one on two.
TEST_P(KvCacheOf, LatentAttentionHasTheSameBitsInEveryChunk) {
    const std::vector<std::vector<int32_t>> tables{{0, 1, 2}, {6, 2, 4}, {1, 0, 6}, {5, 6, 0}};
    const size_t chunks[] = {1, 7, 150, 1};
    for (const KvDtype dtype : kQuantisedLatents) {
        const test::MlaLayer layer(GetParam(), 33, 40);
        const RandomMatrix x(kKvPositions, layer.shape.hidden, 9);
        std::vector<uint32_t> one_by_one;
        for (size_t i = 0; i < std::size(chunks); ++i) {
            test::MlaCache cache(layer.shape, dtype);
            threads::ThreadPool threads(2);
            SerialParallel serial;
            Parallel& parallel = i == 0 ? static_cast<Parallel&>(serial) : threads;
            std::vector<uint32_t> bits;
            for (size_t first = 0; first < kKvPositions; first += chunks[i]) {
                const auto positions =
                    test::positions_from(first, std::min(chunks[i], kKvPositions - first));
                const std::vector<size_t> rows(positions.begin(), positions.end());
                const auto r = test::mla_forward(
                    layer, x.pick(rows), positions, tables[i], cache.view(), parallel);
                const auto some = test::bits_of(std::span<const Bf16>(r.out.values));
                bits.insert(bits.end(), some.begin(), some.end());
            }
            if (one_by_one.empty()) one_by_one = bits;
            ASSERT_EQ(bits, one_by_one) << name_of(dtype) << ", chunks of " << chunks[i];
        }
    }
}

// The same two goals with grouped heads. Oracle: a bf16 cache of what the rows expand to.
TEST_P(KvCacheOf, GroupedAttentionReadsExpandedRowsInEveryChunk) {
    const std::vector<int32_t> table{3, 0, 5};
    for (const KvDtype dtype : kQuantised) {
        for (const test::GqaOptions& options : test::gqa_options()) {
            SCOPED_TRACE(std::string(name_of(dtype)) + " " + options.name);
            const test::GqaLayer layer(options, GetParam());
            const GqaShape& s = layer.shape;
            const RandomMatrix x(kKvPositions, s.hidden, 7);
            const auto positions = test::positions_from(0, kKvPositions);
            threads::ThreadPool threads(2);
            test::GqaMemory cache(layer, dtype);
            const auto have = test::gqa_forward(layer, x, positions, table, cache.view(), threads);
            test::GqaMemory plain(s);
            test::gqa_forward(layer, x, positions, table, plain.view(), threads);
            for (std::vector<Bf16>* values : {&plain.keys, &plain.values}) {
                for (size_t first = 0; first < values->size(); first += s.head_dim) {
                    // Where nobody wrote NaN stays NaN.
                    std::vector<std::byte> row(kv_tile_row_bytes(s.head_dim));
                    encode_kv_row(dtype, values->data() + first, s.head_dim, row.data());
                    expand_row(dtype, row.data(), s.head_dim, values->data() + first);
                }
            }
            const auto want = test::gqa_attend(layer, have.query, positions, table, plain.view());
            EXPECT_EQ(test::bits_of(std::span<const Bf16>(have.out.values)),
                      test::bits_of(std::span<const Bf16>(want.values)));

            test::GqaMemory other(s, dtype);  // Keys in rows.
            std::vector<uint32_t> bits;
            for (size_t t = 0; t < kKvPositions; ++t) {
                const auto r = test::gqa_forward(layer,
                                                 x.pick(std::vector<size_t>{t}),
                                                 test::positions_from(t, 1),
                                                 {1, 6, 2},
                                                 other.view(),
                                                 threads);
                const auto some = test::bits_of(std::span<const Bf16>(r.out.values));
                bits.insert(bits.end(), some.begin(), some.end());
            }
            EXPECT_EQ(bits, test::bits_of(std::span<const Bf16>(have.out.values)));
        }
    }
}

}  // namespace
}  // namespace afd::ops

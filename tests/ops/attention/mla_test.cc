// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/tensor/workspace.h"
#include "tests/ops/attention/mla_layer.h"

namespace afd::ops {
namespace {

using Layer = test::MlaLayer;
using Cache = test::MlaCache;
using Results = test::MlaResults;
using test::mla_forward;
using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(Mla);

constexpr size_t kPositions = 150;  // Two whole blocks and a partial one.

std::vector<int32_t> iota(size_t first, size_t count) {
    std::vector<int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    return positions;
}

// Largest difference of a row in units of the row's largest value.
double relative_error(const reference::Matrix& want, Rows<const Bf16> have) {
    double worst = 0;
    for (size_t t = 0; t < want.num_rows; ++t) {
        double largest = 0;
        double difference = 0;
        for (size_t c = 0; c < want.num_cols; ++c) {
            largest = std::max(largest, std::fabs(want.at(t, c)));
            const double value = static_cast<double>(to_float(have.row(t)[c]));
            // A NaN must not look like a small difference.
            difference = std::isnan(value) ? INFINITY
                                           : std::max(difference, std::fabs(value - want.at(t, c)));
        }
        worst = std::max(worst, difference / largest);
    }
    return worst;
}

// Bound: each of the rounding points in series (4 to the query, 3 more in attention) can flip to
// the other bf16 neighbour where an fp32 chain and the exact sum differ, 2^-8 of a value; flips are
// rare and independent, so the largest of a row stays within one flip per point: n · 2^-8 of the
// row's largest value. The control below shows that a wrong position misses it.
constexpr double kQueryBound = 4.0 / 256.0;
constexpr double kOutBound = 7.0 / 256.0;

TEST_P(Mla, MatchesReferenceWithAndWithoutLowRankQuery) {
    for (const size_t q_lora_rank : {0u, 33u}) {
        const Layer layer(GetParam(), q_lora_rank);
        const RandomMatrix x(kPositions, layer.shape.hidden, 7);
        Cache cache(layer.shape);
        SerialParallel serial;
        const std::vector<int32_t> positions = iota(0, kPositions);
        const Results r = mla_forward(layer, x, positions, {3, 0, 5}, cache.view(), serial);

        const auto weights = layer.reference_weights();
        const auto rounding = reference::Rounding::kBf16;
        const auto want = reference::mla_prolog(
            weights, reference::widen(x.rows()), positions, layer.rope, rounding);
        EXPECT_LE(relative_error(want.query, r.query.rows()), kQueryBound);
        EXPECT_LE(relative_error(want.query_rope, r.query_rope.rows()), kQueryBound);
        const reference::Matrix out = reference::mla_attention(
            weights, want.query, want.query_rope, want.ckv, want.kr, positions, rounding);
        EXPECT_LE(relative_error(out, r.out.rows()), kOutBound);

        std::vector<int32_t> late = positions;
        std::rotate(late.begin(), late.begin() + 1, late.end());
        const reference::Matrix wrong = reference::mla_attention(
            weights, want.query, want.query_rope, want.ckv, want.kr, late, rounding);
        EXPECT_GT(relative_error(wrong, r.out.rows()), 4 * kOutBound);
    }
}

// The absorbed form without rounding is the textbook attention with expanded keys and values.
TEST(MlaReference, AbsorbedFormEqualsExpandedAttention) {
    const Layer layer(NumericClass::kPortable, 33);
    const MlaShape& s = layer.shape;
    const RandomMatrix x(10, s.hidden, 8);
    const std::vector<int32_t> positions = iota(0, 10);
    const auto weights = layer.reference_weights();
    const auto rounding = reference::Rounding::kNone;
    const auto p =
        reference::mla_prolog(weights, reference::widen(x.rows()), positions, layer.rope, rounding);
    const reference::Matrix out =
        reference::mla_attention(weights, p.query, p.query_rope, p.ckv, p.kr, positions, rounding);
    const auto b = [&](size_t row, size_t c) {
        return static_cast<double>(to_float(layer.kv_b.rows().row(row)[c]));
    };
    for (size_t head = 0; head < s.num_heads; ++head) {
        const size_t value_row = head * 38 + s.qk_nope_head_dim;
        for (size_t t = 0; t < 10; ++t) {
            std::vector<double> e;
            double sum = 0;
            for (size_t i = 0; i <= t; ++i) {
                double score = 0;
                for (size_t c = 0; c < 45; ++c) {
                    score += p.query.at(t, head * 45 + c) * p.ckv.at(i, c);
                }
                for (size_t c = 0; c < 12; ++c) {
                    score += p.query_rope.at(t, head * 12 + c) * p.kr.at(i, c);
                }
                e.push_back(std::exp(score * static_cast<double>(layer.weights.softmax_scale)));
                sum += e.back();
            }
            for (size_t v = 0; v < s.v_head_dim; ++v) {
                double expanded = 0;
                for (size_t i = 0; i <= t; ++i) {
                    double value = 0;
                    for (size_t c = 0; c < 45; ++c) value += b(value_row + v, c) * p.ckv.at(i, c);
                    expanded += e[i] / sum * value;
                }
                ASSERT_NEAR(out.at(t, head * s.v_head_dim + v), expanded, 1e-9);
            }
        }
    }
}

// Goal: decode and chunked prefill give the same bits, whatever the chunk, the blocks and the
// threads. Method: the same sequence in chunks of many sizes, each in a cache full of NaN with
// other blocks. Oracle: one token at a time.
TEST_P(Mla, ChunkedPrefillEqualsDecodeOneByOne) {
    const Layer layer(GetParam(), 33);
    const MlaShape& s = layer.shape;
    const RandomMatrix x(kPositions, s.hidden, 9);
    std::vector<uint32_t> one_by_one;
    std::vector<std::vector<int32_t>> tables{{0, 1, 2}, {6, 2, 4}, {5, 3, 0}, {1, 0, 6}, {2, 1, 0}};
    const size_t chunks[] = {1, 7, 64, 100, 150};
    for (size_t i = 0; i < 5; ++i) {
        Cache cache(s);
        SerialParallel serial;
        threads::ThreadPool threads(2);
        std::vector<uint32_t> bits;
        for (size_t first = 0; first < kPositions; first += chunks[i]) {
            const size_t count = std::min(chunks[i], kPositions - first);
            const std::vector<int32_t> positions = iota(first, count);
            const std::vector<size_t> rows(positions.begin(), positions.end());
            Parallel& parallel = chunks[i] == 1 ? static_cast<Parallel&>(serial) : threads;
            const Results r =
                mla_forward(layer, x.pick(rows), positions, tables[i], cache.view(), parallel);
            const auto chunk_bits = test::bits_of(std::span<const Bf16>(r.out.values));
            bits.insert(bits.end(), chunk_bits.begin(), chunk_bits.end());
        }
        if (one_by_one.empty()) one_by_one = bits;
        ASSERT_EQ(bits, one_by_one) << "chunks of " << chunks[i];
    }
}

TEST_P(Mla, PrologIsRowInvariant) {
    const Layer layer(GetParam(), 33);
    const MlaShape& s = layer.shape;
    const RandomMatrix x(32, s.hidden, 10);
    test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel& parallel) {
        const size_t n = rows.size();
        std::vector<int32_t> positions;
        std::vector<int64_t> cache_index;
        for (size_t i = 0; i < n; ++i) {
            positions.push_back(static_cast<int32_t>(rows[i] * 5));
            cache_index.push_back(static_cast<int64_t>(i));
        }
        Cache cache(s);
        RandomMatrix query(n, s.num_heads * s.kv_lora_rank, 1);
        RandomMatrix query_rope(n, s.num_heads * s.qk_rope_head_dim, 1);
        RandomMatrix query_norm(n, s.q_lora_rank, 1);
        const Workspace workspace(mla_prolog_workspace_bytes(s, n));
        const RandomMatrix picked = x.pick(rows);
        EXPECT_TRUE(mla_prolog({.weights = &layer.weights,
                                .rope = &layer.rope,
                                .token_x = picked.rows(),
                                .batch = {n, positions.data(), cache_index.data(), nullptr},
                                .cache = cache.view(),
                                .query = query.mutable_rows(),
                                .query_rope = query_rope.mutable_rows(),
                                .query_norm = query_norm.mutable_rows()},
                               workspace.bytes(),
                               parallel)
                        .ok());
        std::vector<uint32_t> bits;
        const auto append = [&](const Bf16* row, size_t count) {
            for (size_t c = 0; c < count; ++c) bits.push_back(row[c].bits);
        };
        for (size_t i = 0; i < n; ++i) {
            append(query.rows().row(i), query.num_cols);
            append(query_rope.rows().row(i), query_rope.num_cols);
            append(query_norm.rows().row(i), query_norm.num_cols);
            append(cache.ckv.data() + i * s.kv_lora_rank, s.kv_lora_rank);
            append(cache.kr.data() + i * s.qk_rope_head_dim, s.qk_rope_head_dim);
        }
        return bits;
    });
}

// Tokens of two sequences at many positions, in any order, over one filled cache.
TEST_P(Mla, AttentionIsRowInvariant) {
    const Layer layer(GetParam(), 33);
    const MlaShape& s = layer.shape;
    Cache cache(s);
    const std::vector<int32_t> tables[2] = {{4, 1, 6}, {0, 3, 2}};
    SerialParallel serial;
    for (const auto& table : tables) {
        const RandomMatrix x(kPositions, s.hidden, static_cast<uint32_t>(table[0]));
        mla_forward(layer, x, iota(0, kPositions), table, cache.view(), serial);
    }
    const size_t num_rows = 24;
    const RandomMatrix query(num_rows, s.num_heads * s.kv_lora_rank, 11);
    const RandomMatrix query_rope(num_rows, s.num_heads * s.qk_rope_head_dim, 12);
    test::expect_row_invariant(num_rows, [&](std::span<const size_t> rows, Parallel& parallel) {
        const size_t n = rows.size();
        std::vector<int32_t> positions;
        std::vector<const int32_t*> block_tables;
        for (const size_t row : rows) {
            positions.push_back(static_cast<int32_t>(row * 6 + row % 5));
            block_tables.push_back(tables[row % 2].data());
        }
        const RandomMatrix q = query.pick(rows);
        const RandomMatrix qr = query_rope.pick(rows);
        RandomMatrix out(n, s.num_heads * s.v_head_dim, 1);
        const Workspace workspace(mla_attention_workspace_bytes(s, n, parallel.num_threads()));
        EXPECT_TRUE(mla_attention({.weights = &layer.weights,
                                   .query = q.rows(),
                                   .query_rope = qr.rows(),
                                   .batch = {n, positions.data(), nullptr, block_tables.data()},
                                   .cache = cache.view(),
                                   .out = out.mutable_rows()},
                                  workspace.bytes(),
                                  parallel)
                        .ok());
        for (const Bf16 value : out.values) EXPECT_FALSE(std::isnan(to_float(value)));
        return test::bits_of(std::span<const Bf16>(out.values));
    });
}

TEST(MlaProlog, WritesOnlyTheSlotsNamedAndTheLastOfEqualOnesWins) {
    const Layer layer(NumericClass::kPortable, 0);
    const MlaShape& s = layer.shape;
    const RandomMatrix x(4, s.hidden, 13);
    const int32_t positions[] = {0, 1, 2, 3};
    const int64_t cache_index[] = {65, -1, 65, 9};
    SerialParallel serial;
    RandomMatrix query(4, s.num_heads * s.kv_lora_rank, 1);
    RandomMatrix query_rope(4, s.num_heads * s.qk_rope_head_dim, 1);
    const Workspace workspace(mla_prolog_workspace_bytes(s, 4));
    const auto run = [&](size_t first, size_t count, LatentCache cache) {
        return mla_prolog({.weights = &layer.weights,
                           .rope = &layer.rope,
                           .token_x = x.rows().slice(first, count),
                           .batch = {count, positions + first, cache_index + first, nullptr},
                           .cache = cache,
                           .query = query.mutable_rows().slice(first, count),
                           .query_rope = query_rope.mutable_rows().slice(first, count),
                           .query_norm = {}},
                          workspace.bytes(),
                          serial);
    };
    Cache together(s);
    ASSERT_TRUE(run(0, 4, together.view()).ok());
    Cache apart(s);
    ASSERT_TRUE(run(2, 1, apart.view()).ok());
    ASSERT_TRUE(run(3, 1, apart.view()).ok());
    EXPECT_EQ(together.ckv, apart.ckv);
    EXPECT_EQ(together.kr, apart.kr);
}

}  // namespace
}  // namespace afd::ops

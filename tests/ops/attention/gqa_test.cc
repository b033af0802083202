// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/attend_block.h"
#include "tests/ops/attention/gqa_layer.h"

namespace afd::ops {
namespace {

using test::GqaLayer;
using test::GqaMemory;
using test::GqaOptions;
using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(Gqa);

constexpr size_t kGqaPositions = 150;  // Two whole blocks and a partial one.

// Largest difference of a row in units of the row's largest value; infinite for a NaN.
double row_error(const reference::Matrix& want, Rows<const Bf16> have) {
    double worst = 0;
    for (size_t t = 0; t < want.num_rows; ++t) {
        double largest = 0;
        double difference = 0;
        for (size_t c = 0; c < want.num_cols; ++c) {
            const double value = static_cast<double>(to_float(have.row(t)[c]));
            largest = std::max(largest, std::fabs(want.at(t, c)));
            difference = std::isnan(value) ? INFINITY
                                           : std::max(difference, std::fabs(value - want.at(t, c)));
        }
        worst = std::max(worst, difference / largest);
    }
    return worst;
}

// Bound: each of the rounding points in series (4 to the query: product, two of the norm, rotation;
// 3 more in attention) can flip to the other bf16 neighbour where an fp32 chain and the exact sum
// differ, 2^-8 of a value. The control shows that a wrong position misses it.
constexpr double kGqaQueryBound = 4.0 / 256.0;
constexpr double kGqaOutBound = 7.0 / 256.0;

TEST_P(Gqa, MatchesReference) {
    for (const GqaOptions& options : test::gqa_options()) {
        SCOPED_TRACE(options.name);
        const GqaLayer layer(options, GetParam());
        const RandomMatrix x(kGqaPositions, layer.shape.hidden, 7);
        GqaMemory cache(layer);
        SerialParallel serial;
        const std::vector<int32_t> positions = test::positions_from(0, kGqaPositions);
        const auto r = test::gqa_forward(layer, x, positions, {3, 0, 5}, cache.view(), serial);

        const auto weights = layer.reference_weights();
        const auto rounding = reference::Rounding::kBf16;
        const auto want = reference::gqa_prolog(
            weights, reference::widen(x.rows()), positions, layer.rope, rounding);
        EXPECT_LE(row_error(want.query, r.query.rows()), kGqaQueryBound);
        const auto out = reference::gqa_attention(
            weights, want.query, want.key, want.value, positions, rounding);
        EXPECT_LE(row_error(out, r.out.rows()), kGqaOutBound);

        std::vector<int32_t> late = positions;
        std::rotate(late.begin(), late.begin() + 1, late.end());
        const auto wrong =
            reference::gqa_attention(weights, want.query, want.key, want.value, late, rounding);
        EXPECT_GT(row_error(wrong, r.out.rows()), 4 * kGqaOutBound);
    }
}

// Goal: decode and chunked prefill give the same bits, whatever the chunk, the blocks and the
// threads. Method: the same sequence in chunks of many sizes, each in a cache full of NaN with
// other blocks. Oracle: one token at a time.
TEST_P(Gqa, ChunkedPrefillEqualsDecodeOneByOne) {
    const std::vector<std::vector<int32_t>> tables{
        {0, 1, 2}, {6, 2, 4}, {5, 3, 0}, {1, 0, 6}, {2, 1, 0}};
    const size_t chunks[] = {1, 7, 64, 100, 150};
    for (const GqaOptions& options : test::gqa_options()) {
        SCOPED_TRACE(options.name);
        const GqaLayer layer(options, GetParam());
        const RandomMatrix x(kGqaPositions, layer.shape.hidden, 9);
        std::vector<uint32_t> one_by_one;
        for (size_t i = 0; i < std::size(chunks); ++i) {
            GqaMemory cache(layer);
            SerialParallel serial;
            threads::ThreadPool threads(2);
            Parallel& parallel = chunks[i] == 1 ? static_cast<Parallel&>(serial) : threads;
            std::vector<uint32_t> bits;
            for (size_t first = 0; first < kGqaPositions; first += chunks[i]) {
                const auto positions =
                    test::positions_from(first, std::min(chunks[i], kGqaPositions - first));
                const std::vector<size_t> rows(positions.begin(), positions.end());
                const auto r = test::gqa_forward(
                    layer, x.pick(rows), positions, tables[i], cache.view(), parallel);
                const auto chunk_bits = test::bits_of(std::span<const Bf16>(r.out.values));
                bits.insert(bits.end(), chunk_bits.begin(), chunk_bits.end());
            }
            if (one_by_one.empty()) one_by_one = bits;
            ASSERT_EQ(bits, one_by_one) << "chunks of " << chunks[i];
        }
    }
}

// Whether the class keeps keys of that shape in pairs.
bool has_key_pairs(NumericClass numeric_class, const GqaShape& shape) {
    if (shape.head_dim % 2 != 0) return false;
    if (numeric_class == NumericClass::kAvx512Bf16) return true;
    const bool multiplies_floats =
        numeric_class == NumericClass::kAvx2 || numeric_class == NumericClass::kAvx512;
    return multiplies_floats && shape.group_size() > cpu::kNearHeads;
}

// Goal: a class that has keys in pairs computes the same from them as from rows.
// Method: the same chunks with a cache of either order, full of NaN, whose blocks are used from
// their middle on, too (windows). Oracle: rows.
TEST_P(Gqa, OrderOfItsClassGivesTheBitsOfRows) {
    for (const GqaOptions& options : test::gqa_options()) {
        SCOPED_TRACE(options.name);
        const GqaLayer layer(options, GetParam());
        const RandomMatrix x(kGqaPositions, layer.shape.hidden, 9);
        GqaMemory pairs(layer);
        EXPECT_EQ(pairs.key_order == KeyOrder::kPairs, has_key_pairs(GetParam(), layer.shape));
        GqaMemory rows(layer.shape);
        for (const size_t chunk : {1, 7, 64, 150}) {
            for (size_t first = 0; first < kGqaPositions; first += chunk) {
                const auto positions =
                    test::positions_from(first, std::min(chunk, kGqaPositions - first));
                const std::vector<size_t> picked(positions.begin(), positions.end());
                SerialParallel serial;
                const auto forward = [&](GqaMemory& cache) {
                    return test::gqa_forward(
                        layer, x.pick(picked), positions, {6, 2, 4}, cache.view(), serial);
                };
                ASSERT_EQ(forward(pairs).out.values, forward(rows).out.values)
                    << "chunks of " << chunk << " from " << first;
            }
        }
    }
}

TEST_P(Gqa, PrologIsRowInvariant) {
    const GqaOptions options = test::gqa_options()[1];
    const GqaLayer layer(options, GetParam());
    const GqaShape& s = layer.shape;
    const RandomMatrix x(32, s.hidden, 10);
    test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel& parallel) {
        const size_t n = rows.size();
        std::vector<int32_t> positions;
        std::vector<int64_t> cache_index;
        for (size_t i = 0; i < n; ++i) {
            positions.push_back(static_cast<int32_t>(rows[i] * 5));
            cache_index.push_back(static_cast<int64_t>(i));
        }
        GqaMemory cache(layer);
        RandomMatrix query(n, s.query_columns(), 1);
        const Workspace workspace(gqa_prolog_workspace_bytes(s, n));
        const RandomMatrix picked = x.pick(rows);
        EXPECT_TRUE(gqa_prolog({.weights = &layer.weights,
                                .rope = &layer.rope,
                                .x = picked.rows(),
                                .batch = {n, positions.data(), cache_index.data(), nullptr},
                                .cache = cache.view(),
                                .query = query.mutable_rows()},
                               workspace.bytes(),
                               parallel)
                        .ok());
        std::vector<uint32_t> bits;
        for (size_t i = 0; i < n; ++i) {
            for (size_t c = 0; c < query.num_cols; ++c) bits.push_back(query.rows().row(i)[c].bits);
            for (size_t head = 0; head < s.num_kv_heads; ++head) {
                for (size_t c = 0; c < s.head_dim; ++c) {
                    const auto place = [&](KeyOrder order) {
                        return gqa_key_place(s, order, gqa_row_index(s, i, head), c);
                    };
                    bits.push_back(cache.keys[place(cache.key_order)].bits);
                    bits.push_back(cache.values[place(KeyOrder::kRows)].bits);
                }
            }
        }
        return bits;
    });
}

// Tokens of two sequences at many positions, in any order, over one filled cache.
void expect_attention_row_invariant(const GqaOptions& options, NumericClass numeric_class) {
    SCOPED_TRACE(options.name);
    const GqaLayer layer(options, numeric_class);
    const GqaShape& s = layer.shape;
    GqaMemory cache(layer);
    const std::vector<int32_t> tables[2] = {{4, 1, 6}, {0, 3, 2}};
    SerialParallel serial;
    for (const auto& table : tables) {
        const RandomMatrix x(kGqaPositions, s.hidden, static_cast<uint32_t>(table[0]));
        test::gqa_forward(
            layer, x, test::positions_from(0, kGqaPositions), table, cache.view(), serial);
    }
    const RandomMatrix query(24, s.query_columns(), 11);
    test::expect_row_invariant(24, [&](std::span<const size_t> rows, Parallel& parallel) {
        const size_t n = rows.size();
        std::vector<int32_t> positions;
        std::vector<const int32_t*> block_tables;
        for (const size_t row : rows) {
            positions.push_back(static_cast<int32_t>(row * 6 + row % 5));
            block_tables.push_back(tables[row % 2].data());
        }
        const RandomMatrix q = query.pick(rows);
        RandomMatrix out(n, s.query_columns(), 1);
        const Workspace workspace(gqa_attention_workspace_bytes(s, parallel.num_threads()));
        EXPECT_TRUE(gqa_attention({.shape = s,
                                   .numeric_class = numeric_class,
                                   .softmax_scale = layer.softmax_scale,
                                   .query = q.rows(),
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

TEST_P(Gqa, AttentionIsRowInvariant) {
    expect_attention_row_invariant(test::gqa_options()[1], GetParam());
    expect_attention_row_invariant(test::gqa_options().back(), GetParam());
}

TEST(GqaProlog, WritesOnlyTheSlotsNamedAndTheLastOfEqualOnesWins) {
    const GqaLayer layer(test::gqa_options()[0], NumericClass::kPortable);
    const GqaShape& s = layer.shape;
    const RandomMatrix x(4, s.hidden, 13);
    const int32_t positions[] = {0, 1, 2, 3};
    const int64_t cache_index[] = {65, -1, 65, 9};
    SerialParallel serial;
    RandomMatrix query(4, s.query_columns(), 1);
    const Workspace workspace(gqa_prolog_workspace_bytes(s, 4));
    const auto run = [&](size_t first, size_t count, GqaCache cache) {
        return gqa_prolog({.weights = &layer.weights,
                           .rope = &layer.rope,
                           .x = x.rows().slice(first, count),
                           .batch = {count, positions + first, cache_index + first, nullptr},
                           .cache = cache,
                           .query = query.mutable_rows().slice(first, count)},
                          workspace.bytes(),
                          serial);
    };
    GqaMemory together(s);
    ASSERT_TRUE(run(0, 4, together.view()).ok());
    GqaMemory apart(s);
    ASSERT_TRUE(run(2, 1, apart.view()).ok());
    ASSERT_TRUE(run(3, 1, apart.view()).ok());
    EXPECT_EQ(together.keys, apart.keys);
    EXPECT_EQ(together.values, apart.values);
}

TEST(GqaProlog, RefusesBadIndicesBeforeWritingAnything) {
    const GqaLayer layer(test::gqa_options()[0], NumericClass::kPortable);
    const GqaShape& s = layer.shape;
    const RandomMatrix x(2, s.hidden, 14);
    SerialParallel serial;
    RandomMatrix query(2, s.query_columns(), 1);
    const Workspace workspace(gqa_prolog_workspace_bytes(s, 2));
    GqaMemory cache(s);
    const std::vector<Bf16> before = cache.keys;
    const auto message = [&](int32_t position, int64_t index) {
        const int32_t positions[] = {0, position};
        const int64_t indices[] = {0, index};
        const Result<> result = gqa_prolog({.weights = &layer.weights,
                                            .rope = &layer.rope,
                                            .x = x.rows(),
                                            .batch = {2, positions, indices, nullptr},
                                            .cache = cache.view(),
                                            .query = query.mutable_rows()},
                                           workspace.bytes(),
                                           serial);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(message(1, 512),
              "cache_index[1] is 512; allowed are -1 (write nothing) and slots below 512");
    EXPECT_EQ(message(256, 1), "positions[1] is 256; the rope table has 256 positions");
    EXPECT_EQ(cache.keys, before);
    EXPECT_EQ(message(1, 1), "ok");
}

TEST(GqaAttention, RefusesABlockOutsideTheCache) {
    const GqaLayer layer(test::gqa_options()[0], NumericClass::kPortable);
    const GqaShape& s = layer.shape;
    SerialParallel serial;
    GqaMemory cache(s);
    const RandomMatrix query(1, s.query_columns(), 1);
    RandomMatrix out(1, s.query_columns(), 1);
    const Workspace workspace(gqa_attention_workspace_bytes(s, 1));
    const int32_t position = 70;
    const int32_t table[] = {0, 8};
    const int32_t* tables[] = {table};
    const Result<> result = gqa_attention({.shape = s,
                                           .numeric_class = NumericClass::kPortable,
                                           .softmax_scale = 1,
                                           .query = query.rows(),
                                           .batch = {1, &position, nullptr, tables},
                                           .cache = cache.view(),
                                           .out = out.mutable_rows()},
                                          workspace.bytes(),
                                          serial);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "block_tables[0][1] is 8; the cache has 8 blocks");
}

TEST(GqaWeights, NamesThePartOfAnotherSize) {
    const auto message = [](const auto& change) {
        GqaLayer layer(test::gqa_options()[0], NumericClass::kPortable);
        change(layer.weights);
        const Result<> result = validate(layer.weights);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(message([](GqaWeights& w) { w.shape.num_kv_heads = 2; }),
              "num_kv_heads is 2; it must divide num_heads, which is 3");
    EXPECT_EQ(message([](GqaWeights& w) { w.shape.hidden = 71; }),
              "q_proj is [30, 70]; the shape asks for [30, 71]");
    EXPECT_EQ(message([](GqaWeights& w) { w.k_bias.resize(9); }),
              "k_bias has 9 elements; the shape asks for 10 or none");
    EXPECT_EQ(message([](GqaWeights& w) { w.q_gamma.resize(20); }),
              "q_gamma has 20 elements; the shape asks for 10, 30 or none");
    EXPECT_EQ(message([](GqaWeights& w) { w.clip = 0.0f; }),
              "clip is 0.000000; it must be positive");
}

}  // namespace
}  // namespace afd::ops

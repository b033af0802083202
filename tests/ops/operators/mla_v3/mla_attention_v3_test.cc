// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_attention_v3.h"

#include <gtest/gtest.h>

#include "ops/attention/mla_attention.h"
#include "tests/ops/operators/mla_v3/mla_attention_case.h"

namespace afd::ops {
namespace {

using test::all_formats;
using test::attention_options;
using test::AttentionCase;
using test::cache_mode_names;
using test::kHidden;
using test::kValues;
using test::MlaCaseOptions;
using test::Tensor;

AFD_FOR_EVERY_CLASS(MlaAttentionV3Classes);

bool applies(const MlaCaseOptions& options, std::string_view mode, bool merged) {
    if (mode == "BSND" && merged) return false;
    if (mode == "TND" && !merged) return false;
    return options.kv != 3 || !mode.ends_with("NZ");
}

template <typename Body>
void for_every_format(const Body& body) {
    for (MlaCaseOptions options : all_formats()) {
        for (const std::string_view mode : cache_mode_names()) {
            for (const bool merged : {true, false}) {
                if (!applies(options, mode, merged)) continue;
                options.cache_mode = mode;
                options.merged = merged;
                body(options);
            }
        }
    }
}

// Goal: the fast path is the operator over every cache format. Oracle: the reference's plain loops
// with the sums of class portable, so every bit must agree; and per format all modes hold the same
// rows, so all must give what the first one gave.
// Covers: mla_attention_v3 kv_cache_quant_mode=0,1,2,3 query_quant_mode=0,1 tile_size=16
// Covers: mla_attention_v3 query=bf16,int8 dequant_scale_q_nope=given,none kv_cache=bf16,int8
// Covers: mla_attention_v3 kr_cache=bf16,int8,none sequence_index=given,none block_table=given,none
// Covers: mla_attention_v3 actual_seq_len=given,none quant_scale_ckv=[1],[1;Hckv],none
// Covers: mla_attention_v3 quant_scale_ckr=given,none softmax_scale=0.05
// Covers: mla_attention_v3 cache_mode=PA_BSND,PA_NZ,PA_BLK_BSND,PA_BLK_NZ,BSND,TND
TEST(MlaAttentionV3, EqualsTheReferenceOverEveryCacheFormat) {
    test::GuardedVector<std::byte> first;
    std::pair<int64_t, int64_t> format{-1, -1};
    for_every_format([&](const MlaCaseOptions& options) {
        AttentionCase have(options);
        have.run_portable();
        if (format != std::pair(options.kv, options.query)) {
            format = {options.kv, options.query};
            first = have.attention_out.bytes;
        }
        EXPECT_TRUE(have.attention_out.bytes == first) << label(options);
        if (options.merged && options.cache_mode.starts_with("PA_BLK")) return;
        AttentionCase want(options);
        ASSERT_TRUE(reference::mla_attention_v3(want.request()).ok());
        EXPECT_TRUE(have.attention_out.bytes == want.attention_out.bytes) << label(options);
    });
}

// Bound: the rounding points in series after the scores (p, latent, value, output) can each flip to
// the other bf16 neighbour where orders of sums differ: 4 · 2^-8 of the row's largest value.
TEST_P(MlaAttentionV3Classes, StaysWithinRoundingOfClassPortable) {
    for (const MlaCaseOptions& options : all_formats()) {
        AttentionCase have(options);
        AttentionCase want(options);
        SerialParallel serial;
        have.run(GetParam(), serial);
        want.run_portable();
        for (size_t t = 0; t < options.b * options.s; ++t) {
            double largest = 0;
            for (size_t i = t * kHidden; i < (t + 1) * kHidden; ++i) {
                largest = std::max(largest, std::fabs(want.attention_out.at(i)));
            }
            ASSERT_GT(largest, 0.0);
            for (size_t i = t * kHidden; i < (t + 1) * kHidden; ++i) {
                ASSERT_NEAR(
                    have.attention_out.at(i), want.attention_out.at(i), 4.0 / 256.0 * largest)
                    << label(options) << ", token " << t;
            }
        }
    }
}

// Goal: over an unquantised PA_BSND cache of blocks of 64 it is the decoder's attention; over other
// blocks and modes, too. Oracle: ops/attention/mla_attention.h on the same queries and cache, equal
// bits.
// Covers: mla_attention_v3 weight_o=null
TEST_P(MlaAttentionV3Classes, HasTheBitsOfTheDecodersAttention) {
    MlaCaseOptions options = attention_options();
    options.block_size = kAttentionBlock;
    options.block_num = 5;
    AttentionCase one(options, false);
    SerialParallel serial;
    one.run(GetParam(), serial);

    MlaWeights weights;
    weights.shape = {.hidden = options.he,
                     .q_lora_rank = options.hcq,
                     .kv_lora_rank = options.hckv,
                     .num_heads = options.n,
                     .qk_nope_head_dim = options.d,
                     .qk_rope_head_dim = options.dr,
                     .v_head_dim = kValues};
    weights.softmax_scale = one.request().softmax_scale;
    const size_t head_elements = kValues * options.hckv;
    for (size_t head = 0; head < options.n; ++head) {
        const Bf16* uv = one.weight_uv.as<Bf16>() + head * head_elements;
        weights.weight_uv.push_back(
            PackedLinear::pack(make_rows(uv, kValues, options.hckv), GetParam()));
    }
    const size_t t = options.b * options.s;
    std::vector<const int32_t*> tables;
    for (size_t i = 0; i < t; ++i) {
        tables.push_back(one.block_table.as<int32_t>() + i / options.s * 2);
    }
    std::vector<Bf16> out(t * options.n * kValues);
    const Workspace workspace(mla_attention_workspace_bytes(weights.shape, t, 1));
    const auto rows = [&](const Tensor& tensor) {
        return make_rows(tensor.as<Bf16>(), t, tensor.size() / t);
    };
    const AttentionBatch batch{t, one.positions.as<int32_t>(), nullptr, tables.data()};
    const LatentCache cache{one.prolog.kv_cache.as<Bf16>(),
                            one.prolog.kr_cache.as<Bf16>(),
                            options.block_num * options.block_size};
    ASSERT_TRUE(mla_attention({.weights = &weights,
                               .query = rows(one.prolog.query),
                               .query_rope = rows(one.prolog.query_rope),
                               .batch = batch,
                               .cache = cache,
                               .out = make_rows(out.data(), t, options.n * kValues)},
                              workspace.bytes(),
                              serial)
                    .ok());
    EXPECT_EQ(std::memcmp(one.attention_out.bytes.data(), out.data(), out.size() * 2), 0);

    for (const std::string mode : {"PA_BSND", "PA_NZ", "PA_BLK_NZ", "TND"}) {
        MlaCaseOptions other = attention_options();
        other.cache_mode = mode;
        other.block_size = 7;
        other.block_num = 21;
        AttentionCase two(other, false);
        two.run(GetParam(), serial);
        EXPECT_TRUE(two.attention_out.bytes == one.attention_out.bytes) << mode;
    }
}

// Goal: decode and chunked prefill give the same bits over every format. Method: tokens in batches
// of any size and order, with threads. Oracle: each token alone.
TEST_P(MlaAttentionV3Classes, GivesATokenTheSameBitsInEveryBatch) {
    for (const MlaCaseOptions& options : all_formats()) {
        AttentionCase all(options);
        const MlaAttentionV3Weights weights =
            pack_mla_attention_v3(all.request(), GetParam()).value();
        const size_t tokens[] = {0, 15, 63, 64, 69, 70, 100, 139};
        test::expect_row_invariant(8, [&](std::span<const size_t> rows, Parallel& parallel) {
            const size_t t = rows.size();
            const auto pick = [&](const Tensor& from) {
                if (from.size() == 0) return from;
                const size_t bytes = from.bytes.size() / (options.b * options.s);
                TensorView picked = from.view;
                picked.shape[0] = t;
                Tensor to(picked);
                for (size_t i = 0; i < t; ++i) {
                    std::memcpy(&to.bytes[i * bytes], &from.bytes[tokens[rows[i]] * bytes], bytes);
                }
                return to;
            };
            AttentionCase some = all;
            some.prolog.query = pick(all.prolog.query);
            some.prolog.query_rope = pick(all.prolog.query_rope);
            some.prolog.dequant_scale_q_nope = pick(all.prolog.dequant_scale_q_nope);
            some.positions = pick(all.positions);
            some.sequence_index = pick(all.sequence_index);
            some.attention_out = Tensor(DType::kBf16, {t, kHidden}, 0x55);
            const Workspace workspace(some.workspace_bytes(t, parallel.num_threads()));
            EXPECT_TRUE(
                mla_attention_v3(some.request(), weights, workspace.bytes(), parallel).ok());
            return test::bits_of(
                std::span<const Bf16>(some.attention_out.as<Bf16>(), some.attention_out.size()));
        });
    }
}

// Goal: a quantised cache holds the same sequence, so the scales of each format are applied where
// they belong. Oracle: the attention over unquantised caches of the same hidden rows: int8 kv and
// int8 queries may move an output by a few percent of the row's largest value. Control: with a
// scale off by a quarter the bound is missed.
TEST(MlaAttentionV3, DequantisesToWhatTheUnquantisedCacheHolds) {
    for (const auto& [quantised, plain] :
         {std::pair{120, 100}, std::pair{130, 100}, std::pair{211, 200}, std::pair{231, 200}}) {
        MlaCaseOptions options = attention_options();
        options.weight = plain / 100;
        AttentionCase want(options);
        options.kv = quantised / 10 % 10;
        options.query = quantised % 10;
        AttentionCase have(options);
        // Scales that use the whole range and never saturate, and no clip.
        const auto fit = [](const Tensor& cache, Tensor& scales) {
            double largest = 0;
            for (size_t i = 0; i < cache.size(); ++i) {
                if (!std::isnan(cache.at(i))) largest = std::max(largest, std::fabs(cache.at(i)));
            }
            for (size_t i = 0; i < scales.size(); ++i) {
                scales.as<float>()[i] = static_cast<float>(127.0 / largest);
            }
        };
        fit(want.prolog.kv_cache, have.prolog.quant_scale_ckv);
        fit(want.prolog.kr_cache, have.prolog.quant_scale_ckr);
        have.prolog.k_nope_clip_alpha = Tensor();
        have.prolog.run_portable();
        want.run_portable();
        const auto distance = [&] {
            have.run_portable();
            double worst = 0;
            for (size_t t = 0; t < options.b * options.s; ++t) {
                double largest = 0;
                double difference = 0;
                for (size_t i = t * kHidden; i < (t + 1) * kHidden; ++i) {
                    const double a = have.attention_out.at(i);
                    const double b = want.attention_out.at(i);
                    largest = std::max(largest, std::fabs(b));
                    difference = std::isnan(a) ? INFINITY : std::max(difference, std::fabs(a - b));
                }
                worst = std::max(worst, difference / largest);
            }
            return worst;
        };
        const double good = distance();
        EXPECT_LT(good, 0.08) << quantised;
        if (options.kv == 3) {
            for (size_t row = 0; row < options.block_num * options.block_size; ++row) {
                std::byte* scales = have.prolog.kv_cache.bytes.data() +
                                    row * have.prolog.kv_cache.view.shape[3] + options.hckv +
                                    2 * options.dr;
                for (size_t i = 0; i < options.hckv / 16; ++i) {
                    float scale = 0;
                    std::memcpy(&scale, scales + 4 * i, 4);
                    scale *= 1.25f;
                    std::memcpy(scales + 4 * i, &scale, 4);
                }
            }
        } else {
            for (size_t i = 0; i < have.prolog.quant_scale_ckv.size(); ++i) {
                have.prolog.quant_scale_ckv.as<float>()[i] *= 1.25f;
            }
        }
        EXPECT_GT(distance(), 0.15) << quantised;
    }
}

TEST(MlaAttentionV3, SaysTheShapeOfItsOutput) {
    for (const bool with_weight_o : {true, false}) {
        for (const bool merged : {true, false}) {
            MlaCaseOptions options = attention_options();
            options.merged = merged;
            AttentionCase one(options, with_weight_o);
            MlaAttentionV3Request r = one.request();
            r.attention_out = {};
            const TensorView shape = with_output_shapes(r).value().attention_out;
            EXPECT_EQ(shape.dtype, DType::kBf16);
            EXPECT_EQ(shape.rank, one.attention_out.view.rank);
            EXPECT_EQ(shape.shape, one.attention_out.view.shape);
            EXPECT_EQ(shape.strides, one.attention_out.view.strides);
        }
    }
}

// Covers: mla_attention_v3 T=0
TEST(MlaAttentionV3, AcceptsNoTokens) {
    for_every_format([](MlaCaseOptions options) {
        options.b = options.cache_mode.starts_with("PA") && !options.merged ? 0 : 1;
        options.s = 0;
        AttentionCase none(options);
        none.run_portable();
        EXPECT_TRUE(reference::mla_attention_v3(none.request()).ok());
    });
}

// The seed's sizes: Hckv 512, N 32, Dr 64, blocks of 128, here with V 128 and He 7168; tokens at
// positions 0 and 64 ... of a sequence of 65, which the reference bears.
TEST(MlaAttentionV3, RunsTheSeedsSizes) {
    for (const int digits : {0, 231}) {
        const size_t n = 32;
        const size_t hckv = 512;
        const size_t dr = 64;
        const size_t t = 2;
        const bool quantised = digits != 0;
        const Tensor query =
            test::random_tensor(quantised ? DType::kInt8 : DType::kBf16, {t, n, hckv}, 1);
        const Tensor query_rope = test::random_tensor(DType::kBf16, {t, n, dr}, 2);
        const Tensor scale = test::positive_tensor({t, n, 1}, 3, 0.01f);
        Tensor kv = test::random_tensor(
            quantised ? DType::kInt8 : DType::kBf16, {2, 128, 1, quantised ? 656u : hckv}, 4);
        for (size_t row = 0; row < 256 && quantised; ++row) {
            const Tensor rope = test::random_tensor(DType::kBf16, {dr}, 100);
            const Tensor tiles = test::positive_tensor({4}, static_cast<uint32_t>(row), 0.02f);
            std::memcpy(&kv.bytes[row * 656 + 512], rope.bytes.data(), 128);
            std::memcpy(&kv.bytes[row * 656 + 640], tiles.bytes.data(), 16);
        }
        const Tensor kr = test::random_tensor(DType::kBf16, {2, 128, 1, dr}, 5);
        Tensor positions(DType::kInt32, {t}, 0);
        positions.as<int32_t>()[1] = 64;
        const Tensor sequence(DType::kInt32, {t}, 0);
        Tensor table(DType::kInt32, {1, 1});
        *table.as<int32_t>() = 1;
        const Tensor uv = test::random_tensor(DType::kBf16, {n, 128, hckv}, 6, 0.05f);
        const Tensor wo = test::random_tensor(DType::kBf16, {n * 128, 7168}, 7, 0.02f);
        Tensor have(DType::kBf16, {t, 7168}, 0x55);
        Tensor want = have;
        MlaAttentionV3Request r;
        r.softmax_scale = 0.07f;
        r.kv_cache_quant_mode = quantised ? 3 : 0;
        r.query_quant_mode = quantised ? 1 : 0;
        r.query = query.view;
        r.query_rope = query_rope.view;
        if (quantised) r.dequant_scale_q_nope = scale.view;
        r.kv_cache = kv.view;
        if (!quantised) r.kr_cache = kr.view;
        r.positions = positions.view;
        r.sequence_index = sequence.view;
        r.block_table = table.view;
        r.weight_uv = uv.view;
        r.weight_o = wo.view;
        r.attention_out = want.view;
        ASSERT_TRUE(reference::mla_attention_v3(r).ok());
        r.attention_out = have.view;
        const MlaAttentionV3Weights weights =
            pack_mla_attention_v3(r, NumericClass::kPortable).value();
        const MlaShape shape{
            .kv_lora_rank = hckv, .num_heads = n, .qk_rope_head_dim = dr, .v_head_dim = 128};
        const Workspace workspace(mla_attention_v3_workspace_bytes(shape, t, 3));
        SerialParallel serial;
        ASSERT_TRUE(mla_attention_v3(r, weights, workspace.bytes(), serial).ok());
        EXPECT_TRUE(have.bytes == want.bytes) << digits;
        std::fill(have.bytes.begin(), have.bytes.end(), std::byte{0x55});
        threads::ThreadPool threads(3);
        ASSERT_TRUE(mla_attention_v3(r, weights, workspace.bytes(), threads).ok());
        EXPECT_TRUE(have.bytes == want.bytes) << digits;
    }
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_prolog_v3.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::all_scenarios;
using test::cache_mode_names;
using test::expect_same_bytes;
using test::MlaCase;
using test::MlaCaseOptions;
using test::Tensor;

bool applies(const MlaCaseOptions& options, const std::string& mode, bool merged) {
    if (mode == "BSND" && merged) return false;
    if (mode == "TND" && !merged) return false;
    return options.kv != 3 || (mode != "PA_NZ" && mode != "PA_BLK_NZ");
}

// Calls body(options) for every scenario, cache mode and kind of axes that go together.
template <typename Body>
void for_every_combination(const Body& body) {
    for (MlaCaseOptions options : all_scenarios()) {
        for (const std::string_view mode : cache_mode_names()) {
            for (const bool merged : {true, false}) {
                if (!applies(options, std::string(mode), merged)) continue;
                options.cache_mode = mode;
                options.merged = merged;
                body(options);
            }
        }
    }
}

// Goal: the fast path is the operator. Oracle: the reference's plain loops, which have the order of
// sums of class portable, so every byte of every output and cache must agree.
// Covers: mla_prolog_v3 token_x=bf16,int8 weight_dq=bf16,int8 weight_uq_qr=bf16,int8
// Covers: mla_prolog_v3 weight_uk=bf16 weight_dkv_kr=bf16,int8 query=bf16,int8 query_norm=bf16,int8
// Covers: mla_prolog_v3 rmsnorm_gamma_cq=bf16 rmsnorm_gamma_ckv=bf16 rope_sin=bf16 rope_cos=bf16
// Covers: mla_prolog_v3 kv_cache=bf16,int8 kr_cache=bf16,int8 cache_index=int64
// Covers: mla_prolog_v3 dequant_scale_w_dq=given,none dequant_scale_w_uq_qr=given,none
// Covers: mla_prolog_v3 dequant_scale_w_dkv_kr=given,none quant_scale_ckv=[1],[1;Hckv],none
// Covers: mla_prolog_v3 quant_scale_ckr=given,none
// Covers: mla_prolog_v3 actual_seq_len=int32 rmsnorm_epsilon_cq=1e-4 rmsnorm_epsilon_ckv=1e-3
// Covers: mla_prolog_v3 weight_quant_mode=0,1,2 kv_cache_quant_mode=0,1,2,3 query_quant_mode=0,1
// Covers: mla_prolog_v3 cache_mode=PA_BSND,PA_NZ,PA_BLK_BSND,PA_BLK_NZ,BSND,TND
// Covers: mla_prolog_v3 query_norm_flag=true ckvkr_repo_mode=0,1 quant_scale_repo_mode=0,1
// Covers: mla_prolog_v3 qc_qr_scale=1.25 kc_scale=0.875 tile_size=16
TEST(MlaPrologV3, EqualsTheReferenceInEveryScenarioCacheModeAndAxes) {
    size_t num_combinations = 0;
    for_every_combination([&](const MlaCaseOptions& options) {
        MlaCase have(options);
        MlaCase want(options);
        have.run_portable();
        want.run_reference();
        expect_same_bytes(have, want);
        ++num_combinations;
    });
    EXPECT_EQ(num_combinations, 5U * 10U + 3U * 6U);
}

// Oracle: the outputs that the cases of the other tests hold, and the fast path accepts.
TEST(MlaPrologV3, SaysTheShapesOfItsOutputs) {
    for_every_combination([](MlaCaseOptions options) {
        for (const bool query_norm : {true, false}) {
            options.query_norm = query_norm;
            MlaCase one(options);
            MlaPrologV3Request r = one.request();
            r.query = r.query_rope = r.dequant_scale_q_nope = {};
            r.query_norm = r.dequant_scale_q_norm = {};
            const MlaPrologV3Request shapes = with_output_shapes(r).value();
            const auto same = [](const TensorView& have, const Tensor& want) {
                const ConstTensorView view = want.view;
                EXPECT_EQ(have.rank, view.rank);
                EXPECT_EQ(have.shape, view.shape);
                EXPECT_EQ(have.strides, view.strides);
                EXPECT_TRUE(have.rank == 0 || have.dtype == view.dtype);
            };
            same(shapes.query, one.query);
            same(shapes.query_rope, one.query_rope);
            same(shapes.dequant_scale_q_nope, one.dequant_scale_q_nope);
            same(shapes.query_norm, one.query_norm);
            same(shapes.dequant_scale_q_norm, one.dequant_scale_q_norm);
        }
    });
    MlaCase one{MlaCaseOptions()};
    MlaPrologV3Request r = one.request();
    r.token_x = {};
    EXPECT_EQ(with_output_shapes(r).error().message,
              "mla_prolog_v3: token_x is missing; it must be [T, He] | [B, S, He]");
}

// Goal: FRACTAL_NZ weights mean the same matrices. Oracle: the row-major ones, equal bits.
// Covers: mla_prolog_v3 weight_dq=FRACTAL_NZ weight_uq_qr=FRACTAL_NZ weight_dkv_kr=FRACTAL_NZ
TEST(MlaPrologV3, TakesWeightsAsFractalNz) {
    for (MlaCaseOptions options : all_scenarios()) {
        MlaCase plain(options);
        options.nz_weights = true;
        MlaCase fractal(options);
        MlaCase by_reference(options);
        plain.run_portable();
        fractal.run_portable();
        by_reference.run_reference();
        expect_same_bytes(fractal, plain);
        expect_same_bytes(by_reference, plain);
    }
}

// Covers: mla_prolog_v3 query_norm_flag=false weight_dq=null tile_size=1,8,32,64
TEST(MlaPrologV3, EqualsTheReferenceForOtherSizesAndOptions) {
    std::vector<MlaCaseOptions> cases;
    for (MlaCaseOptions options : all_scenarios()) {
        options.query_norm = false;
        options.smooth = false;
        cases.push_back(options);
        options.b = options.s = options.he = options.hcq = options.n = options.d = 1;
        options.hckv = 32;
        options.dr = 2;
        cases.push_back(options);
        options.b = 2;
        options.s = 13;
        options.he = 131;
        options.hcq = 17;
        options.hckv = 96;
        options.n = 7;
        options.dr = 6;
        options.block_num = 31;
        options.tile_size = 8;
        options.query_norm = options.smooth = true;
        cases.push_back(options);
        options.tile_size = 32;
        cases.push_back(options);
    }
    for (const int64_t tile_size : {1, 64}) {
        MlaCaseOptions options = all_scenarios().back();
        options.tile_size = tile_size;
        cases.push_back(options);
    }
    MlaCaseOptions no_low_rank;
    no_low_rank.hcq = 0;
    cases.push_back(no_low_rank);
    for (const MlaCaseOptions& options : cases) {
        MlaCase have(options);
        MlaCase want(options);
        have.run_portable();
        want.run_reference();
        expect_same_bytes(have, want);
    }
}

// Covers: mla_prolog_v3 smooth_scales_cq=[1] dequant_scale_x=[T] k_nope_clip_alpha=null
TEST(MlaPrologV3, TakesTheOtherShapesOfScales) {
    MlaCaseOptions options = all_scenarios().back();
    MlaCase have(options);
    have.smooth_scales_cq = test::positive_tensor({1}, 5, 1.0f);
    have.dequant_scale_x.view.rank = 1;
    have.k_nope_clip_alpha = Tensor();
    MlaCase want = have;
    have.run_portable();
    want.run_reference();
    expect_same_bytes(have, want);
    // Without a clip factor nothing is clipped.
    MlaCase one = have;
    one.k_nope_clip_alpha = Tensor(DType::kFp32, {1});
    *one.k_nope_clip_alpha.as<float>() = 1.0f;
    one.run_portable();
    expect_same_bytes(have, one);
}

// Goal: every mode puts a token's row where the seed says. Method: the same tokens through PA_BSND
// with rows counted by hand, and through the other modes. Oracle: the same rows byte by byte.
TEST(MlaPrologV3, PutsTheSameRowsInEveryCacheMode) {
    for (const int64_t kv : {0, 2}) {
        for (const bool merged : {true, false}) {
            for (const std::string mode : {"PA_BLK_BSND", "PA_BLK_NZ", "PA_NZ", "BSND", "TND"}) {
                MlaCaseOptions options;
                options.weight = kv == 2 ? 1 : 0;
                options.kv = kv;
                options.merged = merged;
                options.cache_mode = mode;
                if (!applies(options, mode, merged)) continue;
                MlaCase other(options);
                other.run_portable();
                options.cache_mode = "PA_BSND";
                MlaCase plain(options);
                std::vector<size_t> row_of(options.b * options.s);
                size_t entry = 0;
                size_t begin = 0;
                for (size_t b = 0; b < options.b; ++b) {
                    size_t end = (b + 1) * options.s;
                    if (other.actual_seq_len.size() != 0) {
                        end = static_cast<size_t>(other.actual_seq_len.as<int32_t>()[b]);
                    }
                    for (size_t t = begin; t < end; ++t) {
                        if (mode == "BSND" || mode == "TND") {
                            row_of[t] = t;
                        } else if (mode == "PA_NZ") {
                            row_of[t] = static_cast<size_t>(other.cache_index.as<int64_t>()[t]);
                        } else {
                            const size_t block = entry + (t - begin) / options.block_size;
                            row_of[t] =
                                static_cast<size_t>(other.cache_index.as<int64_t>()[block]) *
                                    options.block_size +
                                (t - begin) % options.block_size;
                        }
                        plain.cache_index.as<int64_t>()[t] = static_cast<int64_t>(row_of[t]);
                    }
                    entry += (end - begin + options.block_size - 1) / options.block_size;
                    begin = end;
                }
                plain.run_portable();
                const auto same = [&](const Tensor& a, const Tensor& b) {
                    const size_t bytes = b.view.shape[3] * size_of(b.view.dtype);
                    const bool nz = mode == "PA_NZ" || mode == "PA_BLK_NZ";
                    for (const size_t row : row_of) {
                        for (size_t i = 0; i < bytes; ++i) {
                            const size_t height = options.block_size;
                            const size_t at = nz ? row / height * height * bytes +
                                                       i / 32 * height * 32 + row % height * 32 +
                                                       i % 32
                                                 : row * bytes + i;
                            ASSERT_EQ(a.bytes[at], b.bytes[row * bytes + i]) << mode << " " << row;
                        }
                    }
                };
                same(other.kv_cache, plain.kv_cache);
                same(other.kr_cache, plain.kr_cache);
            }
        }
    }
}

// Covers: mla_prolog_v3 cache_index=-1,duplicate
TEST(MlaPrologV3, SkipsIndexMinusOneAndLetsTheLastOfEqualIndicesWin) {
    for (const MlaCaseOptions& options : all_scenarios()) {
        MlaCase base(options);
        int64_t* index = base.cache_index.as<int64_t>();
        const size_t num_tokens = options.b * options.s;
        MlaCase skipping = base;
        // Token 4 shares the row of the last token, token 7 has none.
        index[num_tokens - 1] = index[4];
        index[7] = -1;
        MlaCase have = base;
        have.run_portable();
        // Oracle: a run in which the losers write nothing.
        skipping.cache_index = base.cache_index;
        skipping.cache_index.as<int64_t>()[4] = -1;
        skipping.run_reference();
        expect_same_bytes(have, skipping);
        MlaCase none = base;
        for (size_t t = 0; t < num_tokens; ++t) none.cache_index.as<int64_t>()[t] = -1;
        const auto before = none.kv_cache.bytes;
        none.run_portable();
        EXPECT_TRUE(none.kv_cache.bytes == before);
    }
}

TEST(MlaPrologV3, SkipsTheTokensOfBlocksMinusOne) {
    MlaCaseOptions options;
    options.cache_mode = "PA_BLK_BSND";
    options.merged = false;
    MlaCase have(options);
    have.cache_index.as<int64_t>()[1] = -1;  // Tokens 4 of the first sequence.
    MlaCase all(options);
    have.run_portable();
    all.run_portable();
    const size_t row_bytes = options.hckv * 2;
    const auto skipped = static_cast<size_t>(all.cache_index.as<int64_t>()[1]);
    for (size_t row = 0; row < options.block_num * options.block_size; ++row) {
        const bool is_skipped = row / options.block_size == skipped;
        const std::byte* want = is_skipped ? nullptr : all.kv_cache.bytes.data() + row * row_bytes;
        for (size_t i = 0; i < row_bytes; ++i) {
            ASSERT_EQ(have.kv_cache.bytes[row * row_bytes + i],
                      is_skipped ? std::byte{0x7f} : want[i]);
        }
    }
}

// Covers: mla_prolog_v3 T=0 B=0 S=0
TEST(MlaPrologV3, AcceptsNoTokens) {
    for_every_combination([](MlaCaseOptions options) {
        for (const bool no_batch : {true, false}) {
            options.b = no_batch ? 0 : 2;
            options.s = no_batch ? 5 : 0;
            if (options.cache_mode.starts_with("PA_BLK")) {
                options.b = options.merged ? 1 : options.b;
                options.s = options.merged ? 0 : options.s;
            }
            MlaCase none(options);
            const auto before = none.kv_cache.bytes;
            none.run_portable();
            none.run_reference();
            EXPECT_TRUE(none.kv_cache.bytes == before);
        }
    });
}

// Of which a sum over blocks has nothing to divide by.
TEST(MlaPrologV3, AcceptsACacheWithoutRowsForNoTokens) {
    MlaCaseOptions options;
    options.s = 0;
    options.cache_mode = "PA_BLK_BSND";
    MlaCase none(options);
    MlaPrologV3Request request = none.request();
    request.kv_cache = test::with_shape(request.kv_cache, {9, 0, 1, 64});
    request.kr_cache = test::with_shape(request.kr_cache, {9, 0, 1, 32});
    const auto done = reference::mla_prolog_v3(request);
    EXPECT_TRUE(done.ok()) << done.error().message;
}

// Goal: the special rows of docs/specification.md, section 9. A head of zeros has scale 1; a token
// with NaN has NaN scales and int8 zeros, in its tiles too; its neighbours do not notice.
TEST(MlaPrologV3, QuantisesZerosAndNaNAsWritten) {
    MlaCaseOptions options = all_scenarios().back();
    MlaCase plain(options);
    plain.run_portable();
    MlaCase special(options);
    float* x_scale = special.dequant_scale_x.as<float>();
    x_scale[2] = std::numeric_limits<float>::quiet_NaN();
    // Head 1 of every token is zero.
    for (size_t i = 0; i < options.d * options.hckv; ++i) {
        special.weight_uk.as<Bf16>()[options.d * options.hckv + i] = Bf16{0};
    }
    MlaCase by_reference = special;
    special.run_portable();
    by_reference.run_reference();
    const float* scales = special.dequant_scale_q_nope.as<float>();
    EXPECT_EQ(scales[1], 1.0f);
    EXPECT_TRUE(std::isnan(scales[2 * options.n]));
    EXPECT_TRUE(std::isnan(special.dequant_scale_q_norm.as<float>()[2]));
    for (size_t i = 0; i < options.hckv; ++i) {
        EXPECT_EQ(special.query.as<int8_t>()[options.hckv + i], 0);
        EXPECT_EQ(special.query.as<int8_t>()[2 * options.n * options.hckv + i], 0);
    }
    const size_t row_bytes = special.kv_cache.view.shape[3];
    const auto row = static_cast<size_t>(special.cache_index.as<int64_t>()[2]);
    const std::byte* nan_row = special.kv_cache.bytes.data() + row * row_bytes;
    float tile_scale = 0;
    std::memcpy(&tile_scale, nan_row + options.hckv + 2 * options.dr, sizeof tile_scale);
    EXPECT_TRUE(std::isnan(tile_scale));
    EXPECT_EQ(nan_row[0], std::byte{0});
    const auto neighbour = static_cast<size_t>(special.cache_index.as<int64_t>()[3]);
    EXPECT_EQ(std::memcmp(special.kv_cache.bytes.data() + neighbour * row_bytes,
                          plain.kv_cache.bytes.data() + neighbour * row_bytes,
                          row_bytes),
              0);
    EXPECT_EQ(std::memcmp(special.query.bytes.data(), by_reference.query.bytes.data(), 1), 0);
}

// Goal: one dequantisation serves both parts of a score (the reason for scaled query_rope).
// Method: with scenario 211, the exact score of a token and a cache row from the quantised outputs,
// (Σ q·ckv_int8 + (query_rope·kr)) · dequant_scale_q_nope / quant_scale_ckv. Oracle: the same score
// from scenario 200 on the same inputs, within the quantisation errors (1/127 of each factor's
// largest value) that the sum can gather.
TEST(MlaPrologV3, ScalesTheRotatedQueryForOneDequantisation) {
    MlaCaseOptions options;
    options.weight = 2;
    MlaCase plain(options);
    options.kv = 1;
    options.query = 1;
    MlaCase quantised(options);
    *quantised.quant_scale_ckv.as<float>() = 30.0f;
    plain.run_portable();
    quantised.run_portable();
    const size_t latent = options.hckv;
    const size_t dim = options.dr;
    for (size_t place = 0; place < options.b * options.s * options.n; ++place) {
        const auto row = static_cast<size_t>(plain.cache_index.as<int64_t>()[place / options.n]);
        double exact = 0;
        double magnitude = 0;
        double have = 0;
        for (size_t i = 0; i < latent; ++i) {
            const double product =
                plain.query.at(place * latent + i) * plain.kv_cache.at(row * latent + i);
            exact += product;
            magnitude += std::fabs(product);
            have +=
                quantised.query.at(place * latent + i) * quantised.kv_cache.at(row * latent + i);
        }
        for (size_t i = 0; i < dim; ++i) {
            const double product =
                plain.query_rope.at(place * dim + i) * plain.kr_cache.at(row * dim + i);
            exact += product;
            magnitude += std::fabs(product);
            have += quantised.query_rope.at(place * dim + i) * quantised.kr_cache.at(row * dim + i);
        }
        have *= quantised.dequant_scale_q_nope.at(place) / 30.0;
        EXPECT_NEAR(have, exact, 0.05 * magnitude) << place;
    }
}

}  // namespace
}  // namespace afd::ops

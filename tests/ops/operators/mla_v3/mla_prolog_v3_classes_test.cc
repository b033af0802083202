// SPDX-License-Identifier: Apache-2.0

// mla_prolog_v3 in every numeric class: rounding, the decoder's bits, row invariance.

#include <gtest/gtest.h>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::all_scenarios;
using test::expect_same_bytes;
using test::MlaCase;
using test::MlaCaseOptions;
using test::Tensor;

AFD_FOR_EVERY_CLASS(MlaPrologV3Classes);

// Bound for classes with other orders of sums: five rounding points to bf16 in series, each may
// flip to its neighbour, 2^-8 of a value; int8 values may differ by 2. The reference is exact to
// that order, so a wrong rounding point or index shows at once.
TEST_P(MlaPrologV3Classes, StaysWithinRoundingOfTheReference) {
    for (const MlaCaseOptions& options : all_scenarios()) {
        MlaCase have(options);
        MlaCase want(options);
        SerialParallel serial;
        have.run(GetParam(), serial);
        want.run_reference();
        const auto wanted = want.outputs();
        size_t output = 0;
        for (const auto& [name, tensor] : have.outputs()) {
            const Tensor& other = *wanted[output++].tensor;
            // A per-tile row holds three dtypes; the attention tests read it.
            if (options.kv == 3 && tensor->view.dtype == DType::kInt8 && name[0] == 'k') continue;
            double largest = 0;
            for (size_t i = 0; i < other.size(); ++i) {
                if (std::fabs(other.at(i)) < 1e30) {
                    largest = std::max(largest, std::fabs(other.at(i)));
                }
            }
            const double bound = tensor->view.dtype == DType::kInt8 ? 2.0 : 5.0 / 256.0 * largest;
            for (size_t i = 0; i < tensor->size(); ++i) {
                ASSERT_NEAR(tensor->at(i), other.at(i), bound)
                    << name << "[" << i << "], " << label(options);
            }
        }
    }
}

// Goal: scenario 000 is the decoder's own prolog. Method: the same layer through both. The decoder
// has fp32 angles, so the second pair turns so slowly (theta 2^40) that its sine is exactly the
// angle, a bf16 number, and its cosine 1; its odd elements are 2^20 times larger, so that the sines
// matter. The first pair, which always turns by one a position, is fed zeros. Oracle: equal bits of
// queries, rotated queries, query_norm and cache rows.
TEST_P(MlaPrologV3Classes, HasTheBitsOfTheDecodersProlog) {
    for (const size_t low_rank : {37u, 0u}) {
        MlaCaseOptions options;
        options.hcq = low_rank;
        options.dr = 4;
        MlaCase one(options);
        const size_t head_cols = options.d + options.dr;
        const auto shape_pairs = [](Tensor& w, size_t first) {
            const size_t cols = w.view.shape[1];
            for (size_t row = 0; row < w.view.shape[0]; ++row) {
                Bf16* pairs = w.as<Bf16>() + row * cols + first;
                pairs[0] = pairs[1] = Bf16{0};
                pairs[3] = from_float(to_float(pairs[3]) * 0x1p20f);
            }
        };
        for (size_t head = 0; head < options.n; ++head) {
            shape_pairs(one.weight_uq_qr, head * head_cols + options.d);
        }
        shape_pairs(one.weight_dkv_kr, options.hckv);

        const RopeTable table =
            RopeTable::make({.dim = 4, .theta = 0x1p40, .num_positions = 256, .yarn = {}}).value();
        const size_t num_tokens = options.b * options.s;
        std::vector<int32_t> positions;
        bool turns = false;
        for (size_t t = 0; t < num_tokens; ++t) {
            positions.push_back(static_cast<int32_t>(t * 17));
            for (size_t i = 0; i < 4; ++i) {
                const float cos = table.cos(t * 17)[i % 2];
                const float sin = table.sin(t * 17)[i % 2];
                one.rope_cos.as<Bf16>()[t * 4 + i] = from_float(cos);
                one.rope_sin.as<Bf16>()[t * 4 + i] = from_float(sin);
                if (i % 2 == 0) continue;
                ASSERT_EQ(to_float(from_float(cos)), cos);
                ASSERT_EQ(to_float(from_float(sin)), sin);
                turns = turns || sin != 0.0f;
            }
        }
        ASSERT_TRUE(turns);

        const MlaPrologV3Request r = one.request();
        SerialParallel serial;
        const MlaPrologV3Weights packed = pack_mla_prolog_v3(r, GetParam()).value();
        MlaWeights weights;
        weights.shape = packed.shape;
        const auto matrix = [&](const Tensor& w) {
            return PackedLinear::pack_transposed(
                make_rows(w.as<Bf16>(), w.view.shape[0], w.view.shape[1]), GetParam());
        };
        if (low_rank != 0) weights.weight_dq = matrix(one.weight_dq);
        weights.weight_uq_qr = matrix(one.weight_uq_qr);
        weights.weight_dkv_kr = matrix(one.weight_dkv_kr);
        for (size_t head = 0; head < options.n; ++head) {
            weights.weight_uk.push_back(PackedLinear::pack_transposed(
                make_rows(one.weight_uk.as<Bf16>() + head * options.d * options.hckv,
                          options.d,
                          options.hckv),
                GetParam()));
        }
        const auto values = [](const Tensor& tensor) {
            return std::vector<Bf16>(tensor.as<Bf16>(), tensor.as<Bf16>() + tensor.size());
        };
        weights.rmsnorm_gamma_cq = values(one.rmsnorm_gamma_cq);
        weights.rmsnorm_gamma_ckv = values(one.rmsnorm_gamma_ckv);
        weights.rmsnorm_epsilon_cq = r.rmsnorm_epsilon_cq;
        weights.rmsnorm_epsilon_ckv = r.rmsnorm_epsilon_ckv;
        weights.qc_qr_scale = r.qc_qr_scale;
        weights.kc_scale = r.kc_scale;

        MlaCase two = one;
        const auto rows = [&](Tensor& tensor) {
            return make_rows(tensor.as<Bf16>(), num_tokens, tensor.size() / num_tokens);
        };
        const Workspace workspace(mla_prolog_workspace_bytes(weights.shape, num_tokens));
        const AttentionBatch batch{
            num_tokens, positions.data(), two.cache_index.as<int64_t>(), nullptr};
        const LatentCache cache{two.kv_cache.as<Bf16>(),
                                two.kr_cache.as<Bf16>(),
                                options.block_num * options.block_size};
        ASSERT_TRUE(mla_prolog({.weights = &weights,
                                .rope = &table,
                                .token_x = rows(two.token_x),
                                .batch = batch,
                                .cache = cache,
                                .query = rows(two.query),
                                .query_rope = rows(two.query_rope),
                                .query_norm = low_rank != 0 ? rows(two.query_norm) : Rows<Bf16>{}},
                               workspace.bytes(),
                               serial)
                        .ok());
        one.run(GetParam(), serial);
        expect_same_bytes(one, two);
    }
}

// Goal: row invariance, the promise that batching and threads change nothing. Oracle: each token
// alone.
TEST_P(MlaPrologV3Classes, GivesATokenTheSameBitsInEveryBatch) {
    for (const MlaCaseOptions& scenario : all_scenarios()) {
        MlaCaseOptions all = scenario;
        all.b = 1;
        all.s = 6;
        const MlaCase source(all);
        test::expect_row_invariant(6, [&](std::span<const size_t> rows, Parallel& parallel) {
            MlaCaseOptions picked = all;
            picked.s = rows.size();
            picked.block_num = rows.size();
            MlaCase some(picked);
            const auto pick = [&](const Tensor& from, Tensor& to) {
                const size_t bytes = from.bytes.size() / 6;
                for (size_t i = 0; i < rows.size() && bytes != 0; ++i) {
                    std::memcpy(&to.bytes[i * bytes], &from.bytes[rows[i] * bytes], bytes);
                }
            };
            pick(source.token_x, some.token_x);
            pick(source.rope_sin, some.rope_sin);
            pick(source.rope_cos, some.rope_cos);
            pick(source.dequant_scale_x, some.dequant_scale_x);
            for (size_t i = 0; i < rows.size(); ++i) {
                some.cache_index.as<int64_t>()[i] = static_cast<int64_t>(i);
            }
            some.run(GetParam(), parallel);
            std::vector<uint32_t> bits;
            for (size_t i = 0; i < rows.size(); ++i) {
                for (const auto& [name, tensor] : some.outputs()) {
                    const bool is_cache = name[0] == 'k';
                    const size_t count =
                        is_cache ? picked.block_num * picked.block_size : rows.size();
                    const size_t bytes = tensor->bytes.size() / count;
                    for (size_t byte = 0; byte < bytes; ++byte) {
                        bits.push_back(static_cast<uint32_t>(tensor->bytes[i * bytes + byte]));
                    }
                }
            }
            return bits;
        });
    }
}

}  // namespace
}  // namespace afd::ops

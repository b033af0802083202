// SPDX-License-Identifier: Apache-2.0

// The rows of the daemon's int8 cache are those of mla_prolog_v3.

#include <gtest/gtest.h>

#include "ops/attention/mla_prolog.h"
#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::MlaCase;
using test::MlaCaseOptions;
using test::RandomMatrix;
using test::Tensor;

AFD_FOR_EVERY_CLASS(MlaKvRows);

// What the live prolog needs beside the case's own matrices; nothing of the cache comes from it.
MlaWeights weights_of(const MlaCase& c, const MlaPrologV3Request& r, NumericClass numeric_class) {
    const MlaCaseOptions& o = c.o;
    MlaWeights weights;
    weights.shape = {.hidden = o.he,
                     .q_lora_rank = 0,
                     .kv_lora_rank = o.hckv,
                     .num_heads = o.n,
                     .qk_nope_head_dim = o.d,
                     .qk_rope_head_dim = o.dr,
                     .v_head_dim = 1};
    weights.weight_uq_qr =
        PackedLinear::pack(RandomMatrix(o.n * (o.d + o.dr), o.he, 1).rows(), numeric_class);
    for (size_t head = 0; head < o.n; ++head) {
        weights.weight_uk.push_back(
            PackedLinear::pack(RandomMatrix(o.hckv, o.d, 2).rows(), numeric_class));
    }
    weights.weight_dkv_kr = PackedLinear::pack_transposed(
        make_rows(c.weight_dkv_kr.as<Bf16>(), o.he, o.hckv + o.dr), numeric_class);
    weights.rmsnorm_gamma_ckv.assign(c.rmsnorm_gamma_ckv.as<Bf16>(),
                                     c.rmsnorm_gamma_ckv.as<Bf16>() + o.hckv);
    weights.rmsnorm_epsilon_ckv = r.rmsnorm_epsilon_ckv;
    weights.kc_scale = r.kc_scale;
    return weights;
}

// The live prolog over the case's rows, at position 0, where a rotation turns nothing.
void run_live(MlaCase& c, LatentCache cache, NumericClass numeric_class) {
    const MlaCaseOptions& options = c.o;
    const size_t num_tokens = options.b * options.s;
    std::fill_n(c.rope_cos.as<Bf16>(), num_tokens * options.dr, from_float(1.0f));
    std::fill_n(c.rope_sin.as<Bf16>(), num_tokens * options.dr, from_float(0.0f));
    const MlaPrologV3Request r = c.request();
    const MlaWeights weights = weights_of(c, r, numeric_class);
    const RopeTable table =
        RopeTable::make({.dim = options.dr, .theta = 10000, .num_positions = 1, .yarn = {}})
            .value();
    const std::vector<int32_t> positions(num_tokens, 0);
    RandomMatrix query(num_tokens, options.n * options.hckv, 1);
    RandomMatrix query_rope(num_tokens, options.n * options.dr, 1);
    const Workspace workspace(mla_prolog_workspace_bytes(weights.shape, num_tokens));
    cache.num_slots = options.block_num * options.block_size;
    SerialParallel serial;
    ASSERT_TRUE(
        mla_prolog({.weights = &weights,
                    .rope = &table,
                    .token_x = make_rows(c.token_x.as<Bf16>(), num_tokens, options.he),
                    .batch = {num_tokens, positions.data(), c.cache_index.as<int64_t>(), nullptr},
                    .cache = cache,
                    .query = query.mutable_rows(),
                    .query_rope = query_rope.mutable_rows(),
                    .query_norm = {}},
                   workspace.bytes(),
                   serial)
            .ok());
}

// Goal: kv_dtype = int8 means kv_cache_quant_mode 3. Method: the same rows and the same matrix
// through both. Oracle: the operator, which has its reference and golden vectors; every byte of the
// cache.
TEST_P(MlaKvRows, AreThoseOfTheOperatorPerTile) {
    MlaCaseOptions options;
    options.weight = 1;
    options.kv = 3;
    options.hckv = 256;
    options.tile_size = static_cast<int64_t>(kKvTile);
    MlaCase c(options);
    *c.k_nope_clip_alpha.as<float>() = 1.0f;
    // Before the operator writes: rows that nobody names stay as they are.
    Tensor rows = c.kv_cache;
    run_live(c, {.dtype = KvDtype::kInt8, .rows = rows.bytes.data()}, GetParam());
    const Tensor untouched = c.kv_cache;
    SerialParallel serial;
    c.run(GetParam(), serial);
    EXPECT_EQ(rows.bytes, c.kv_cache.bytes);
    EXPECT_NE(untouched.bytes, c.kv_cache.bytes);
}

// Goal: kv_dtype = int8_channel means kv_cache_quant_mode 2; the daemon's row is those of both
// caches. Method and oracle as above.
TEST_P(MlaKvRows, AreThoseOfTheOperatorPerChannel) {
    MlaCaseOptions options;
    options.weight = 1;
    options.kv = 2;
    MlaCase c(options);
    const size_t num_slots = options.block_num * options.block_size;
    const size_t row_bytes = options.hckv + options.dr;
    std::vector<std::byte> rows(num_slots * row_bytes);
    const auto both = [&](size_t slot) {
        std::vector<std::byte> row(row_bytes);
        std::memcpy(row.data(), &c.kv_cache.bytes[slot * options.hckv], options.hckv);
        std::memcpy(&row[options.hckv], &c.kr_cache.bytes[slot * options.dr], options.dr);
        return row;
    };
    for (size_t slot = 0; slot < num_slots; ++slot) {
        std::ranges::copy(both(slot), &rows[slot * row_bytes]);
    }
    run_live(c,
             {.dtype = KvDtype::kInt8Channel,
              .rows = rows.data(),
              .quant_scale_ckv = c.quant_scale_ckv.as<float>(),
              .quant_scale_ckr = c.quant_scale_ckr.as<float>()},
             GetParam());
    SerialParallel serial;
    c.run(GetParam(), serial);
    for (size_t slot = 0; slot < num_slots; ++slot) {
        const std::vector<std::byte> want = both(slot);
        ASSERT_TRUE(std::equal(want.begin(), want.end(), &rows[slot * row_bytes])) << slot;
    }
}

}  // namespace
}  // namespace afd::ops

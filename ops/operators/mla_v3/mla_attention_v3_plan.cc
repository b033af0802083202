// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_attention_v3_plan.h"

#include <string>

#include "ops/operators/mla_v3/cache_check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

using Request = MlaAttentionV3Request;

template <typename... Values>
Error refuse(Text<Values...> text, const With<Values...>& values = {}) {
    return invalid_argument("mla_attention_v3: {}", with(fmt::vformat(text, values)));
}

const int32_t* ints_of(const ConstTensorView& view) {
    return static_cast<const int32_t*>(view.data);
}

// How many sequences the cache has, by whatever tells where they are.
size_t num_sequences_of(const Request& r, CacheMode mode) {
    if (is_paged(mode)) return r.block_table.shape[0];
    return mode == CacheMode::kTnd ? r.actual_seq_len.shape[0] : r.kv_cache.shape[0];
}

Result<> check_prefix_sums(const Request& r) {
    const int32_t* ends = ints_of(r.actual_seq_len);
    int32_t previous = 0;
    for (size_t b = 0; b < r.actual_seq_len.num_elements(); ++b) {
        if (ends[b] < previous || static_cast<size_t>(ends[b]) > r.kv_cache.shape[0]) {
            return refuse("actual_seq_len[{}] is {}; allowed are {} to {}",
                          with(b, ends[b], previous, r.kv_cache.shape[0]));
        }
        previous = ends[b];
    }
    return {};
}

size_t sequence_of(const Request& r, size_t token) {
    if (r.sequence_index.num_elements() == 0) return token / r.query.shape[1];
    // A negative index becomes a huge one, which check_token() refuses.
    return static_cast<size_t>(ints_of(r.sequence_index)[token]);
}

// Positions that the sequence has rows for.
size_t capacity_of(const Request& r, CacheMode mode, size_t sequence) {
    if (is_paged(mode)) return r.block_table.shape[1] * r.kv_cache.shape[1];
    if (mode == CacheMode::kBsnd) return r.kv_cache.shape[1];
    const int32_t* ends = ints_of(r.actual_seq_len);
    const int32_t begin = sequence == 0 ? 0 : ends[sequence - 1];
    return static_cast<size_t>(ends[sequence] - begin);
}

Result<> check_token(const Request& r, CacheMode mode, size_t token) {
    const size_t sequence = sequence_of(r, token);
    const size_t num_sequences = num_sequences_of(r, mode);
    if (sequence >= num_sequences) {
        if (r.sequence_index.num_elements() == 0) {
            return refuse("query has B {}; the cache has {} sequences",
                          with(r.query.shape[0], num_sequences));
        }
        return refuse("sequence_index[{}] is {}; the cache has {} sequences",
                      with(token, ints_of(r.sequence_index)[token], num_sequences));
    }
    const int32_t position = ints_of(r.positions)[token];
    const size_t capacity = capacity_of(r, mode, sequence);
    if (position < 0 || static_cast<size_t>(position) >= capacity) {
        return refuse("positions[{}] is {}; sequence {} has {} rows",
                      with(token, position, sequence, capacity));
    }
    if (!is_paged(mode)) return {};
    const int32_t* table = ints_of(r.block_table) + sequence * r.block_table.shape[1];
    // No further than the token reaches: what stands behind in the table is not read, and may be
    // anything.
    const size_t last_block = static_cast<size_t>(position) / r.kv_cache.shape[1];
    for (size_t block = 0; block <= last_block; ++block) {
        if (table[block] >= 0 && static_cast<size_t>(table[block]) < r.kv_cache.shape[0]) continue;
        return refuse("block_table[{}][{}] is {}; the cache has {} blocks",
                      with(sequence, block, table[block], r.kv_cache.shape[0]));
    }
    return {};
}

}  // namespace

Result<MlaAttentionV3Plan> plan_mla_attention_v3(const MlaAttentionV3Request& r) {
    OperatorCheck check(kMlaAttentionV3Spec, r);
    AFD_TRY(check_mla_attention_v3(r, check));
    MlaAttentionV3Plan plan;
    plan.shape.hidden = check.size("He");
    plan.shape.kv_lora_rank = check.size("Hckv");
    plan.shape.num_heads = check.size("N");
    plan.shape.qk_rope_head_dim = check.size("Dr");
    plan.shape.v_head_dim = check.size("V");
    plan.num_tokens = check.size("T");
    plan.kv_quant = static_cast<KvQuant>(r.kv_cache_quant_mode);
    plan.quantised_query = r.query_quant_mode == 1;
    plan.cache_mode = *parse_cache_mode(r.cache_mode);
    plan.tile_row = {plan.shape.kv_lora_rank,
                     plan.shape.qk_rope_head_dim,
                     static_cast<size_t>(plan.kv_quant == KvQuant::kPerTile ? r.tile_size : 1)};
    plan.has_weight_o = r.weight_o.num_elements() != 0;
    const std::pair<const char*, size_t> sizes[] = {{"Hckv", plan.shape.kv_lora_rank},
                                                    {"Dr", plan.shape.qk_rope_head_dim},
                                                    {"N", plan.shape.num_heads},
                                                    {"V", plan.shape.v_head_dim},
                                                    {"He", plan.shape.hidden}};
    AFD_TRY(check_sizes_given(kMlaAttentionV3Spec, sizes));
    const CacheTensors cache{
        plan.cache_mode, plan.kv_quant, plan.tile_row, r.kv_cache, r.kr_cache, r.quant_scale_ckv};
    AFD_TRY(check_cache_tensors(kMlaAttentionV3Spec, cache));
    plan.kv_rows = CacheRows::of(plan.cache_mode, r.kv_cache);
    if (r.kr_cache.num_elements() != 0) {
        plan.kr_rows = CacheRows::of(plan.cache_mode, r.kr_cache);
    }
    // Before the tokens, whose capacity is a difference of two of these sums.
    if (plan.cache_mode == CacheMode::kTnd) AFD_TRY(check_prefix_sums(r));
    for (size_t t = 0; t < plan.num_tokens; ++t) AFD_TRY(check_token(r, plan.cache_mode, t));
    return plan;
}

CacheRowOfPosition::CacheRowOfPosition(const MlaAttentionV3Request& r,
                                       CacheMode mode,
                                       size_t token) {
    const size_t sequence = sequence_of(r, token);
    if (is_paged(mode)) {
        table_ = ints_of(r.block_table) + sequence * r.block_table.shape[1];
        block_size_ = r.kv_cache.shape[1];
    } else if (mode == CacheMode::kBsnd) {
        first_row_ = sequence * r.kv_cache.shape[1];
    } else {
        first_row_ =
            sequence == 0 ? 0 : static_cast<size_t>(ints_of(r.actual_seq_len)[sequence - 1]);
    }
}

}  // namespace afd::ops

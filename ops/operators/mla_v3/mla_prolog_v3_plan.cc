// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/operators/mla_v3/cache_check.h"
#include "ops/operators/mla_v3/fractal_nz.h"
#include "ops/operators/mla_v3/token_axes.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

template <typename... Values>
Error refuse(Text<Values...> text, const With<Values...>& values = {}) {
    return invalid_argument("mla_prolog_v3: {}", with(fmt::vformat(text, values)));
}

size_t block_size_of(const MlaPrologV3Request& r) {
    return r.kv_cache.shape[1];
}

Result<> check_sizes(const MlaPrologV3Plan& plan) {
    const MlaShape& s = plan.shape;
    const std::pair<const char*, size_t> sizes[] = {{"He", s.hidden},
                                                    {"Hcq", plan.query_depth()},
                                                    {"Hckv", s.kv_lora_rank},
                                                    {"N", s.num_heads},
                                                    {"D", s.qk_nope_head_dim},
                                                    {"Dr", s.qk_rope_head_dim}};
    AFD_TRY(check_sizes_given(kMlaPrologV3Spec, sizes));
    if (s.qk_rope_head_dim % 2 != 0) {
        return refuse("Dr is {}; it must be even", with(s.qk_rope_head_dim));
    }
    const auto depth = [&](const char* name, size_t size, int64_t from_mode) -> Result<> {
        if (plan.weight_quant < from_mode || size <= kInt8DepthMax) return {};
        return refuse("{} is {}; the depth of an int8 matrix is at most {}",
                      with(name, size, kInt8DepthMax));
    };
    AFD_TRY(depth("He", s.hidden, 2));
    return depth("Hcq", s.q_lora_rank, 1);
}

// What writing asks of the cache tensors; the rest is in check_cache_tensors.
Result<> check_caches(const MlaPrologV3Request& r, const MlaPrologV3Plan& plan) {
    const std::string mode(name_of(plan.cache_mode));
    const size_t rank = plan.cache_mode == CacheMode::kTnd ? 3 : 4;
    const std::pair<const char*, const TensorView*> caches[] = {{"kv_cache", &r.kv_cache},
                                                                {"kr_cache", &r.kr_cache}};
    for (const auto& [name, cache] : caches) {
        if (cache->num_elements() == 0 && cache == &r.kr_cache) continue;
        if (cache->rank != rank) {
            return refuse("{} has {} axes; cache_mode {} needs {}",
                          with(name, cache->rank, mode, rank));
        }
        const auto& shape = cache->shape;
        if (plan.cache_mode == CacheMode::kBsnd &&
            (shape[0] != r.token_x.shape[0] || shape[1] != r.token_x.shape[1])) {
            return refuse("{} is of {} x {} tokens; with cache_mode BSND it must be {} x {}",
                          with(name, shape[0], shape[1], r.token_x.shape[0], r.token_x.shape[1]));
        }
    }
    AFD_TRY(check_cache_tensors(kMlaPrologV3Spec,
                                {plan.cache_mode,
                                 plan.kv_quant,
                                 plan.tile_row,
                                 r.kv_cache,
                                 r.kr_cache,
                                 r.quant_scale_ckv}));
    const float alpha = plan.k_nope_clip_alpha;
    if (std::isfinite(alpha) && alpha > 0.0f) return {};
    return refuse("k_nope_clip_alpha is {:f}; it must be a positive number", with(alpha));
}

// The prefix sums of merged axes, and how many index entries they need.
Result<size_t> count_merged_blocks(const MlaPrologV3Request& r,
                                   const MlaPrologV3Plan& plan,
                                   size_t block_size) {
    const int32_t* ends = data_of<int32_t>(r.actual_seq_len);
    const size_t num_sequences = r.actual_seq_len.num_elements();
    int64_t previous = 0;
    size_t num_blocks = 0;
    for (size_t b = 0; b < num_sequences; ++b) {
        if (ends[b] < previous) {
            return refuse(
                "actual_seq_len[{}] is {}; prefix sums never fall, at least {} is allowed",
                with(b, ends[b], previous));
        }
        num_blocks += fractal_count(static_cast<size_t>(ends[b] - previous), block_size);
        previous = ends[b];
    }
    if (static_cast<size_t>(previous) != plan.num_tokens) {
        return refuse("actual_seq_len ends at {}; T is {}", with(previous, plan.num_tokens));
    }
    return num_blocks;
}

// Entries that cache_index must have along its last axis.
Result<size_t> wanted_index_size(const MlaPrologV3Request& r, const MlaPrologV3Plan& plan) {
    const bool is_merged = r.token_x.rank == 2;
    if (!is_block_indexed(plan.cache_mode)) return is_merged ? plan.num_tokens : r.token_x.shape[1];
    // Without tokens the cache may be without rows.
    if (block_size_of(r) == 0 && plan.num_tokens > 0) {
        return refuse("kv_cache has BlockSize 0; at least 1 is needed");
    }
    const size_t block_size = std::max<size_t>(1, block_size_of(r));
    if (is_merged) return count_merged_blocks(r, plan, block_size);
    return fractal_count(r.token_x.shape[1], block_size);
}

Result<> check_index(const MlaPrologV3Request& r, const MlaPrologV3Plan& plan) {
    if (!is_paged(plan.cache_mode)) return {};
    size_t wanted = 0;
    AFD_ASSIGN(wanted, wanted_index_size(r, plan));
    // Without tokens an index without entries counts as left out, whatever its axes.
    if (plan.num_tokens == 0 && r.cache_index.num_elements() == 0) return {};
    const size_t have = r.cache_index.shape[r.cache_index.rank - 1];
    if (have != wanted) {
        return refuse("cache_index has a last axis of {}; cache_mode {} needs {}",
                      with(have, name_of(plan.cache_mode), wanted));
    }
    const size_t limit =
        is_block_indexed(plan.cache_mode) ? r.kv_cache.shape[0] : plan.kv_rows.num_rows;
    const int64_t* index = data_of<int64_t>(r.cache_index);
    for (size_t i = 0; i < r.cache_index.num_elements(); ++i) {
        if (index[i] >= -1 && index[i] < static_cast<int64_t>(limit)) continue;
        return refuse(
            "cache_index[{}] is {}; allowed are -1 (write nothing) and, below {}, the cache's {}",
            with(i, index[i], limit, is_block_indexed(plan.cache_mode) ? "blocks" : "rows"));
    }
    return {};
}

}  // namespace

Result<MlaPrologV3Plan> plan_mla_prolog_v3(const MlaPrologV3Request& r) {
    OperatorCheck check(kMlaPrologV3Spec, r);
    AFD_TRY(check_mla_prolog_v3(r, check));
    MlaPrologV3Plan plan;
    plan.shape.hidden = check.size("He");
    plan.shape.q_lora_rank = r.weight_dq.num_elements() != 0 ? check.size("Hcq") : 0;
    plan.shape.kv_lora_rank = check.size("Hckv");
    plan.shape.num_heads = check.size("N");
    plan.shape.qk_nope_head_dim = check.size("D");
    plan.shape.qk_rope_head_dim = check.size("Dr");
    plan.num_tokens = check.size("T");
    plan.weight_quant = r.weight_quant_mode;
    plan.kv_quant = static_cast<KvQuant>(r.kv_cache_quant_mode);
    plan.quantised_query = r.query_quant_mode == 1;
    plan.cache_mode = *parse_cache_mode(r.cache_mode);
    plan.tile_row = {plan.shape.kv_lora_rank,
                     plan.shape.qk_rope_head_dim,
                     static_cast<size_t>(plan.kv_quant == KvQuant::kPerTile ? r.tile_size : 1)};
    if (r.k_nope_clip_alpha.num_elements() != 0) {
        plan.k_nope_clip_alpha = *data_of<float>(r.k_nope_clip_alpha);
    }
    AFD_TRY(check_sizes(plan));
    AFD_TRY(check_caches(r, plan));
    plan.kv_rows = CacheRows::of(plan.cache_mode, r.kv_cache);
    if (r.kr_cache.num_elements() != 0) {
        plan.kr_rows = CacheRows::of(plan.cache_mode, r.kr_cache);
    }
    AFD_TRY(check_index(r, plan));
    return plan;
}

CacheRowOfToken::CacheRowOfToken(const MlaPrologV3Request& r, const MlaPrologV3Plan& plan)
    : mode_(plan.cache_mode),
      index_(data_of<int64_t>(r.cache_index)),
      ends_(r.token_x.rank == 2 ? data_of<int32_t>(r.actual_seq_len) : nullptr),
      sequence_length_(r.token_x.shape[1]),
      block_size_(block_size_of(r)) {}

int64_t CacheRowOfToken::next() {
    const size_t token = token_++;
    if (!is_paged(mode_)) return static_cast<int64_t>(token);
    if (!is_block_indexed(mode_)) return index_[token];
    const auto end_of = [&](size_t sequence) {
        return ends_ != nullptr ? static_cast<size_t>(ends_[sequence])
                                : (sequence + 1) * sequence_length_;
    };
    while (token >= end_of(sequence_)) {
        first_block_ += fractal_count(end_of(sequence_) - begin_, block_size_);
        begin_ = end_of(sequence_++);
    }
    const size_t place = token - begin_;
    const int64_t block = index_[first_block_ + place / block_size_];
    if (block < 0) return -1;
    return block * static_cast<int64_t>(block_size_) + static_cast<int64_t>(place % block_size_);
}

}  // namespace afd::ops

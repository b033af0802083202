// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_attention_v3_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

using Request = MlaAttentionV3Request;

Error refuse(const std::string& text) {
    return Error{Code::kInvalidArgument, "mla_attention_v3: " + text};
}

std::string element(const char* name, size_t index) {
    return std::string(name) + "[" + std::to_string(index) + "]";
}

const int32_t* ints_of(const ConstTensorView& view) {
    return static_cast<const int32_t*>(view.data);
}

bool is_merged(const Request& r) {
    return r.query.rank == 3;
}

size_t num_tokens_of(const Request& r) {
    return is_merged(r) ? r.query.shape[0] : r.query.shape[0] * r.query.shape[1];
}

size_t size_from_end(const ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[view.rank - 1 - axis] : 0;
}

void check_attributes(const Request& r, OperatorCheck& check) {
    check.attribute("softmax_scale", static_cast<double>(r.softmax_scale));
    check.require(
        std::isfinite(r.softmax_scale),
        "softmax_scale is " + std::to_string(r.softmax_scale) + "; it must be a finite number");
    check.attribute("cache_mode", r.cache_mode);
    check.attribute("kv_cache_quant_mode", r.kv_cache_quant_mode);
    check.attribute("query_quant_mode", r.query_quant_mode);
    const int64_t pair = r.kv_cache_quant_mode * 10 + r.query_quant_mode;
    check.require(pair == 0 || pair == 11 || pair == 20 || pair == 30 || pair == 31,
                  "kv_cache_quant_mode " + std::to_string(r.kv_cache_quant_mode) +
                      ", query_quant_mode " + std::to_string(r.query_quant_mode) +
                      " do not go together; allowed are 00, 11, 20, 30, 31");
    if (r.kv_cache_quant_mode == 3) check.attribute("tile_size", r.tile_size);
}

void check_presence(const Request& r, OperatorCheck& check) {
    const int64_t kv = r.kv_cache_quant_mode;
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const std::string of_kv = "kv_cache_quant_mode is " + std::to_string(kv);
    const std::string of_cache = "cache_mode is " + std::string(r.cache_mode);
    const auto use = [&](const char* name,
                         const ConstTensorView& view,
                         bool is_needed,
                         bool is_allowed,
                         const std::string& why) {
        const bool is_given = view.num_elements() != 0;
        const bool is_empty = view.given() && num_tokens_of(r) == 0;
        check.require(!is_needed || is_given || is_empty,
                      std::string(name) + " is missing; " + why);
        check.require(is_allowed || !is_given,
                      std::string(name) + " is given, but " + why + "; leave it out");
    };
    const bool quantised_query = r.query_quant_mode == 1;
    use("dequant_scale_q_nope",
        r.dequant_scale_q_nope,
        quantised_query,
        quantised_query,
        "query_quant_mode is " + std::to_string(r.query_quant_mode));
    use("kr_cache", r.kr_cache, kv != 3, kv != 3, of_kv);
    use("sequence_index", r.sequence_index, is_merged(r), true, "query has axes [T, N, Hckv]");
    use("block_table", r.block_table, is_paged(mode), is_paged(mode), of_cache);
    const bool is_tnd = mode == CacheMode::kTnd;
    use("actual_seq_len", r.actual_seq_len, is_tnd, is_tnd, of_cache);
    const bool has_scale = kv == 1 || kv == 2;
    use("quant_scale_ckv", r.quant_scale_ckv, has_scale, has_scale, of_kv);
    use("quant_scale_ckr", r.quant_scale_ckr, kv == 2, kv == 2, of_kv);
}

void check_dtypes_and_axes(const Request& r, OperatorCheck& check) {
    const auto dtype = [&](const char* name, const ConstTensorView& view, bool is_int8) {
        const DType wanted = is_int8 ? DType::kInt8 : DType::kBf16;
        check.require(view.num_elements() == 0 || view.dtype == wanted,
                      std::string(name) + " has dtype " + std::string(name_of(view.dtype)) +
                          "; kv_cache_quant_mode " + std::to_string(r.kv_cache_quant_mode) +
                          " and query_quant_mode " + std::to_string(r.query_quant_mode) + " need " +
                          std::string(name_of(wanted)));
    };
    dtype("query", r.query, r.query_quant_mode == 1);
    dtype("kv_cache", r.kv_cache, r.kv_cache_quant_mode != 0);
    dtype("kr_cache", r.kr_cache, r.kv_cache_quant_mode == 2);
    const auto axes = [&](const char* name, const ConstTensorView& view, size_t other_axes) {
        const size_t wanted = (is_merged(r) ? 1 : 2) + other_axes;
        check.require(view.num_elements() == 0 || view.rank == wanted,
                      std::string(name) + " has " + std::to_string(view.rank) +
                          " axes; query has axes " +
                          (is_merged(r) ? "[T, N, Hckv]" : "[B, S, N, Hckv]") +
                          ", so it must have " + std::to_string(wanted));
    };
    axes("query_rope", r.query_rope, 2);
    axes("positions", r.positions, 0);
    axes("sequence_index", r.sequence_index, 0);
    axes("attention_out", r.attention_out, 1);
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const size_t cache_rank = mode == CacheMode::kTnd ? 3 : 4;
    check.require(r.kv_cache.rank == cache_rank,
                  "kv_cache has " + std::to_string(r.kv_cache.rank) + " axes; cache_mode " +
                      std::string(r.cache_mode) + " needs " + std::to_string(cache_rank));
}

void bind_names(const Request& r, OperatorCheck& check) {
    check.bind("T", num_tokens_of(r));
    if (!is_merged(r)) {
        check.bind("B", r.query.shape[0]);
        check.bind("S", r.query.shape[1]);
    }
    check.bind("Nkv", 1);
    const size_t latent = size_from_end(r.query, 0);
    const TileRow row{latent,
                      size_from_end(r.query_rope, 0),
                      static_cast<size_t>(std::max<int64_t>(1, r.tile_size))};
    check.bind("Dtile", r.kv_cache_quant_mode == 3 ? row.bytes() : latent);
    if (r.weight_o.num_elements() == 0) {
        check.bind("He", size_from_end(r.weight_uv, 2) * size_from_end(r.weight_uv, 1));
    }
}

void check_record(const Request& r, OperatorCheck& check) {
    check_attributes(r, check);
    check.tensor("query", r.query);
    bind_names(r, check);
    check_presence(r, check);
    check_dtypes_and_axes(r, check);
    check.tensor("query_rope", r.query_rope);
    check.tensor("dequant_scale_q_nope", r.dequant_scale_q_nope);
    check.tensor("kv_cache", r.kv_cache);
    check.tensor("kr_cache", r.kr_cache);
    check.tensor("positions", r.positions);
    check.tensor("sequence_index", r.sequence_index);
    check.tensor("block_table", r.block_table);
    check.tensor("actual_seq_len", r.actual_seq_len);
    check.tensor("quant_scale_ckv", r.quant_scale_ckv);
    check.tensor("quant_scale_ckr", r.quant_scale_ckr);
    check.tensor("weight_uv", r.weight_uv);
    check.tensor("weight_o", r.weight_o);
    check.tensor("attention_out", r.attention_out);
}

Result<> check_sizes(const Request& r, const MlaAttentionV3Plan& plan) {
    const MlaShape& s = plan.shape;
    const std::pair<const char*, size_t> sizes[] = {{"Hckv", s.kv_lora_rank},
                                                    {"Dr", s.qk_rope_head_dim},
                                                    {"N", s.num_heads},
                                                    {"V", s.v_head_dim},
                                                    {"He", s.hidden}};
    for (const auto& [name, size] : sizes) {
        if (size == 0) return refuse(std::string(name) + " is 0; it must be at least 1");
    }
    const size_t scale_axes = r.quant_scale_ckv.rank;
    if (plan.kv_quant == KvQuant::kPerTensor && scale_axes != 1) {
        return refuse("quant_scale_ckv has 2 axes; with kv_cache_quant_mode 1 it must be [1]");
    }
    if (plan.kv_quant == KvQuant::kPerChannel && scale_axes != 2) {
        return refuse(
            "quant_scale_ckv has 1 axis; with kv_cache_quant_mode 2 it must be [1, Hckv]");
    }
    if (plan.kv_quant != KvQuant::kPerTile) return {};
    if (is_nz(plan.cache_mode)) {
        return refuse("cache_mode is " + std::string(r.cache_mode) +
                      "; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, BSND, TND");
    }
    if (plan.tile_row.latent % plan.tile_row.tile_size == 0) return {};
    return refuse("tile_size is " + std::to_string(plan.tile_row.tile_size) +
                  "; it must divide Hckv, which is " + std::to_string(plan.tile_row.latent));
}

Result<> check_caches(const Request& r, const MlaAttentionV3Plan& plan) {
    const std::pair<const char*, const ConstTensorView*> caches[] = {{"kv_cache", &r.kv_cache},
                                                                     {"kr_cache", &r.kr_cache}};
    for (const auto& [name, cache] : caches) {
        const size_t bytes = size_from_end(*cache, 0) * size_of(cache->dtype);
        if (is_nz(plan.cache_mode) && bytes % CacheRows::kColumnBytes != 0) {
            return refuse(std::string(name) + " has rows of " + std::to_string(bytes) +
                          " bytes; cache_mode " + std::string(r.cache_mode) +
                          " needs a multiple of 32");
        }
    }
    if (r.kr_cache.num_elements() == 0) return {};
    for (size_t axis = 0; axis + 1 < r.kv_cache.rank; ++axis) {
        if (r.kr_cache.rank == r.kv_cache.rank &&
            r.kr_cache.shape[axis] == r.kv_cache.shape[axis]) {
            continue;
        }
        return refuse("kr_cache has " + std::to_string(r.kr_cache.shape[axis]) + " on axis " +
                      std::to_string(axis) + "; it must be as kv_cache, " +
                      std::to_string(r.kv_cache.shape[axis]));
    }
    return {};
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
            return refuse(element("actual_seq_len", b) + " is " + std::to_string(ends[b]) +
                          "; allowed are " + std::to_string(previous) + " to " +
                          std::to_string(r.kv_cache.shape[0]));
        }
        previous = ends[b];
    }
    return {};
}

size_t sequence_of(const Request& r, size_t token) {
    if (r.sequence_index.num_elements() == 0) return token / r.query.shape[1];
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
            return refuse("query has B " + std::to_string(r.query.shape[0]) + "; the cache has " +
                          std::to_string(num_sequences) + " sequences");
        }
        return refuse(element("sequence_index", token) + " is " +
                      std::to_string(ints_of(r.sequence_index)[token]) + "; the cache has " +
                      std::to_string(num_sequences) + " sequences");
    }
    const int32_t position = ints_of(r.positions)[token];
    const size_t capacity = capacity_of(r, mode, sequence);
    if (position < 0 || static_cast<size_t>(position) >= capacity) {
        return refuse(element("positions", token) + " is " + std::to_string(position) +
                      "; sequence " + std::to_string(sequence) + " has " +
                      std::to_string(capacity) + " rows");
    }
    if (!is_paged(mode)) return {};
    const int32_t* table = ints_of(r.block_table) + sequence * r.block_table.shape[1];
    const size_t last_block = static_cast<size_t>(position) / r.kv_cache.shape[1];
    for (size_t block = 0; block <= last_block; ++block) {
        if (table[block] >= 0 && static_cast<size_t>(table[block]) < r.kv_cache.shape[0]) continue;
        return refuse("block_table[" + std::to_string(sequence) + "][" + std::to_string(block) +
                      "] is " + std::to_string(table[block]) + "; the cache has " +
                      std::to_string(r.kv_cache.shape[0]) + " blocks");
    }
    return {};
}

}  // namespace

Result<MlaAttentionV3Plan> plan_mla_attention_v3(const MlaAttentionV3Request& r) {
    OperatorCheck check(kMlaAttentionV3Spec);
    check_record(r, check);
    AFD_TRY(check.finish());
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
    AFD_TRY(check_sizes(r, plan));
    AFD_TRY(check_caches(r, plan));
    plan.kv_rows = CacheRows::of(plan.cache_mode, r.kv_cache);
    if (r.kr_cache.num_elements() != 0) {
        plan.kr_rows = CacheRows::of(plan.cache_mode, r.kr_cache);
    }
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

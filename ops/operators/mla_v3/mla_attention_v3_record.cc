// SPDX-License-Identifier: Apache-2.0

// The record of MlaAttentionV3 and the check of a request against it, but for what needs elements
// (mla_attention_v3_plan.cc).

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ops/operators/mla_v3/cache_check.h"
#include "ops/operators/mla_v3/cache_entries.h"
#include "ops/operators/mla_v3/mla_attention_v3_plan.h"
#include "ops/operators/mla_v3/token_axes.h"

namespace afd::ops {
namespace {

using Request = MlaAttentionV3Request;

constexpr AttributeSpec kAttributes[] = {
    {"softmax_scale", bind<&Request::softmax_scale>(), "1.0", {}, 0, 0, "factor of the scores"},
    mla_cache::cache_mode<Request>(
        "blocks of rows; blocks in 32-byte columns; as PA_BSND; as PA_NZ; a row for every sequence "
        "and position; the sequences' rows follow each other"),
    mla_cache::kKvCacheQuantMode<Request>,
    mla_cache::kQueryQuantMode<Request>,
    mla_cache::kTileSize<Request>,
};

constexpr TensorSpec kTensors[] = {
    mla_cache::query<Request>(TensorRole::kInput,
                              "absorbed queries of mla_prolog_v3; int8 with query_quant_mode 1"),
    mla_cache::query_rope<Request>(TensorRole::kInput),
    mla_cache::dequant_scale_q_nope<Request>(TensorRole::kOptionalInput),
    {"kv_cache",
     bind<&Request::kv_cache>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dtile] | [Bkv, Skv, Nkv, Dtile] | [Tkv, Nkv, Dtile]",
     "latents; Dtile as in mla_prolog_v3"},
    {"kr_cache",
     bind<&Request::kr_cache>(),
     TensorRole::kOptionalInput,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dr] | [Bkv, Skv, Nkv, Dr] | [Tkv, Nkv, Dr]",
     "rotated keys; int8 with kv_cache_quant_mode 2; empty with 3"},
    {"positions",
     bind<&Request::positions>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[T] | [B, S]",
     "absolute position of each token; it attends to 0 ... its own"},
    {"sequence_index",
     bind<&Request::sequence_index>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[T] | [B, S]",
     "sequence of each token; not given on axes [B, S]: b"},
    {"block_table",
     bind<&Request::block_table>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[Bkv, BlocksMax]",
     "paged modes: the blocks of each sequence in order of position"},
    {"actual_seq_len",
     bind<&Request::actual_seq_len>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[Bkv]",
     "TND: prefix sums of the sequences' cache rows"},
    mla_cache::quant_scale_ckv<Request>("as given to mla_prolog_v3"),
    mla_cache::quant_scale_ckr<Request>("likewise"),
    {"weight_uv",
     bind<&Request::weight_uv>(),
     TensorRole::kInput,
     {DType::kBf16},
     "[N, V, Hckv]",
     "value up"},
    {"weight_o",
     bind<&Request::weight_o>(),
     TensorRole::kOptionalInput,
     {DType::kBf16},
     "[N*V, He]",
     "output projection; not given: none"},
    {"attention_out",
     bind<&Request::attention_out>(),
     TensorRole::kOutput,
     {DType::kBf16},
     "[T, He] | [B, S, He]",
     "without weight_o He is N*V: the heads side by side"},
};

constexpr std::string_view kRules[] = {
    "(kv_cache_quant_mode, query_quant_mode) are 00, 11, 20, 30, 31: what mla_prolog_v3 writes.",
    "T is B·S where the axes are not merged; every tensor with these axes has them as query.",
    "kv_cache is int8 with kv_cache_quant_mode 1, 2, 3, kr_cache with 2.",
    "quant_scale_ckv is given with kv_cache_quant_mode 1 as [1] and 2 as [1, Hckv], "
    "quant_scale_ckr with 2, dequant_scale_q_nope with query_quant_mode 1.",
    "block_table is given with the paged modes, actual_seq_len with TND, sequence_index always on "
    "axes [T].",
    "Per tile Hckv is a multiple of tile_size; NZ cache modes are not allowed.",
    mla_cache::kRowsRule,
    "A position is not negative and inside its sequence's rows; the blocks that it reaches are in "
    "[0, BlockNum); a sequence_index is in [0, Bkv); actual_seq_len never falls and ends at most "
    "at Tkv.",
    "Hckv, Dr, N, V and He are at least 1; softmax_scale is a finite number.",
};

bool is_merged(const Request& r) {
    return r.query.rank == 3;
}

void check_attributes(const Request& r, OperatorCheck& check) {
    check.attribute("softmax_scale");
    check.require(std::isfinite(r.softmax_scale),
                  "softmax_scale is {:f}; it must be a finite number",
                  with(r.softmax_scale));
    if (r.kv_cache_quant_mode != 3) check.leave_out("tile_size");
    check.attributes();
    constexpr std::pair<int64_t, int64_t> kPairs[] = {{0, 0}, {1, 1}, {2, 0}, {3, 0}, {3, 1}};
    const std::pair pair(r.kv_cache_quant_mode, r.query_quant_mode);
    check.require(std::find(std::begin(kPairs), std::end(kPairs), pair) != std::end(kPairs),
                  "kv_cache_quant_mode {}, query_quant_mode {} do not go together; allowed are 00, "
                  "11, 20, 30, 31",
                  with(r.kv_cache_quant_mode, r.query_quant_mode));
}

void check_presence(const Request& r, OperatorCheck& check) {
    const int64_t kv = r.kv_cache_quant_mode;
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const auto of_kv = [&] { return fmt::format("kv_cache_quant_mode is {}", kv); };
    const auto of_cache = [&] { return fmt::format("cache_mode is {}", r.cache_mode); };
    const auto of_query = [&] { return fmt::format("query_quant_mode is {}", r.query_quant_mode); };
    const auto of_axes = [] { return "query has axes [T, N, Hckv]"; };
    // Worded only where it is wrong, since a right call is checked again each time that it runs.
    const auto use = [&](const char* name,
                         const ConstTensorView& view,
                         bool is_needed,
                         bool is_allowed,
                         const auto& why) {
        const bool is_given = view.num_elements() != 0;
        const bool is_empty = view.given() && count_tokens(r.query, 2) == 0;
        if (is_needed && !is_given && !is_empty) {
            check.require(false, "{} is missing; {}", with(name, why()));
        }
        if (!is_allowed && is_given) {
            check.require(false, "{} is given, but {}; leave it out", with(name, why()));
        }
    };
    const bool int8_query = r.query_quant_mode == 1;
    use("dequant_scale_q_nope", r.dequant_scale_q_nope, int8_query, int8_query, of_query);
    use("kr_cache", r.kr_cache, kv != 3, kv != 3, of_kv);
    use("sequence_index", r.sequence_index, is_merged(r), true, of_axes);
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
                      "{} has dtype {}; kv_cache_quant_mode {} and query_quant_mode {} need {}",
                      with(name,
                           name_of(view.dtype),
                           r.kv_cache_quant_mode,
                           r.query_quant_mode,
                           name_of(wanted)));
    };
    dtype("query", r.query, r.query_quant_mode == 1);
    dtype("kv_cache", r.kv_cache, r.kv_cache_quant_mode != 0);
    dtype("kr_cache", r.kr_cache, r.kv_cache_quant_mode == 2);
    const auto axes =
        [&](const char* name, const ConstTensorView& view, size_t other_axes, bool is_optional) {
            const size_t wanted = (is_merged(r) ? 1 : 2) + other_axes;
            // One that must be there has its axes even without elements.
            const bool is_left_out = view.num_elements() == 0 && (is_optional || !view.given());
            check.require(
                is_left_out || view.rank == wanted,
                "{} has {} axes; query has axes {}, so it must have {}",
                with(name, view.rank, is_merged(r) ? "[T, N, Hckv]" : "[B, S, N, Hckv]", wanted));
        };
    axes("query_rope", r.query_rope, 2, false);
    axes("positions", r.positions, 0, false);
    axes("sequence_index", r.sequence_index, 0, true);
    axes("attention_out", r.attention_out, 1, false);
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const size_t cache_rank = mode == CacheMode::kTnd ? 3 : 4;
    check.require(r.kv_cache.rank == cache_rank,
                  "kv_cache has {} axes; cache_mode {} needs {}",
                  with(r.kv_cache.rank, r.cache_mode, cache_rank));
}

void bind_names(const Request& r, OperatorCheck& check) {
    check.bind("T", count_tokens(r.query, 2));
    if (!is_merged(r)) {
        check.bind("B", r.query.shape[0]);
        check.bind("S", r.query.shape[1]);
    }
    // All heads share one latent.
    check.bind("Nkv", 1);
    const size_t latent = size_from_end(r.query, 0);
    const TileRow row{latent,
                      size_from_end(r.query_rope, 0),
                      static_cast<size_t>(std::max<int64_t>(1, r.tile_size))};
    require_tiles_fit(check, r.kv_cache_quant_mode, r.cache_mode, row);
    check.bind("Dtile", r.kv_cache_quant_mode == 3 ? row.bytes() : latent);
    if (r.weight_o.num_elements() == 0) {
        check.bind("He", size_from_end(r.weight_uv, 2) * size_from_end(r.weight_uv, 1));
    }
}

}  // namespace

constinit const RecordOf<MlaAttentionV3Request> kMlaAttentionV3Spec = {{
    "mla_attention_v3",
    "absorbed causal attention over the cache of mla_prolog_v3",
    "attention_out = ((softmax((query·ckv + query_rope·kr)·softmax_scale)·ckv)·Wuv)·Wo",
    "docs/specification.md, section 11",
    kAttributes,
    kTensors,
    kRules,
    {},
    "the same bits in class portable; the other classes add the products of bf16 in other orders",
}};

Result<> check_mla_attention_v3(const MlaAttentionV3Request& r, OperatorCheck& check) {
    check_attributes(r, check);
    check.tensor("query");
    bind_names(r, check);
    check_presence(r, check);
    check_dtypes_and_axes(r, check);
    check.tensors();
    return check.finish();
}

}  // namespace afd::ops

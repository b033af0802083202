// SPDX-License-Identifier: Apache-2.0

// The checks of mla_prolog_v3 that need no tensor elements: record, scenario, presence, axes.

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/operators/mla_v3/fractal_nz.h"
#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

struct Scenario {
    int64_t weight;
    int64_t kv;
    int64_t query;

    int64_t digits() const { return weight * 100 + kv * 10 + query; }
};

std::string text_of(int64_t digits) {
    const std::string text = std::to_string(digits);
    return std::string(3 - std::min<size_t>(3, text.size()), '0') + text;
}

constexpr int64_t kScenarios[] = {0, 100, 120, 130, 200, 211, 230, 231};

// The seed's first revision numbers some scenarios by modes that its own list does not have.
constexpr int64_t kRenumbered[][2] = {{220, 120}, {330, 130}, {331, 231}};

void check_scenario(const MlaPrologV3Request& r, OperatorCheck& check) {
    const Scenario s{r.weight_quant_mode, r.kv_cache_quant_mode, r.query_quant_mode};
    const std::string modes = "weight_quant_mode " + std::to_string(s.weight) +
                              ", kv_cache_quant_mode " + std::to_string(s.kv) +
                              ", query_quant_mode " + std::to_string(s.query);
    for (const auto& [from, to] : kRenumbered) {
        check.require(s.digits() != from,
                      modes + " is not a scenario; the one meant is " + text_of(to) +
                          ": weight_quant_mode " + std::to_string(to / 100) +
                          ", kv_cache_quant_mode " + std::to_string(to / 10 % 10) +
                          ", query_quant_mode " + std::to_string(to % 10));
    }
    check.attribute("weight_quant_mode", s.weight);
    check.attribute("kv_cache_quant_mode", s.kv);
    check.attribute("query_quant_mode", s.query);
    check.require(
        std::find(std::begin(kScenarios), std::end(kScenarios), s.digits()) != std::end(kScenarios),
        modes + " is not a scenario; allowed are 000, 100, 120, 130, 200, 211, 230, 231");
}

void check_number(OperatorCheck& check, const char* name, float value, bool may_be_negative) {
    check.attribute(name, static_cast<double>(value));
    check.require(std::isfinite(value) && (may_be_negative || value >= 0.0f),
                  std::string(name) + " is " + std::to_string(value) + "; it must be a finite " +
                      (may_be_negative ? "number" : "number, not negative"));
}

void check_attributes(const MlaPrologV3Request& r, OperatorCheck& check) {
    check_scenario(r, check);
    check_number(check, "rmsnorm_epsilon_cq", r.rmsnorm_epsilon_cq, false);
    check_number(check, "rmsnorm_epsilon_ckv", r.rmsnorm_epsilon_ckv, false);
    check_number(check, "qc_qr_scale", r.qc_qr_scale, true);
    check_number(check, "kc_scale", r.kc_scale, true);
    check.attribute("cache_mode", r.cache_mode);
    const int64_t wanted = r.kv_cache_quant_mode == 3 ? 1 : 0;
    const auto repo = [&](const char* name, int64_t value) {
        check.attribute(name, value);
        check.require(value == wanted,
                      std::string(name) + " is " + std::to_string(value) +
                          "; with kv_cache_quant_mode " + std::to_string(r.kv_cache_quant_mode) +
                          " it must be " + std::to_string(wanted));
    };
    repo("ckvkr_repo_mode", r.ckvkr_repo_mode);
    repo("quant_scale_repo_mode", r.quant_scale_repo_mode);
    if (r.kv_cache_quant_mode == 3) check.attribute("tile_size", r.tile_size);
}

bool has_low_rank(const MlaPrologV3Request& r) {
    return r.weight_dq.num_elements() != 0;
}

bool is_merged(const MlaPrologV3Request& r) {
    return r.token_x.rank == 2;
}

size_t num_tokens_of(const MlaPrologV3Request& r) {
    return is_merged(r) ? r.token_x.shape[0] : r.token_x.shape[0] * r.token_x.shape[1];
}

// The size of an axis counted from the last, or 0.
size_t size_from_end(const ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[view.rank - 1 - axis] : 0;
}

// The names in shapes that are computed. Tensors of a wrong rank are found by their own check.
void bind_names(const MlaPrologV3Request& r, OperatorCheck& check) {
    const size_t hidden = size_from_end(r.token_x, 0);
    const size_t query_depth = has_low_rank(r) ? size_from_end(r.rmsnorm_gamma_cq, 0) : hidden;
    const size_t latent = size_from_end(r.rmsnorm_gamma_ckv, 0);
    const size_t rope = size_from_end(r.rope_sin, 0);
    const size_t query_cols =
        size_from_end(r.weight_uk, 2) * (size_from_end(r.weight_uk, 1) + rope);
    check.bind("T", num_tokens_of(r));
    if (!is_merged(r)) {
        check.bind("B", r.token_x.shape[0]);
        check.bind("S", r.token_x.shape[1]);
    }
    if (!has_low_rank(r)) check.bind("Hcq", hidden);
    check.bind("Dr", rope);
    check.bind("Nkv", 1);
    const size_t c0 = r.weight_quant_mode == 2 ? 32 : 16;
    const size_t c0_uq = r.weight_quant_mode == 0 ? 16 : 32;
    check.bind("c0", c0);
    check.bind("c0_uq", c0_uq);
    check.bind("ceil(He/16)", fractal_count(hidden, 16));
    check.bind("ceil(Hcq/16)", fractal_count(query_depth, 16));
    check.bind("ceil(Hcq/c0)", fractal_count(query_depth, c0));
    check.bind("ceil(Nq/c0_uq)", fractal_count(query_cols, c0_uq));
    check.bind("ceil(Nkr/c0)", fractal_count(latent + rope, c0));
    const bool per_tile = r.kv_cache_quant_mode == 3;
    const TileRow row{latent, rope, static_cast<size_t>(std::max<int64_t>(1, r.tile_size))};
    check.bind("Dtile", per_tile ? row.bytes() : latent);
}

// An input or output that the scenario needs, allows or has no use for.
struct Use {
    const char* name;
    ConstTensorView view;
    bool is_needed;
    bool is_allowed;
    std::string why;  // Completes "is missing; ..." and "is given, but ...".
};

void check_presence(const MlaPrologV3Request& r, OperatorCheck& check) {
    const int64_t weight = r.weight_quant_mode;
    const int64_t kv = r.kv_cache_quant_mode;
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const std::string of_weight = "weight_quant_mode is " + std::to_string(weight);
    const std::string of_kv = "kv_cache_quant_mode is " + std::to_string(kv);
    const std::string of_query = "query_quant_mode is " + std::to_string(r.query_quant_mode);
    const std::string of_cache = "cache_mode is " + std::string(r.cache_mode);
    const std::string of_dq = has_low_rank(r) ? "weight_dq is given" : "weight_dq is not";
    const std::string of_flag =
        std::string("query_norm_flag is ") + (r.query_norm_flag ? "true" : "false");
    const bool block_index = is_block_indexed(mode) && is_merged(r);
    const bool norm_scale = r.query_norm_flag && weight >= 1;
    const Use uses[] = {
        {"rmsnorm_gamma_cq", r.rmsnorm_gamma_cq, has_low_rank(r), has_low_rank(r), of_dq},
        {"kr_cache", r.kr_cache, kv != 3, kv != 3, of_kv},
        {"cache_index", r.cache_index, is_paged(mode), is_paged(mode), of_cache},
        {"dequant_scale_x", r.dequant_scale_x, weight == 2, weight == 2, of_weight},
        {"dequant_scale_w_dq", r.dequant_scale_w_dq, weight == 2, weight == 2, of_weight},
        {"dequant_scale_w_uq_qr", r.dequant_scale_w_uq_qr, weight >= 1, weight >= 1, of_weight},
        {"dequant_scale_w_dkv_kr", r.dequant_scale_w_dkv_kr, weight == 2, weight == 2, of_weight},
        {"quant_scale_ckv", r.quant_scale_ckv, kv == 1 || kv == 2, kv != 0, of_kv},
        {"quant_scale_ckr", r.quant_scale_ckr, kv == 2, kv == 2, of_kv},
        {"smooth_scales_cq", r.smooth_scales_cq, false, weight >= 1, of_weight},
        {"actual_seq_len", r.actual_seq_len, block_index, true, of_cache + " on axes [T]"},
        {"k_nope_clip_alpha", r.k_nope_clip_alpha, false, kv == 3, of_kv},
        {"dequant_scale_q_nope",
         r.dequant_scale_q_nope,
         r.query_quant_mode == 1,
         r.query_quant_mode == 1,
         of_query},
        {"query_norm", r.query_norm, r.query_norm_flag, r.query_norm_flag, of_flag},
        {"dequant_scale_q_norm",
         r.dequant_scale_q_norm,
         norm_scale,
         norm_scale,
         of_flag + " and " + of_weight},
    };
    const bool may_be_empty = num_tokens_of(r) == 0 || r.kv_cache.num_elements() == 0;
    for (const Use& use : uses) {
        const bool is_given = use.view.num_elements() != 0;
        const bool is_empty = use.view.given() && may_be_empty;
        check.require(!use.is_needed || is_given || is_empty,
                      std::string(use.name) + " is missing; " + use.why);
        check.require(use.is_allowed || !is_given,
                      std::string(use.name) + " is given, but " + use.why + "; leave it out");
    }
}

void check_dtypes(const MlaPrologV3Request& r, OperatorCheck& check) {
    const auto wanted = [&](const char* name, const ConstTensorView& view, bool is_int8) {
        const DType dtype = is_int8 ? DType::kInt8 : DType::kBf16;
        check.require(
            view.num_elements() == 0 || view.dtype == dtype,
            std::string(name) + " has dtype " + std::string(name_of(view.dtype)) + "; scenario " +
                text_of(Scenario{r.weight_quant_mode, r.kv_cache_quant_mode, r.query_quant_mode}
                            .digits()) +
                " needs " + std::string(name_of(dtype)));
    };
    wanted("token_x", r.token_x, r.weight_quant_mode == 2);
    wanted("weight_dq", r.weight_dq, r.weight_quant_mode == 2);
    wanted("weight_uq_qr", r.weight_uq_qr, r.weight_quant_mode >= 1);
    wanted("weight_dkv_kr", r.weight_dkv_kr, r.weight_quant_mode == 2);
    wanted("kv_cache", r.kv_cache, r.kv_cache_quant_mode != 0);
    wanted("kr_cache", r.kr_cache, r.kv_cache_quant_mode == 2);
    wanted("query", r.query, r.query_quant_mode == 1);
    wanted("query_norm", r.query_norm, r.weight_quant_mode >= 1);
}

// What a query without low rank cannot have.
void check_low_rank(const MlaPrologV3Request& r, OperatorCheck& check) {
    if (has_low_rank(r)) return;
    const std::string without = "; without weight_dq (q_lora_rank null) it must be ";
    check.require(r.weight_quant_mode == 0,
                  "weight_quant_mode is " + std::to_string(r.weight_quant_mode) + without + "0");
    check.require(r.qc_qr_scale == 1.0f,
                  "qc_qr_scale is " + std::to_string(r.qc_qr_scale) + without + "1");
    check.require(!r.query_norm_flag, "query_norm_flag is true" + without + "false");
}

// Tensors with token axes have those of token_x.
void check_axes(const MlaPrologV3Request& r, OperatorCheck& check) {
    const auto axes = [&](const char* name, const ConstTensorView& view, size_t other_axes) {
        const size_t wanted = (is_merged(r) ? 1 : 2) + other_axes;
        check.require(view.num_elements() == 0 || view.rank == wanted,
                      std::string(name) + " has " + std::to_string(view.rank) +
                          " axes; token_x has axes " + (is_merged(r) ? "[T, He]" : "[B, S, He]") +
                          ", so it must have " + std::to_string(wanted));
    };
    axes("rope_sin", r.rope_sin, 1);
    axes("rope_cos", r.rope_cos, 1);
    axes("cache_index", r.cache_index, 0);
    axes("query", r.query, 2);
    axes("query_rope", r.query_rope, 2);
    axes("query_norm", r.query_norm, 1);
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    check.require(mode != CacheMode::kBsnd || !is_merged(r),
                  "cache_mode is BSND; it needs token_x [B, S, He], not [T, He]");
    check.require(mode != CacheMode::kTnd || is_merged(r),
                  "cache_mode is TND; it needs token_x [T, He], not [B, S, He]");
}

}  // namespace

Result<> check_mla_prolog_v3(const MlaPrologV3Request& r, OperatorCheck& check) {
    check_attributes(r, check);
    check.tensor("token_x", r.token_x);
    bind_names(r, check);
    check_low_rank(r, check);
    check_dtypes(r, check);
    check_presence(r, check);
    check_axes(r, check);
    check.tensor("weight_dq", r.weight_dq);
    check.tensor("weight_uq_qr", r.weight_uq_qr);
    check.tensor("weight_uk", r.weight_uk);
    check.tensor("weight_dkv_kr", r.weight_dkv_kr);
    check.tensor("rmsnorm_gamma_cq", r.rmsnorm_gamma_cq);
    check.tensor("rmsnorm_gamma_ckv", r.rmsnorm_gamma_ckv);
    check.tensor("rope_sin", r.rope_sin);
    check.tensor("rope_cos", r.rope_cos);
    check.tensor("kv_cache", r.kv_cache);
    check.tensor("kr_cache", r.kr_cache);
    check.tensor("cache_index", r.cache_index);
    check.tensor("dequant_scale_x", r.dequant_scale_x);
    check.tensor("dequant_scale_w_dq", r.dequant_scale_w_dq);
    check.tensor("dequant_scale_w_uq_qr", r.dequant_scale_w_uq_qr);
    check.tensor("dequant_scale_w_dkv_kr", r.dequant_scale_w_dkv_kr);
    check.tensor("quant_scale_ckv", r.quant_scale_ckv);
    check.tensor("quant_scale_ckr", r.quant_scale_ckr);
    check.tensor("smooth_scales_cq", r.smooth_scales_cq);
    check.tensor("actual_seq_len", r.actual_seq_len);
    check.tensor("k_nope_clip_alpha", r.k_nope_clip_alpha);
    check.tensor("query", r.query);
    check.tensor("query_rope", r.query_rope);
    check.tensor("dequant_scale_q_nope", r.dequant_scale_q_nope);
    check.tensor("query_norm", r.query_norm);
    check.tensor("dequant_scale_q_norm", r.dequant_scale_q_norm);
    return check.finish();
}

}  // namespace afd::ops

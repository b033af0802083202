// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/mla_v3/mla_prolog_v3_scenario.h"

#include <algorithm>
#include <string>

#include "ops/operators/mla_v3/cache_format.h"
#include "ops/operators/mla_v3/token_axes.h"

namespace afd::ops {
namespace {

struct Scenario {
    int64_t weight;
    int64_t kv;
    int64_t query;

    std::string text() const { return fmt::format("{}{}{}", weight, kv, query); }
    friend constexpr bool operator==(const Scenario&, const Scenario&) = default;
};

constexpr Scenario kScenarios[] = {
    {0, 0, 0}, {1, 0, 0}, {1, 2, 0}, {1, 3, 0}, {2, 0, 0}, {2, 1, 1}, {2, 3, 0}, {2, 3, 1}};

// The seed's first revision numbers some scenarios by modes that its own list does not have.
constexpr Scenario kRenumbered[][2] = {
    {{2, 2, 0}, {1, 2, 0}}, {{3, 3, 0}, {1, 3, 0}}, {{3, 3, 1}, {2, 3, 1}}};

bool has_low_rank(const MlaPrologV3Request& r) {
    return r.weight_dq.num_elements() != 0;
}

// What decides about an input or output. Worded only where it is missing or superfluous, since a
// right call is checked again each time that it runs.
enum class Decider {
    kWeight,
    kKv,
    kQuery,
    kCache,
    kCacheOnTokens,
    kLowRank,
    kFlag,
    kFlagAndWeight
};

std::string text_of(Decider decider, const MlaPrologV3Request& r) {
    const char* flag = r.query_norm_flag ? "true" : "false";
    switch (decider) {
        case Decider::kWeight:
            return fmt::format("weight_quant_mode is {}", r.weight_quant_mode);
        case Decider::kKv:
            return fmt::format("kv_cache_quant_mode is {}", r.kv_cache_quant_mode);
        case Decider::kQuery:
            return fmt::format("query_quant_mode is {}", r.query_quant_mode);
        case Decider::kCache:
            return fmt::format("cache_mode is {}", r.cache_mode);
        case Decider::kCacheOnTokens:
            return fmt::format("cache_mode is {} on axes [T]", r.cache_mode);
        case Decider::kLowRank:
            return has_low_rank(r) ? "weight_dq is given" : "weight_dq is not";
        case Decider::kFlag:
            return fmt::format("query_norm_flag is {}", flag);
        case Decider::kFlagAndWeight:
            break;
    }
    return fmt::format(
        "query_norm_flag is {} and weight_quant_mode is {}", flag, r.weight_quant_mode);
}

// An input or output that the scenario needs, allows or has no use for.
struct Use {
    const char* name;
    ConstTensorView view;
    bool is_needed;
    bool is_allowed;
    Decider why;
};

void check_presence(const MlaPrologV3Request& r, OperatorCheck& check) {
    using D = Decider;
    const int64_t weight = r.weight_quant_mode;
    const int64_t kv = r.kv_cache_quant_mode;
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    const bool block_index = is_block_indexed(mode) && r.token_x.rank == 2;
    const bool norm_scale = r.query_norm_flag && weight >= 1;
    const bool int8_query = r.query_quant_mode == 1;
    const Use uses[] = {
        {"rmsnorm_gamma_cq", r.rmsnorm_gamma_cq, has_low_rank(r), has_low_rank(r), D::kLowRank},
        {"kr_cache", r.kr_cache, kv != 3, kv != 3, D::kKv},
        {"cache_index", r.cache_index, is_paged(mode), is_paged(mode), D::kCache},
        {"dequant_scale_x", r.dequant_scale_x, weight == 2, weight == 2, D::kWeight},
        {"dequant_scale_w_dq", r.dequant_scale_w_dq, weight == 2, weight == 2, D::kWeight},
        {"dequant_scale_w_uq_qr", r.dequant_scale_w_uq_qr, weight >= 1, weight >= 1, D::kWeight},
        {"dequant_scale_w_dkv_kr", r.dequant_scale_w_dkv_kr, weight == 2, weight == 2, D::kWeight},
        {"quant_scale_ckv", r.quant_scale_ckv, kv == 1 || kv == 2, kv != 0, D::kKv},
        {"quant_scale_ckr", r.quant_scale_ckr, kv == 2, kv == 2, D::kKv},
        {"smooth_scales_cq", r.smooth_scales_cq, false, weight >= 1, D::kWeight},
        {"actual_seq_len", r.actual_seq_len, block_index, true, D::kCacheOnTokens},
        {"k_nope_clip_alpha", r.k_nope_clip_alpha, false, kv == 3, D::kKv},
        {"dequant_scale_q_nope", r.dequant_scale_q_nope, int8_query, int8_query, D::kQuery},
        {"query_norm", r.query_norm, r.query_norm_flag, r.query_norm_flag, D::kFlag},
        {"dequant_scale_q_norm", r.dequant_scale_q_norm, norm_scale, norm_scale, D::kFlagAndWeight},
    };
    const bool has_tokens = count_tokens(r.token_x, 1) > 0;
    for (const Use& use : uses) {
        const bool is_given = use.view.num_elements() != 0;
        const bool may_be_empty = !has_tokens || (use.name == std::string_view("kr_cache") &&
                                                  r.kv_cache.num_elements() == 0);
        const bool is_empty = use.view.given() && may_be_empty;
        if (use.is_needed && !is_given && !is_empty) {
            check.require(false, "{} is missing; {}", with(use.name, text_of(use.why, r)));
        }
        if (!use.is_allowed && is_given) {
            check.require(
                false, "{} is given, but {}; leave it out", with(use.name, text_of(use.why, r)));
        }
    }
}

void check_dtypes(const MlaPrologV3Request& r, OperatorCheck& check) {
    const Scenario scenario{r.weight_quant_mode, r.kv_cache_quant_mode, r.query_quant_mode};
    const auto wanted = [&](const char* name, const ConstTensorView& view, bool is_int8) {
        const DType dtype = is_int8 ? DType::kInt8 : DType::kBf16;
        check.require(view.num_elements() == 0 || view.dtype == dtype,
                      "{} has dtype {}; scenario {} needs {}",
                      with(name, name_of(view.dtype), scenario.text(), name_of(dtype)));
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
    check.require(r.weight_quant_mode == 0,
                  "weight_quant_mode is {}; without weight_dq (q_lora_rank null) it must be 0",
                  with(r.weight_quant_mode));
    check.require(r.qc_qr_scale == 1.0f,
                  "qc_qr_scale is {:f}; without weight_dq (q_lora_rank null) it must be 1",
                  with(r.qc_qr_scale));
    check.require(!r.query_norm_flag,
                  "query_norm_flag is true; without weight_dq (q_lora_rank null) it must be false");
}

}  // namespace

void check_scenario(const MlaPrologV3Request& r, OperatorCheck& check) {
    const Scenario s{r.weight_quant_mode, r.kv_cache_quant_mode, r.query_quant_mode};
    // Before the modes themselves, so that who follows the document is told the scenario that it
    // means.
    for (const auto& [from, to] : kRenumbered) {
        check.require(s != from,
                      "weight_quant_mode {}, kv_cache_quant_mode {}, query_quant_mode {} is not a "
                      "scenario; the one meant is {}: weight_quant_mode {}, kv_cache_quant_mode "
                      "{}, query_quant_mode {}",
                      with(s.weight, s.kv, s.query, to.text(), to.weight, to.kv, to.query));
    }
    check.attribute("weight_quant_mode");
    check.attribute("kv_cache_quant_mode");
    check.attribute("query_quant_mode");
    check.require(
        std::find(std::begin(kScenarios), std::end(kScenarios), s) != std::end(kScenarios),
        "weight_quant_mode {}, kv_cache_quant_mode {}, query_quant_mode {} is not a scenario; "
        "allowed are 000, 100, 120, 130, 200, 211, 230, 231",
        with(s.weight, s.kv, s.query));
}

void check_uses(const MlaPrologV3Request& r, OperatorCheck& check) {
    check_low_rank(r, check);
    check_dtypes(r, check);
    check_presence(r, check);
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

// The record of MoeInitRoutingV3 and the judgement of its requests.

#include <algorithm>
#include <string>

#include "ops/operators/moe_init_routing.h"
#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

using Request = MoeInitRoutingV3Request;

constexpr int64_t kOffOrOn[] = {0, 1};
constexpr int64_t kCountTypes[] = {0, 1, 2};
constexpr int64_t kQuantModes[] = {-1, 0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"active_num",
     bind<&Request::active_num>(),
     "-1",
     {},
     INT64_MIN,
     INT64_MAX,
     "rows of expanded_x at most; 0 and below: no limit; ignored with drop_pad_mode 1"},
    {"expert_capacity",
     bind<&Request::expert_capacity>(),
     "0",
     {},
     INT64_MIN,
     INT32_MAX,
     "rows of each expert with drop_pad_mode 1, else not looked at"},
    {"expert_num", bind<&Request::expert_num>(), "", {}, 0, INT32_MAX, "experts"},
    {"drop_pad_mode",
     bind<&Request::drop_pad_mode>(),
     "0",
     kOffOrOn,
     0,
     0,
     "dropless; each expert has expert_capacity rows"},
    {"expert_tokens_num_type",
     bind<&Request::expert_tokens_num_type>(),
     "0",
     kCountTypes,
     0,
     0,
     "inclusive prefix sums; counts; pairs of expert and count"},
    {"expert_tokens_num_flag",
     bind<&Request::expert_tokens_num_flag>(),
     "false",
     kOffOrOn,
     0,
     0,
     "no counts; expert_tokens_count_or_cumsum is written"},
    {"quant_mode",
     bind<&Request::quant_mode>(),
     "-1",
     kQuantModes,
     0,
     0,
     "rows are copied; static quantisation; dynamic quantisation"},
    {"active_expert_range",
     bind<&Request::active_expert_range>(),
     "[]",
     {},
     0,
     0,
     "[start, end), the experts that get rows; [] for all"},
    {"row_idx_type", bind<&Request::row_idx_type>(), "0", kOffOrOn, 0, 0, "gather; scatter"},
};

constexpr DTypeSet kValueTypes{DType::kFp32, DType::kFp16, DType::kBf16, DType::kInt8};

constexpr TensorSpec kTensors[] = {
    {"x", bind<&Request::x>(), TensorRole::kInput, kValueTypes, "[N, H]", "token rows"},
    {"expert_idx",
     bind<&Request::expert_idx>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[N, K]",
     "experts of each token"},
    {"scale",
     bind<&Request::scale>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[N] | [1] | [R, H] | [1, H]",
     "quant_mode -1: the rows' scales; 0: the scale; 1: smooth scales of the active experts"},
    {"offset",
     bind<&Request::offset>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1]",
     "of quant_mode 0"},
    {"expanded_x",
     bind<&Request::expanded_x>(),
     TensorRole::kOutput,
     kValueTypes,
     "[P, H] | [expert_num, expert_capacity, H]",
     "rows sorted by expert"},
    {"expanded_row_idx",
     bind<&Request::expanded_row_idx>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[N*K]",
     "row of each slot, or slot of each row"},
    {"expert_tokens_count_or_cumsum",
     bind<&Request::expert_tokens_count_or_cumsum>(),
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[R] | [expert_num, 2]",
     "rows of each expert"},
    {"expanded_scale",
     bind<&Request::expanded_scale>(),
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[P]",
     "scale of each row"},
};

constexpr std::string_view kRules[] = {
    "R is the number of experts in active_expert_range; P is N*K, min(active_num, N*K) with an "
    "active_num above 0, expert_num*expert_capacity with drop_pad_mode 1.",
    "0 <= start <= end <= expert_num in active_expert_range.",
    "expert_idx is below expert_num; a negative id is outside every range.",
    "drop_pad_mode 1 needs expert_capacity of at least 1, all experts active and row_idx_type 0.",
    "quant_mode 0 needs scale and offset of one element; offset is for quant_mode 0 only.",
    "quant_mode 0 and 1 do not take int8 rows.",
    "expanded_x has the dtype of x, int8 with quant_mode 0 and 1.",
    "expert_tokens_count_or_cumsum is needed with expert_tokens_num_flag, expanded_scale with "
    "quant_mode 1 and with quant_mode -1 and a scale.",
};

constexpr std::string_view kLifted[] = {
    "active_num must equal N*K",
    "drop_pad_mode 0 only",
    "expert_tokens_num_type 1 and 2 only",
    "expert_tokens_num_flag true only",
    "quant_mode -1 and 1 only",
    "expert_num of at most 10240, 5120 with expert_tokens_num_type 2",
};

size_t dimension(const ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[axis] : 0;
}

// What follows from attributes and input shapes; sizes of inputs that are not judged yet.
struct Plan {
    bool is_drop_pad = false;
    bool is_quantised = false;
    size_t num_slots = 0;   // N·K
    size_t num_active = 0;  // R
    size_t num_rows = 0;    // P
};

Plan plan_of(const MoeInitRoutingV3Request& r) {
    Plan plan;
    plan.is_drop_pad = r.drop_pad_mode == 1;
    plan.is_quantised = r.quant_mode != -1;
    plan.num_slots = dimension(r.expert_idx, 0) * dimension(r.expert_idx, 1);
    const auto& range = r.active_expert_range;
    // May be nonsense here: the plan is made before the request was judged, only to name sizes in
    // messages.
    plan.num_active = range.size() == 2
                          ? static_cast<size_t>(range[1]) - static_cast<size_t>(range[0])
                          : static_cast<size_t>(r.expert_num);
    plan.num_rows = plan.num_slots;
    if (plan.is_drop_pad) {
        plan.num_rows = static_cast<size_t>(r.expert_num) * static_cast<size_t>(r.expert_capacity);
    } else if (r.active_num > 0) {
        plan.num_rows = std::min(plan.num_slots, static_cast<size_t>(r.active_num));
    }
    return plan;
}

std::string text_of(std::span<const int64_t> range) {
    // Enough to know it again; a message never repeats a whole input.
    constexpr size_t kShownMost = 8;
    std::string text;
    for (size_t i = 0; i < std::min(range.size(), kShownMost); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(range[i]);
    }
    return text + (range.size() > kShownMost ? ", ..." : "");
}

void check_range(OperatorCheck& check, const MoeInitRoutingV3Request& r) {
    const auto& range = r.active_expert_range;
    if (range.empty()) return;
    if (range.size() != 2) {
        check.require(false,
                      "active_expert_range is [{}]; it must have 2 elements, or none for all "
                      "experts",
                      with(text_of(range)));
        return;
    }
    if (range[0] >= 0 && range[0] <= range[1] && range[1] <= r.expert_num) return;
    check.require(false,
                  "active_expert_range is [{}]; allowed are 0 <= start <= end <= expert_num, which "
                  "is {}",
                  with(text_of(range), r.expert_num));
}

void check_drop_pad(OperatorCheck& check, const MoeInitRoutingV3Request& r) {
    if (r.drop_pad_mode != 1) return;
    check.require(r.expert_capacity >= 1,
                  "expert_capacity is {}; drop_pad_mode 1 needs at least 1",
                  with(r.expert_capacity));
    check.require(r.expert_capacity < 1 || r.expert_num <= INT32_MAX / r.expert_capacity,
                  "expert_capacity is {}; expert_num times it must not exceed 2147483647",
                  with(r.expert_capacity));
    const auto& range = r.active_expert_range;
    check.require(range.size() != 2 || (range[0] == 0 && range[1] == r.expert_num),
                  "drop_pad_mode is 1; active_expert_range must be [] or [0, {}]",
                  with(r.expert_num));
    check.require(r.row_idx_type == 0, "drop_pad_mode is 1; row_idx_type must be 0");
}

void check_scale(OperatorCheck& check, const MoeInitRoutingV3Request& r) {
    const int64_t mode = r.quant_mode;
    const bool has_scale = r.scale.num_elements() > 0;
    const bool has_offset = r.offset.num_elements() > 0;
    check.require(mode == -1 || r.x.dtype != DType::kInt8,
                  "quant_mode is {}; x of dtype int8 cannot be quantised",
                  with(mode));
    check.require(mode != 0 || has_scale, "quant_mode is {}; scale [1] is needed", with(mode));
    check.require(mode != 0 || has_offset, "quant_mode is {}; offset [1] is needed", with(mode));
    check.require(mode == 0 || !has_offset,
                  "quant_mode is {}; only quant_mode 0 takes an offset",
                  with(mode));
    if (!has_scale) return;
    const size_t num_tokens = dimension(r.x, 0);
    const bool is_vector = r.scale.rank == 1;
    check.require(mode != -1 || (is_vector && r.scale.shape[0] == num_tokens),
                  "quant_mode is {}; scale must be [N] with N = {}",
                  with(mode, num_tokens));
    check.require(mode != 0 || (is_vector && r.scale.shape[0] == 1),
                  "quant_mode is {}; scale must be [1]",
                  with(mode));
    check.require(mode != 1 || r.scale.rank == 2,
                  "quant_mode is {}; scale must be [R, H] or [1, H]",
                  with(mode));
}

void check_inputs(OperatorCheck& check, const MoeInitRoutingV3Request& r) {
    check.attributes();
    check_range(check, r);
    check_drop_pad(check, r);
    check.tensor("x");
    check.tensor("expert_idx");
    const size_t num_slots = plan_of(r).num_slots;
    check.require(num_slots <= INT32_MAX,
                  "expert_idx has {} elements; at most 2147483647 are allowed",
                  with(num_slots));
    check.tensor("scale");
    check.tensor("offset");
    check_scale(check, r);
    check.bind("R", plan_of(r).num_active);
    check.bind("P", plan_of(r).num_rows);
}

void check_outputs(OperatorCheck& check, const MoeInitRoutingV3Request& r) {
    const Plan plan = plan_of(r);
    check.tensors();
    const DType wanted = plan.is_quantised ? DType::kInt8 : r.x.dtype;
    check.require(r.expanded_x.dtype == wanted,
                  "expanded_x has dtype {}; it must be {} with quant_mode {}",
                  with(name_of(r.expanded_x.dtype), name_of(wanted), r.quant_mode));
    check.require(
        r.expanded_x.rank == (plan.is_drop_pad ? 3 : 2),
        "expanded_x must be {} with drop_pad_mode {}",
        with(plan.is_drop_pad ? "[expert_num, expert_capacity, H]" : "[P, H]", r.drop_pad_mode));
    const auto& counts = r.expert_tokens_count_or_cumsum;
    const bool is_pairs = r.expert_tokens_num_type == 2;
    const size_t num_counts = is_pairs ? static_cast<size_t>(r.expert_num) : plan.num_active;
    check.require(!r.expert_tokens_num_flag || counts.num_elements() > 0 || num_counts == 0,
                  "expert_tokens_num_flag is true; expert_tokens_count_or_cumsum is missing");
    check.require(counts.num_elements() == 0 || counts.rank == (is_pairs ? 2 : 1),
                  "expert_tokens_count_or_cumsum must be {} with expert_tokens_num_type {}",
                  with(is_pairs ? "[expert_num, 2]" : "[R]", r.expert_tokens_num_type));
    const bool has_scale = r.quant_mode == 1 || (r.quant_mode == -1 && r.scale.num_elements() > 0);
    check.require(!has_scale || plan.num_rows == 0 || r.expanded_scale.num_elements() > 0,
                  "expanded_scale is missing; it must be [P] with P = {}",
                  with(plan.num_rows));
}

}  // namespace

const RecordOf<MoeInitRoutingV3Request> kMoeInitRoutingV3Spec = {
    {"moe_init_routing_v3",
     "every token's row once per chosen expert, sorted by expert, optionally quantised",
     "expanded_x[p] = op(x[order[p] div K]), order = stable sort of the slots n*K + k by expert",
     "seed moe_init_routing_v3; docs/specification.md, section 6",
     kAttributes,
     kTensors,
     kRules,
     kLifted}};

Result<MoeInitRoutingV3Request> with_output_shapes(const MoeInitRoutingV3Request& r) {
    OperatorCheck check(kMoeInitRoutingV3Spec, r);
    check_inputs(check, r);
    AFD_TRY(check.finish());
    const Plan plan = plan_of(r);
    const size_t hidden = check.size("H");
    const auto num_experts = static_cast<size_t>(r.expert_num);
    const auto capacity = static_cast<size_t>(r.expert_capacity);
    const auto view = [](DType dtype, std::initializer_list<size_t> shape) {
        return make_tensor<void>(nullptr, dtype, shape);
    };
    const DType dtype = plan.is_quantised ? DType::kInt8 : r.x.dtype;
    MoeInitRoutingV3Request whole = r;
    whole.expanded_x = plan.is_drop_pad ? view(dtype, {num_experts, capacity, hidden})
                                        : view(dtype, {plan.num_rows, hidden});
    whole.expanded_row_idx = view(DType::kInt32, {plan.num_slots});
    whole.expert_tokens_count_or_cumsum = {};
    if (r.expert_tokens_num_flag) {
        whole.expert_tokens_count_or_cumsum = r.expert_tokens_num_type == 2
                                                  ? view(DType::kInt64, {num_experts, 2})
                                                  : view(DType::kInt64, {plan.num_active});
    }
    whole.expanded_scale = {};
    if (r.quant_mode == 1 || (r.quant_mode == -1 && r.scale.num_elements() > 0)) {
        whole.expanded_scale = view(DType::kFp32, {plan.num_rows});
    }
    return whole;
}

Result<> check_moe_init_routing_v3(const MoeInitRoutingV3Request& r) {
    OperatorCheck check(kMoeInitRoutingV3Spec, r);
    check_inputs(check, r);
    check_outputs(check, r);
    AFD_TRY(check.finish());
    const auto* ids = static_cast<const int32_t*>(r.expert_idx.data);
    const size_t num_slots = plan_of(r).num_slots;
    const int32_t* largest = std::max_element(ids, ids + num_slots);
    if (num_slots > 0 && *largest >= r.expert_num) {
        const auto first =
            std::find_if(ids, ids + num_slots, [&](int32_t id) { return id >= r.expert_num; });
        check.require(false,
                      "expert_idx[{}] is {}; it must be below expert_num, {}",
                      with(first - ids, *first, r.expert_num));
    }
    return check.finish();
}

}  // namespace afd::ops

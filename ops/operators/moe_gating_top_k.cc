// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/moe_gating_top_k.h"

#include "ops/record/operator_check.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

constexpr int64_t kNormTypes[] = {0, 1, 2};
constexpr int64_t kGroupModes[] = {-1, 0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"k", AttributeKind::kInt, "", {}, 1, INT32_MAX, "experts chosen for each token"},
    {"topk_group", AttributeKind::kInt, "1", {}, 1, INT32_MAX, "groups that stay"},
    {"n_group", AttributeKind::kInt, "1", {}, 1, INT32_MAX, "groups of equal size"},
    {"group_select_mode",
     AttributeKind::kInt,
     "-1",
     kGroupModes,
     0,
     0,
     "as 1 with a bias, else as 0; groups by their best choice; by the sum of their two best"},
    {"norm_topk_prob",
     AttributeKind::kBool,
     "false",
     {},
     0,
     1,
     "divide by the sum of the picks' scores"},
    {"norm_type",
     AttributeKind::kInt,
     "0",
     kNormTypes,
     0,
     0,
     "softmax; sigmoid; square root of softplus"},
    {"routed_scaling_factor", AttributeKind::kFloat, "1.0", {}, 0, 0, "factor of every weight"},
};

constexpr TensorSpec kTensors[] = {
    {"x",
     TensorRole::kInput,
     {DType::kFp32, DType::kBf16, DType::kFp16},
     "[N, E]",
     "router logits"},
    {"bias", TensorRole::kOptionalInput, {DType::kFp32}, "[E]", "added for the choice only"},
    {"y", TensorRole::kOutput, {DType::kFp32}, "[N, k]", "weights, best choice first"},
    {"expert_idx", TensorRole::kOutput, {DType::kInt32}, "[N, k]", "the experts chosen"},
};

constexpr std::string_view kRules[] = {
    "E is a multiple of n_group; topk_group is at most n_group; k is at most topk_group·E/n_group.",
    "Ties go to the lower index, of groups and of experts.",
    "A row with a score or choice that is not a number gives experts 0 to k-1 with weights NaN.",
};

constexpr std::string_view kLifted[] = {"E at most 2048", "k at most 32"};

}  // namespace

const OperatorSpec kMoeGatingTopKSpec = {
    "moe_gating_top_k",
    "router logits to the chosen experts and their weights",
    "y, expert_idx = top k of (norm(x) + bias) inside the best groups; y = norm(x) at the picks",
    "specification, section 6",
    kAttributes,
    kTensors,
    kRules,
    kLifted};

Result<GatingTopKAttributes> check_moe_gating_top_k(const MoeGatingTopKRequest& r) {
    OperatorCheck check(kMoeGatingTopKSpec);
    check.attribute("k", r.k);
    check.attribute("topk_group", r.topk_group);
    check.attribute("n_group", r.n_group);
    check.attribute("group_select_mode", r.group_select_mode);
    check.attribute("norm_topk_prob", int64_t{r.norm_topk_prob});
    check.attribute("norm_type", r.norm_type);
    check.attribute("routed_scaling_factor", double{r.routed_scaling_factor});
    check.tensor("x", r.x);
    check.tensor("bias", r.bias);
    check.tensor("y", r.y);
    check.tensor("expert_idx", r.expert_idx);
    AFD_TRY(check.finish());
    const bool by_two_best =
        r.group_select_mode == 1 || (r.group_select_mode == -1 && r.bias.num_elements() > 0);
    const GatingTopKAttributes attributes{
        .num_experts = r.x.shape[1],
        .top_k = static_cast<size_t>(r.k),
        .norm = static_cast<GatingNorm>(r.norm_type),
        .n_group = static_cast<size_t>(r.n_group),
        .topk_group = static_cast<size_t>(r.topk_group),
        .group_select_mode = by_two_best ? GroupSelectMode::kSumOfTwoBest : GroupSelectMode::kMax,
        .norm_topk_prob = r.norm_topk_prob,
        .routed_scaling_factor = r.routed_scaling_factor};
    if (const auto valid = validate(attributes); !valid.ok()) {
        return Error{valid.error().code, "moe_gating_top_k: " + valid.error().message};
    }
    return attributes;
}

size_t moe_gating_top_k_workspace_bytes(const MoeGatingTopKRequest& r) {
    const auto attributes = check_moe_gating_top_k(r);
    AFD_ASSERT(attributes.ok(), "%s", attributes.error().message.c_str());
    return gating_top_k_workspace_bytes(attributes.value()) +
           workspace_bytes_of<float>(attributes.value().num_experts);
}

namespace {

std::span<const float> bias_of(const MoeGatingTopKRequest& r) {
    return {static_cast<const float*>(r.bias.data), r.bias.num_elements()};
}

}  // namespace

Result<> moe_gating_top_k(const MoeGatingTopKRequest& r, std::span<std::byte> workspace) {
    AFD_ASSIGN(const GatingTopKAttributes attributes, check_moe_gating_top_k(r));
    WorkspaceCursor cursor(workspace);
    auto* row = cursor.take<float>(attributes.num_experts);
    const std::span<std::byte> scratch =
        workspace.subspan(workspace_bytes_of<float>(attributes.num_experts));
    const auto k = static_cast<size_t>(r.k);
    with_float_type(r.x.dtype, [&](auto zero) {
        const auto* x = static_cast<const decltype(zero)*>(r.x.data);
        for (size_t n = 0; n < r.x.shape[0]; ++n) {
            for (size_t e = 0; e < attributes.num_experts; ++e) {
                row[e] = to_float(x[n * attributes.num_experts + e]);
            }
            gating_top_k(attributes,
                         make_rows<const float>(row, 1, attributes.num_experts),
                         bias_of(r),
                         make_rows(static_cast<float*>(r.y.data) + n * k, 1, k),
                         make_rows(static_cast<int32_t*>(r.expert_idx.data) + n * k, 1, k),
                         scratch);
        }
    });
    return {};
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

// The record of MoeGatingTopK and the check of a request against it.

#include "ops/operators/moe_gating_top_k.h"
#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

using Request = MoeGatingTopKRequest;

constexpr int64_t kNormTypes[] = {0, 1, 2};
constexpr int64_t kGroupModes[] = {-1, 0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"k", bind<&Request::k>(), "", {}, 1, INT32_MAX, "experts chosen for each token"},
    {"topk_group", bind<&Request::topk_group>(), "1", {}, 1, INT32_MAX, "groups that stay"},
    {"n_group", bind<&Request::n_group>(), "1", {}, 1, INT32_MAX, "groups of equal size"},
    {"group_select_mode",
     bind<&Request::group_select_mode>(),
     "-1",
     kGroupModes,
     0,
     0,
     "as 1 with a bias, else as 0; groups by their best choice; by the sum of their two best"},
    {"norm_topk_prob",
     bind<&Request::norm_topk_prob>(),
     "false",
     {},
     0,
     1,
     "divide by the sum of the picks' scores"},
    {"norm_type",
     bind<&Request::norm_type>(),
     "0",
     kNormTypes,
     0,
     0,
     "softmax; sigmoid; square root of softplus"},
    {"routed_scaling_factor",
     bind<&Request::routed_scaling_factor>(),
     "1.0",
     {},
     0,
     0,
     "factor of every weight"},
};

constexpr TensorSpec kTensors[] = {
    {"x",
     bind<&Request::x>(),
     TensorRole::kInput,
     {DType::kFp32, DType::kBf16, DType::kFp16},
     "[N, E]",
     "router logits"},
    {"bias",
     bind<&Request::bias>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[E]",
     "added for the choice only"},
    {"y",
     bind<&Request::y>(),
     TensorRole::kOutput,
     {DType::kFp32},
     "[N, k]",
     "weights, best choice first"},
    {"expert_idx",
     bind<&Request::expert_idx>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[N, k]",
     "the experts chosen"},
};

constexpr std::string_view kRules[] = {
    "E is a multiple of n_group; topk_group is at most n_group; k is at most topk_group·E/n_group.",
    "Ties go to the lower index, of groups and of experts.",
    "A row with a score or choice that is not a number, or with topk_group below n_group a group's "
    "score (infinities of both signs have no sum), gives experts 0 to k-1 with weights NaN.",
};

constexpr std::string_view kLifted[] = {"E at most 2048", "k at most 32"};

}  // namespace

const RecordOf<MoeGatingTopKRequest> kMoeGatingTopKSpec = {
    {"moe_gating_top_k",
     "router logits to the chosen experts and their weights",
     "y, expert_idx = top k of (norm(x) + bias) inside the best groups; y = norm(x) at the picks",
     "docs/specification.md, section 6",
     kAttributes,
     kTensors,
     kRules,
     kLifted,
     "computes in double: each weight within 1e-5 of its value with up to 1024 experts, where no "
     "exponential is below 2^-126, and the same experts unless two choices are as near to each "
     "other"}};

Result<GatingAttributes> check_moe_gating_top_k(const MoeGatingTopKRequest& r) {
    OperatorCheck check(kMoeGatingTopKSpec, r);
    check.attributes();
    // Before the outputs, whose shape follows from it.
    check.require(r.x.rank != 2 || static_cast<size_t>(r.k) <= r.x.shape[1],
                  "k is {}; x has {} experts",
                  with(r.k, r.x.rank == 2 ? r.x.shape[1] : 0));
    check.tensors();
    AFD_TRY(check.finish());
    // Mode -1 ends here: the arithmetic knows the two real modes only.
    const bool by_two_best =
        r.group_select_mode == 1 || (r.group_select_mode == -1 && r.bias.num_elements() > 0);
    const GatingAttributes attributes{
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

}  // namespace afd::ops

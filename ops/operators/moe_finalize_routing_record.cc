// SPDX-License-Identifier: Apache-2.0

// The record of MoeFinalizeRouting and the check of a request against it.

#include <string>

#include "ops/operators/moe_finalize_routing.h"
#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

using Request = MoeFinalizeRoutingRequest;

constexpr int64_t kModes[] = {2, 3};

constexpr AttributeSpec kAttributes[] = {
    {"drop_pad_mode",
     bind<&Request::drop_pad_mode>(),
     "2",
     kModes,
     0,
     0,
     "dropless rows; expert_capacity rows of each expert"},
};

constexpr DTypeSet kFloatTypes{DType::kBf16, DType::kFp16, DType::kFp32};

constexpr TensorSpec kTensors[] = {
    {"expanded_x",
     bind<&Request::expanded_x>(),
     TensorRole::kInput,
     kFloatTypes,
     "[P, H] | [E, C, H]",
     "expert rows"},
    {"expanded_row_idx",
     bind<&Request::expanded_row_idx>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[N*K]",
     "row of each slot, or -1: the slot adds nothing"},
    {"x1", bind<&Request::x1>(), TensorRole::kOptionalInput, kFloatTypes, "[N, H]", "added first"},
    {"x2", bind<&Request::x2>(), TensorRole::kOptionalInput, kFloatTypes, "[N, H]", "added second"},
    {"bias",
     bind<&Request::bias>(),
     TensorRole::kOptionalInput,
     kFloatTypes,
     "[E, H]",
     "added to an expert's rows"},
    {"scales",
     bind<&Request::scales>(),
     TensorRole::kOptionalInput,
     kFloatTypes,
     "[N, K]",
     "weights; not given: 1"},
    {"expert_idx",
     bind<&Request::expert_idx>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[N, K]",
     "experts, for bias"},
    {"out", bind<&Request::out>(), TensorRole::kOutput, kFloatTypes, "[N, H]", "sums"},
};

constexpr std::string_view kRules[] = {
    "expanded_row_idx is -1 or the index of a row of expanded_x.",
    "bias needs expert_idx; where the index is a row, the expert is below E.",
    "x1, x2, bias and out have the dtype of expanded_x.",
    "drop_pad_mode 2 takes expanded_x [P, H], drop_pad_mode 3 [E, C, H].",
};

constexpr std::string_view kLifted[] = {
    "drop_pad_mode 0 and 1 (column-major indices) are replaced by 2 and 3, which pair with "
    "moe_init_routing_v3",
};

size_t num_rows_of(const MoeFinalizeRoutingRequest& r) {
    const auto& x = r.expanded_x;
    return x.rank == 3 ? x.shape[0] * x.shape[1] : x.shape[0];
}

void check_indices(OperatorCheck& check, const MoeFinalizeRoutingRequest& r) {
    const auto num_rows = static_cast<int64_t>(num_rows_of(r));
    const auto* index = static_cast<const int32_t*>(r.expanded_row_idx.data);
    const auto* expert = static_cast<const int32_t*>(r.expert_idx.data);
    const bool has_bias = r.bias.num_elements() > 0;
    for (size_t f = 0; f < r.expanded_row_idx.num_elements(); ++f) {
        if (index[f] < -1 || index[f] >= num_rows) {
            return check.require(false,
                                 "expanded_row_idx[{}] is {}; allowed are -1 to {}",
                                 with(f, index[f], num_rows - 1));
        }
        // The expert of a slot that adds nothing is not read, so it may be anything.
        if (!has_bias || index[f] < 0) continue;
        if (expert[f] < 0 || static_cast<size_t>(expert[f]) >= r.bias.shape[0]) {
            return check.require(false,
                                 "expert_idx[{}] is {}; allowed are 0 to {}",
                                 with(f, expert[f], r.bias.shape[0] - 1));
        }
    }
}

}  // namespace

const RecordOf<MoeFinalizeRoutingRequest> kMoeFinalizeRoutingSpec = {
    {"moe_finalize_routing",
     "the weighted sum of each token's expert rows",
     "out[n] = x1[n] + x2[n] + sum over k of scales[n, k] * (row + bias[expert_idx[n, k]]), "
     "row = expanded_x[expanded_row_idx[n*K + k]]",
     "docs/specification.md, section 6",
     kAttributes,
     kTensors,
     kRules,
     kLifted}};

Result<> check_moe_finalize_routing(const MoeFinalizeRoutingRequest& r) {
    OperatorCheck check(kMoeFinalizeRoutingSpec, r);
    check.attributes();
    check.tensor("expanded_x");
    check.require(r.expanded_x.rank == (r.drop_pad_mode == 3 ? 3 : 2),
                  "expanded_x must be {} with drop_pad_mode {}",
                  with(r.drop_pad_mode == 3 ? "[E, C, H]" : "[P, H]", r.drop_pad_mode));
    if (r.scales.num_elements() == 0 && r.expert_idx.num_elements() == 0) {
        const size_t num_tokens = r.out.rank == 2 ? r.out.shape[0] : 0;
        // No tensor with the axis K is given; N·K and N say what it is.
        check.bind("K", num_tokens == 0 ? 0 : r.expanded_row_idx.num_elements() / num_tokens);
    }
    for (const char* name : {"x1", "x2", "bias", "scales", "expert_idx", "out"}) check.tensor(name);
    check.tensors();
    const bool has_bias = r.bias.num_elements() > 0;
    const bool has_slots = r.expanded_row_idx.num_elements() > 0;
    check.require(!has_bias || !has_slots || r.expert_idx.num_elements() > 0,
                  "bias is given; expert_idx [N, K] is needed");
    const auto same_dtype = [&](const char* name, const ConstTensorView& view) {
        check.require(view.num_elements() == 0 || view.dtype == r.expanded_x.dtype,
                      "{} has dtype {}; it must be that of expanded_x, {}",
                      with(name, name_of(view.dtype), name_of(r.expanded_x.dtype)));
    };
    same_dtype("x1", r.x1);
    same_dtype("x2", r.x2);
    same_dtype("bias", r.bias);
    same_dtype("out", r.out);
    AFD_TRY(check.finish());
    check_indices(check, r);
    return check.finish();
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

// The record of GroupedMatmulSwiglu and the check of a request against it.

#include <string>

#include "ops/format/int8_rows.h"
#include "ops/operators/group_list.h"
#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

using Request = GroupedMatmulSwigluRequest;

constexpr int64_t kGroupListTypes[] = {0, 1, 2};
constexpr int64_t kQuantModes[] = {-1, 1};

constexpr AttributeSpec kAttributes[] = {
    {"group_list_type",
     bind<&Request::group_list_type>(),
     "0",
     kGroupListTypes,
     0,
     0,
     "inclusive prefix sums; counts; pairs of expert and count"},
    {"quant_mode",
     bind<&Request::quant_mode>(),
     "-1",
     kQuantModes,
     0,
     0,
     "output bf16; output int8 by dynamic quantisation, with output_scale"},
};

constexpr DTypeSet kValueTypes{DType::kBf16, DType::kInt8};

constexpr TensorSpec kTensors[] = {
    {"x", bind<&Request::x>(), TensorRole::kInput, kValueTypes, "[M, H]", "rows sorted by expert"},
    {"weight",
     bind<&Request::weight>(),
     TensorRole::kInput,
     kValueTypes,
     "[E, H, 2*I]",
     "columns 0 to I-1 gate_proj, the others up_proj"},
    {"group_list",
     bind<&Request::group_list>(),
     TensorRole::kInput,
     {DType::kInt64},
     "[E] | [?, 2]",
     "rows of each expert"},
    {"x_scale",
     bind<&Request::x_scale>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[M]",
     "scales of int8 rows"},
    {"weight_scale",
     bind<&Request::weight_scale>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[E, 2*I]",
     "scales of the columns of int8 weights"},
    {"output",
     bind<&Request::output>(),
     TensorRole::kOutput,
     kValueTypes,
     "[M, I]",
     "silu(gate) * up"},
    {"output_scale",
     bind<&Request::output_scale>(),
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[M]",
     "scales of int8 output"},
};

constexpr std::string_view kRules[] = {
    "weight has the dtype of x; int8 needs x_scale and weight_scale, bf16 takes neither.",
    "group_list is [E] with group_list_type 0 and 1, [?, 2] with 2.",
    "Counts are not negative, their sum is at most M, experts with rows ascend and are below E.",
    "H is at most 131071 with int8: the sums are 32-bit integers.",
    "output is bf16 with quant_mode -1, int8 with output_scale with quant_mode 1.",
};

std::string entry(size_t index, const std::string& what, int64_t value) {
    return fmt::format("group_list[{}] {} {}; ", index, what, value);
}

void check_group_list(OperatorCheck& check, const GroupedMatmulSwigluRequest& r) {
    const GroupList groups(r.group_list_type, r.group_list);
    const auto num_experts = static_cast<int64_t>(r.weight.shape[0]);
    int64_t left = static_cast<int64_t>(r.x.shape[0]);
    int64_t last_expert = -1;
    for (size_t i = 0; i < groups.size(); ++i) {
        const int64_t count = groups.count(i);
        const int64_t expert = groups.expert(i);
        if (count < 0 || count > left) {
            return check.require(false,
                                 "{}allowed are 0 to {}, the rows of x that are left",
                                 with(entry(i, "gives a count of", count), left));
        }
        left -= count;
        if (count == 0) continue;
        if (expert < 0 || expert >= num_experts) {
            return check.require(false,
                                 "{}allowed are 0 to {}",
                                 with(entry(i, "names expert", expert), num_experts - 1));
        }
        if (expert <= last_expert) {
            return check.require(false,
                                 "{}experts must ascend, and the one before is {}",
                                 with(entry(i, "names expert", expert), last_expert));
        }
        last_expert = expert;
    }
}

void check_dtypes(OperatorCheck& check, const GroupedMatmulSwigluRequest& r) {
    const bool is_int8 = r.x.dtype == DType::kInt8;
    const auto dtype = name_of(r.x.dtype);
    check.require(r.weight.dtype == r.x.dtype,
                  "x has dtype {}; weight must have it too, not {}",
                  with(dtype, name_of(r.weight.dtype)));
    // A scale of no elements counts as not given, unless it has to be empty.
    const bool has_rows = r.x.rank != 2 || r.x.shape[0] > 0;
    const bool has_columns = r.weight.rank != 3 || (r.weight.shape[0] > 0 && r.weight.shape[2] > 0);
    const auto is_there = [](const ConstTensorView& scale, bool has_elements) {
        return scale.num_elements() > 0 || (scale.given() && !has_elements);
    };
    check.require(!is_int8 || is_there(r.x_scale, has_rows),
                  "x has dtype {}; x_scale [M] is needed",
                  with(dtype));
    check.require(!is_int8 || is_there(r.weight_scale, has_columns),
                  "x has dtype {}; weight_scale [E, 2*I] is needed",
                  with(dtype));
    check.require(is_int8 || r.x_scale.num_elements() == 0,
                  "x has dtype {}; x_scale is for int8 only",
                  with(dtype));
    check.require(is_int8 || r.weight_scale.num_elements() == 0,
                  "x has dtype {}; weight_scale is for int8 only",
                  with(dtype));
    const size_t depth = r.x.rank == 2 ? r.x.shape[1] : 0;
    check.require(!is_int8 || depth <= kInt8DepthMax,
                  "H is {}; with int8 at most {} are allowed",
                  with(depth, kInt8DepthMax));
    const DType wanted = r.quant_mode == 1 ? DType::kInt8 : DType::kBf16;
    check.require(r.output.dtype == wanted,
                  "output has dtype {}; it must be {} with quant_mode {}",
                  with(name_of(r.output.dtype), name_of(wanted), r.quant_mode));
    check.require(r.quant_mode != 1 || is_there(r.output_scale, has_rows),
                  "output_scale is missing; quant_mode 1 needs [M]");
}

}  // namespace

const RecordOf<GroupedMatmulSwigluRequest> kGroupedMatmulSwigluSpec = {
    {"grouped_matmul_swiglu",
     "gate and up projections of each row's expert, SwiGLU, and optionally quantisation",
     "output = silu(x * W[e][:, :I]) * (x * W[e][:, I:])",
     "docs/specification.md, section 6",
     kAttributes,
     kTensors,
     kRules,
     {},
     "the same bits with int8, and with bf16 in class portable; the other classes add the products "
     "of bf16 in other orders"}};

Result<> check_grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& r) {
    OperatorCheck check(kGroupedMatmulSwigluSpec, r);
    check.attributes();
    for (const char* name : {"x", "weight", "output"}) check.tensor(name);
    check_dtypes(check, r);
    check.tensor("group_list");
    check.require(r.group_list.rank == (r.group_list_type == 2 ? 2 : 1),
                  "group_list must be {} with group_list_type {}",
                  with(r.group_list_type == 2 ? "[?, 2]" : "[E]", r.group_list_type));
    check.tensors();
    AFD_TRY(check.finish());
    check_group_list(check, r);
    return check.finish();
}

}  // namespace afd::ops

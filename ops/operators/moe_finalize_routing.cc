// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/moe_finalize_routing.h"

#include <string>

#include "ops/experts/weighted_sum.h"
#include "ops/record/operator_check.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/row_tasks.h"

namespace afd::ops {
namespace {

constexpr int64_t kModes[] = {2, 3};

constexpr AttributeSpec kAttributes[] = {
    {"drop_pad_mode",
     AttributeKind::kInt,
     "2",
     kModes,
     0,
     0,
     "dropless rows; expert_capacity rows of each expert"},
};

constexpr DTypeSet kFloatTypes{DType::kBf16, DType::kFp16, DType::kFp32};

constexpr TensorSpec kTensors[] = {
    {"expanded_x", TensorRole::kInput, kFloatTypes, "[P, H] | [E, C, H]", "expert rows"},
    {"expanded_row_idx",
     TensorRole::kInput,
     {DType::kInt32},
     "[N*K]",
     "row of each slot, or -1: the slot adds nothing"},
    {"x1", TensorRole::kOptionalInput, kFloatTypes, "[N, H]", "added first"},
    {"x2", TensorRole::kOptionalInput, kFloatTypes, "[N, H]", "added second"},
    {"bias", TensorRole::kOptionalInput, kFloatTypes, "[E, H]", "added to an expert's rows"},
    {"scales", TensorRole::kOptionalInput, kFloatTypes, "[N, K]", "weights; not given: 1"},
    {"expert_idx", TensorRole::kOptionalInput, {DType::kInt32}, "[N, K]", "experts, for bias"},
    {"out", TensorRole::kOutput, kFloatTypes, "[N, H]", "sums"},
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
        const std::string place = "[" + std::to_string(f) + "] is ";
        if (index[f] < -1 || index[f] >= num_rows) {
            return check.require(false,
                                 "expanded_row_idx" + place + std::to_string(index[f]) +
                                     "; allowed are -1 to " + std::to_string(num_rows - 1));
        }
        if (!has_bias || index[f] < 0) continue;
        if (expert[f] < 0 || static_cast<size_t>(expert[f]) >= r.bias.shape[0]) {
            return check.require(false,
                                 "expert_idx" + place + std::to_string(expert[f]) +
                                     "; allowed are 0 to " + std::to_string(r.bias.shape[0] - 1));
        }
    }
}

template <typename T>
class Finalize {
  public:
    explicit Finalize(const MoeFinalizeRoutingRequest& r)
        : r_(r),
          hidden_(r.out.shape[1]),
          top_k_(r.out.shape[0] == 0 ? 0 : r.expanded_row_idx.shape[0] / r.out.shape[0]) {}

    void token(size_t n) const {
        T* out = static_cast<T*>(r_.out.data) + n * hidden_;
        weighted_sum(hidden_, out, [&](WeightedSum<T>& sum) { add_rows(n, sum); });
    }

  private:
    // Row `row` of an optional tensor; null if it is not given.
    static const T* row_of(const ConstTensorView& view, size_t row) {
        if (view.num_elements() == 0) return nullptr;
        return static_cast<const T*>(view.data) + row * view.shape[view.rank - 1];
    }

    float weight(size_t f) const {
        if (r_.scales.num_elements() == 0) return 1.0f;
        return with_float_type(r_.scales.dtype, [&](auto zero) {
            return to_float(static_cast<const decltype(zero)*>(r_.scales.data)[f]);
        });
    }

    void add_rows(size_t n, WeightedSum<T>& sum) const {
        if (const T* x1 = row_of(r_.x1, n)) sum.start(x1);
        if (const T* x2 = row_of(r_.x2, n)) sum.add(x2);
        for (size_t f = n * top_k_; f < (n + 1) * top_k_; ++f) {
            const int32_t index = static_cast<const int32_t*>(r_.expanded_row_idx.data)[f];
            if (index < 0) continue;
            const T* row = row_of(r_.expanded_x, static_cast<size_t>(index));
            if (r_.bias.num_elements() == 0) {
                sum.add(row, weight(f));
            } else {
                const int32_t expert = static_cast<const int32_t*>(r_.expert_idx.data)[f];
                sum.add(row, row_of(r_.bias, static_cast<size_t>(expert)), weight(f));
            }
        }
    }

    const MoeFinalizeRoutingRequest& r_;
    size_t hidden_;
    size_t top_k_;
};

}  // namespace

const OperatorSpec kMoeFinalizeRoutingSpec = {
    "moe_finalize_routing",
    "the weighted sum of each token's expert rows",
    "out[n] = x1[n] + x2[n] + sum over k of scales[n, k] * (row + bias[expert_idx[n, k]]), "
    "row = expanded_x[expanded_row_idx[n*K + k]]",
    "specification, section 6",
    kAttributes,
    kTensors,
    kRules,
    kLifted};

Result<> check_moe_finalize_routing(const MoeFinalizeRoutingRequest& r) {
    OperatorCheck check(kMoeFinalizeRoutingSpec);
    check.attribute("drop_pad_mode", r.drop_pad_mode);
    check.tensor("expanded_x", r.expanded_x);
    check.require(r.expanded_x.rank == (r.drop_pad_mode == 3 ? 3 : 2),
                  std::string("expanded_x must be ") +
                      (r.drop_pad_mode == 3 ? "[E, C, H]" : "[P, H]") + " with drop_pad_mode " +
                      std::to_string(r.drop_pad_mode));
    if (r.scales.num_elements() == 0 && r.expert_idx.num_elements() == 0) {
        const size_t num_tokens = r.out.rank == 2 ? r.out.shape[0] : 0;
        check.bind("K", num_tokens == 0 ? 0 : r.expanded_row_idx.num_elements() / num_tokens);
    }
    check.tensor("x1", r.x1);
    check.tensor("x2", r.x2);
    check.tensor("bias", r.bias);
    check.tensor("scales", r.scales);
    check.tensor("expert_idx", r.expert_idx);
    check.tensor("out", r.out);
    check.tensor("expanded_row_idx", r.expanded_row_idx);
    const bool has_bias = r.bias.num_elements() > 0;
    const bool has_slots = r.expanded_row_idx.num_elements() > 0;
    check.require(!has_bias || !has_slots || r.expert_idx.num_elements() > 0,
                  "bias is given; expert_idx [N, K] is needed");
    const auto same_dtype = [&](const char* name, const ConstTensorView& view) {
        check.require(view.num_elements() == 0 || view.dtype == r.expanded_x.dtype,
                      std::string(name) + " has dtype " + std::string(name_of(view.dtype)) +
                          "; it must be that of expanded_x, " +
                          std::string(name_of(r.expanded_x.dtype)));
    };
    same_dtype("x1", r.x1);
    same_dtype("x2", r.x2);
    same_dtype("bias", r.bias);
    same_dtype("out", r.out);
    AFD_TRY(check.finish());
    check_indices(check, r);
    return check.finish();
}

Result<> moe_finalize_routing(const MoeFinalizeRoutingRequest& request,
                              std::span<std::byte>,
                              Parallel& parallel) {
    AFD_TRY(check_moe_finalize_routing(request));
    const size_t num_tokens = request.out.shape[0];
    if (request.out.num_elements() == 0) return {};
    const size_t elements = request.out.shape[1] * (request.expanded_row_idx.shape[0] / num_tokens);
    with_float_type(request.out.dtype, [&](auto zero) {
        const Finalize<decltype(zero)> finalize(request);
        for_rows(parallel, num_tokens, elements, [&](size_t first, size_t last, unsigned) {
            for (size_t n = first; n < last; ++n) finalize.token(n);
        });
    });
    return {};
}

}  // namespace afd::ops

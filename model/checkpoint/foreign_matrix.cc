// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/foreign_matrix.h"

#include <array>

#include "model/checkpoint/foreign_floats.h"
#include "model/checkpoint/foreign_int4.h"
#include "model/checkpoint/fused_experts.h"
#include "ops/format/weight_format.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

constexpr std::string_view kWeight = ".weight";

// The tensor that has the values.
std::string values_name(const ForeignForm& form, std::string_view weight) {
    switch (form.kind) {
        case ForeignKind::kPackedInt4:
        case ForeignKind::kMxfp4:
            return std::string(weight) + "_packed";
        case ForeignKind::kGptq:
        case ForeignKind::kAwq:
            return foreign_stem(weight) + ".qweight";
        case ForeignKind::kFp8Scaled:
        case ForeignKind::kFusedExperts:
        case ForeignKind::kNone:
            break;
    }
    return std::string(weight);
}

bool is_transposed(const ForeignForm& form) {
    return form.kind == ForeignKind::kGptq || form.kind == ForeignKind::kAwq;
}

}  // namespace

bool is_foreign(const TensorFiles& tensors, const ForeignForm& form, std::string_view weight) {
    if (form.kind == ForeignKind::kNone || !weight.ends_with(kWeight)) return false;
    if (form.kind == ForeignKind::kFusedExperts) return is_fused_expert(tensors, weight);
    const TensorInfo* values = tensors.find(values_name(form, weight));
    if (values == nullptr || values->shape.size() != 2) return false;
    return form.kind != ForeignKind::kFp8Scaled || values->dtype == StorageType::kF8E4M3;
}

std::optional<std::string> foreign_weight_of(const TensorFiles& tensors,
                                             const ForeignForm& form,
                                             const std::string& tensor) {
    if (form.kind == ForeignKind::kFusedExperts) return {};
    for (const std::string_view end : {".weight_packed", ".qweight", ".weight"}) {
        if (!tensor.ends_with(end)) continue;
        const std::string weight =
            tensor.substr(0, tensor.size() - end.size()) + std::string(kWeight);
        if (is_foreign(tensors, form, weight) && values_name(form, weight) == tensor) return weight;
    }
    return {};
}

std::vector<std::string> foreign_tensors(const ForeignForm& form, std::string_view weight) {
    if (form.kind == ForeignKind::kFusedExperts) return fused_expert_tensors(weight);
    const std::string name(weight);
    std::vector<std::string> names = {values_name(form, weight)};
    const std::string begin = is_transposed(form) ? foreign_stem(weight) : name;
    const std::vector<const char*> ends =
        is_transposed(form) ? std::vector<const char*>{".qzeros", ".scales", ".g_idx"}
                            : std::vector<const char*>{"_scale", "_zero_point", "_g_idx", "_shape"};
    for (const char* end : ends) names.push_back(begin + end);
    return names;
}

Result<std::vector<uint64_t>> foreign_shape(const TensorFiles& tensors,
                                            const ForeignForm& form,
                                            std::string_view weight) {
    const std::vector<uint64_t>& stored = tensors.find(values_name(form, weight))->shape;
    const std::string shape_name = std::string(weight) + "_shape";
    switch (form.kind) {
        case ForeignKind::kGptq:
            return std::vector<uint64_t>{stored[1], stored[0] * kNibblesOfWord};
        case ForeignKind::kAwq:
            return std::vector<uint64_t>{stored[1] * kNibblesOfWord, stored[0]};
        case ForeignKind::kMxfp4:
            return std::vector<uint64_t>{stored[0], stored[1] * 2};
        case ForeignKind::kPackedInt4:
            break;
        case ForeignKind::kFp8Scaled:
        case ForeignKind::kFusedExperts:
        case ForeignKind::kNone:
            return stored;
    }
    if (tensors.find(shape_name) == nullptr) {
        return std::vector<uint64_t>{stored[0], stored[1] * kNibblesOfWord};
    }
    const std::array<uint64_t, 1> two = {2};
    AFD_ASSIGN(const auto shape, tensors.read_integers(shape_name, two));
    const bool is_good = shape[0] >= 0 && static_cast<uint64_t>(shape[0]) == stored[0] &&
                         shape[1] >= 0 &&
                         ceil_div(static_cast<uint64_t>(shape[1]), kNibblesOfWord) == stored[1];
    if (is_good) return std::vector<uint64_t>{stored[0], static_cast<uint64_t>(shape[1])};
    return data_loss("tensor {}: is [{}, {}], and {}_packed is {}. Fetch the file again",
                     with(shape_name, shape[0], shape[1], weight, shape_text(stored)));
}

Result<std::vector<Bf16>> read_foreign_rows(const ForeignMatrix& matrix,
                                            uint64_t first,
                                            uint64_t count) {
    AFD_ASSERT(first % ops::kFp8BlockEdge == 0 && first + count <= matrix.num_outputs,
               "rows %zu + %zu",
               static_cast<size_t>(first),
               static_cast<size_t>(count));
    if (matrix.form.kind == ForeignKind::kFp8Scaled) return foreign_fp8_rows(matrix, first, count);
    if (matrix.form.kind == ForeignKind::kFusedExperts) {
        return fused_expert_rows(matrix, first, count);
    }
    if (matrix.form.kind == ForeignKind::kMxfp4) return foreign_mxfp4_rows(matrix, first, count);
    return foreign_int4_rows(matrix, first, count);
}

std::optional<StorageType> foreign_scale_type(const TensorFiles& tensors,
                                              const ForeignForm& form,
                                              std::string_view weight) {
    const TensorInfo* scales = tensors.find(is_transposed(form) ? foreign_stem(weight) + ".scales"
                                                                : std::string(weight) + "_scale");
    if (scales == nullptr) return {};
    return scales->dtype;
}

}  // namespace afd::model

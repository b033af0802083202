// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/foreign_matrices.h"

#include <algorithm>
#include <array>
#include <span>

#include "model/foreign/foreign_floats.h"
#include "model/foreign/foreign_int4.h"
#include "model/foreign/foreign_int8.h"
#include "model/foreign/fused_experts.h"
#include "ops/format/weight_format.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

constexpr std::string_view kWeight = ".weight";

using MatrixShape = std::vector<uint64_t>;

// Where a form has the parts of "X.weight": names behind "X".
struct ForeignLayout {
    ForeignKind kind;
    std::string_view values = kWeight;
    std::string_view scales = {};
    std::span<const std::string_view> others = {};
    MatrixShape (*shape)(const MatrixShape&) = nullptr;  // [N, K], of the shape of the values.
    Result<std::vector<Bf16>> (*rows)(const ForeignMatrix&, uint64_t, uint64_t) = nullptr;
};

constexpr std::array<std::string_view, 3> kCompressed = {
    ".weight_zero_point", ".weight_g_idx", ".weight_shape"};
constexpr std::array<std::string_view, 2> kTransposed = {".qzeros", ".g_idx"};

MatrixShape as_stored(const MatrixShape& stored) {
    return stored;
}
MatrixShape words_along_depth(const MatrixShape& stored) {
    return {stored[0], stored[1] * kNibblesOfWord};
}
MatrixShape gptq_shape(const MatrixShape& stored) {
    return {stored[1], stored[0] * kNibblesOfWord};
}
MatrixShape awq_shape(const MatrixShape& stored) {
    return {stored[1] * kNibblesOfWord, stored[0]};
}
MatrixShape bytes_along_depth(const MatrixShape& stored) {
    return {stored[0], stored[1] * 2};
}

// Fused experts have no tensors of their own; their values are "X.weight" in name only.
constexpr std::array kLayouts = {
    ForeignLayout{ForeignKind::kNone},
    ForeignLayout{ForeignKind::kFp8Scaled,
                  kWeight,
                  ".weight_scale",
                  kCompressed,
                  &as_stored,
                  &foreign_fp8_rows},
    ForeignLayout{ForeignKind::kInt8Rows,
                  kWeight,
                  ".weight_scale",
                  kCompressed,
                  &as_stored,
                  &foreign_int8_rows},
    ForeignLayout{ForeignKind::kPackedInt4,
                  ".weight_packed",
                  ".weight_scale",
                  kCompressed,
                  &words_along_depth,
                  &foreign_int4_rows},
    ForeignLayout{
        ForeignKind::kGptq, ".qweight", ".scales", kTransposed, &gptq_shape, &foreign_int4_rows},
    ForeignLayout{
        ForeignKind::kAwq, ".qweight", ".scales", kTransposed, &awq_shape, &foreign_int4_rows},
    ForeignLayout{ForeignKind::kMxfp4,
                  ".weight_packed",
                  ".weight_scale",
                  kCompressed,
                  &bytes_along_depth,
                  &foreign_mxfp4_rows},
    ForeignLayout{ForeignKind::kFusedExperts, kWeight, {}, {}, nullptr, &fused_expert_rows},
};

const ForeignLayout& layout_of(const ForeignForm& form) {
    const auto layout = std::ranges::find(kLayouts, form.kind, &ForeignLayout::kind);
    AFD_ASSERT(layout != kLayouts.end(), "kind %d", static_cast<int>(form.kind));
    return *layout;
}

std::string part_name(std::string_view weight, std::string_view end) {
    return foreign_stem(weight) + std::string(end);
}

}  // namespace

bool ForeignMatrices::has(std::string_view weight) const {
    if (form_.kind == ForeignKind::kNone || !weight.ends_with(kWeight)) return false;
    if (form_.kind == ForeignKind::kFusedExperts) return is_fused_expert(tensors_, weight);
    const TensorInfo* values = tensors_.find(part_name(weight, layout_of(form_).values));
    if (values == nullptr || values->shape.size() != 2) return false;
    // In these, what is not quantised has tensors of the same names.
    if (form_.kind == ForeignKind::kFp8Scaled) return values->dtype == StorageType::kF8E4M3;
    return form_.kind != ForeignKind::kInt8Rows || values->dtype == StorageType::kI8;
}

std::optional<std::string> ForeignMatrices::weight_of(const std::string& tensor) const {
    const std::string_view end = layout_of(form_).values;
    if (form_.kind == ForeignKind::kFusedExperts || !tensor.ends_with(end)) return {};
    const std::string weight = tensor.substr(0, tensor.size() - end.size()) + std::string(kWeight);
    if (!has(weight)) return {};
    return weight;
}

std::vector<std::string> ForeignMatrices::tensors_of(std::string_view weight) const {
    if (form_.kind == ForeignKind::kNone) return {};
    if (form_.kind == ForeignKind::kFusedExperts) return fused_expert_tensors(weight);
    const ForeignLayout& layout = layout_of(form_);
    std::vector<std::string> names = {part_name(weight, layout.values),
                                      part_name(weight, layout.scales)};
    for (const std::string_view end : layout.others) names.push_back(part_name(weight, end));
    return names;
}

Result<std::vector<uint64_t>> ForeignMatrices::shape_of(std::string_view weight) const {
    const ForeignLayout& layout = layout_of(form_);
    const std::string values = part_name(weight, layout.values);
    const MatrixShape& stored = tensors_.find(values)->shape;
    // Work is cut by sizes of matrices, of which none may be 0.
    if (std::ranges::find(stored, uint64_t{0}) != stored.end()) {
        return data_loss("tensor {}: is {}, a matrix without elements. Fetch the file again",
                         with(values, shape_text(stored)));
    }
    const std::string shape_name = std::string(weight) + "_shape";
    // Where the last word of a row is not full.
    const bool is_stated =
        form_.kind == ForeignKind::kPackedInt4 && tensors_.find(shape_name) != nullptr;
    if (!is_stated) return layout.shape(stored);
    const std::array<uint64_t, 1> two = {2};
    AFD_ASSIGN(const auto shape, tensors_.read_integers(shape_name, two));
    const bool is_good = shape[0] >= 0 && static_cast<uint64_t>(shape[0]) == stored[0] &&
                         shape[1] >= 0 &&
                         ceil_div(static_cast<uint64_t>(shape[1]), kNibblesOfWord) == stored[1];
    if (is_good) return std::vector<uint64_t>{stored[0], static_cast<uint64_t>(shape[1])};
    return data_loss("tensor {}: is [{}, {}], and {}_packed is {}. Fetch the file again",
                     with(shape_name, shape[0], shape[1], weight, shape_text(stored)));
}

std::optional<StorageType> ForeignMatrices::scale_type_of(std::string_view weight) const {
    const TensorInfo* scales = tensors_.find(part_name(weight, layout_of(form_).scales));
    if (scales == nullptr) return {};
    return scales->dtype;
}

Result<std::vector<Bf16>> ForeignMatrices::read_rows(std::string_view weight,
                                                     std::span<const uint64_t> shape,
                                                     uint64_t first,
                                                     uint64_t count) const {
    AFD_ASSERT(shape.size() == 2 && first % ops::kFp8BlockEdge == 0 && first + count <= shape[0],
               "%zu dimensions, rows %zu + %zu",
               shape.size(),
               static_cast<size_t>(first),
               static_cast<size_t>(count));
    return layout_of(form_).rows({tensors_, form_, weight, shape[0], shape[1]}, first, count);
}

}  // namespace afd::model

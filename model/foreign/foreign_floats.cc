// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/foreign_floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "model/foreign/fp8_blocks.h"
#include "ops/tensor/e4m3.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

constexpr std::array<float, 16> kE2m1 = {
    0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// The scales of fp8 rows, one for each 128 elements of each row.
Result<std::vector<float>> fp8_scales(const ForeignMatrix& matrix, uint64_t first, uint64_t count) {
    const std::string name = std::string(matrix.weight) + "_scale";
    const std::vector<uint64_t> shape = {matrix.num_outputs, matrix.depth};
    const TensorInfo* tensor = matrix.tensors.find(name);
    const auto [block_rows, block_columns] = fp8_scale_shape(shape[0], shape[1]);
    std::vector<float> scales(count * block_columns);
    const std::vector<uint64_t> found = tensor == nullptr ? shape : tensor->shape;
    const bool is_block = found == std::vector<uint64_t>{block_rows, block_columns};
    const bool is_channel =
        found == std::vector<uint64_t>{shape[0], 1} || found == std::vector<uint64_t>{shape[0]};
    const bool is_single =
        tensor != nullptr && std::ranges::all_of(found, [](uint64_t n) { return n == 1; });
    if (tensor == nullptr || (!is_block && !is_channel && !is_single)) {
        return unimplemented(
            "tensor {}: {}; supported: a scale for the matrix, for each row or for each block of "
            "128 x 128{}",
            with(name,
                 tensor == nullptr ? std::string("is missing") : shape_text(found),
                 kForeignRemedy));
    }
    AFD_ASSIGN(const auto all, matrix.tensors.read_f32(name, found));
    for (const float scale : all) {
        if (std::isfinite(scale)) continue;
        return data_loss("tensor {}: holds a scale of {:f}. Fetch the file again",
                         with(name, scale));
    }
    for (uint64_t i = 0; i < scales.size(); ++i) {
        const uint64_t row = first + i / block_columns;
        const uint64_t block = row / ops::kFp8BlockEdge * block_columns + i % block_columns;
        scales[i] = all[is_single ? 0 : is_channel ? row : block];
    }
    return scales;
}

}  // namespace

Result<std::vector<Bf16>> foreign_fp8_rows(const ForeignMatrix& matrix,
                                           uint64_t first,
                                           uint64_t count) {
    constexpr std::array kTypes = {StorageType::kF8E4M3};
    const std::array<uint64_t, 2> shape = {matrix.num_outputs, matrix.depth};
    AFD_ASSIGN(const TensorInfo* tensor, matrix.tensors.checked(matrix.weight, shape, kTypes));
    const uint64_t depth = matrix.depth;
    AFD_ASSIGN(const auto values,
               read_block<ops::E4m3>(matrix.tensors, *tensor, {first, count, 0, depth}));
    AFD_ASSIGN(const auto scales, fp8_scales(matrix, first, count));
    const uint64_t blocks = ops::fp8_blocks(depth);
    std::vector<Bf16> out(values.size());
    for (uint64_t i = 0; i < values.size(); ++i) {
        const float scale = scales[i / depth * blocks + i % depth / ops::kFp8BlockEdge];
        if (ops::is_nan(values[i])) {
            return data_loss("tensor {}: element [{}, {}] is no number. Fetch the file again",
                             with(matrix.weight, first + i / depth, i % depth));
        }
        out[i] = ops::from_float(ops::to_float(values[i]) * scale);
    }
    AFD_TRY(check_expanded(matrix.weight, out, depth, first));
    return out;
}

Result<std::vector<Bf16>> foreign_mxfp4_rows(const ForeignMatrix& matrix,
                                             uint64_t first,
                                             uint64_t count) {
    constexpr std::array kTypes = {StorageType::kU8};
    constexpr std::array kScaleTypes = {StorageType::kU8, StorageType::kF8E8M0};
    const uint64_t depth = matrix.depth;
    const uint64_t row_bytes = ceil_div(depth, 2);
    const uint64_t groups = ceil_div(depth, kMxfp4Group);
    const std::string name(matrix.weight);
    const std::array<uint64_t, 2> packed_shape = {matrix.num_outputs, row_bytes};
    const std::array<uint64_t, 2> scale_shape = {matrix.num_outputs, groups};
    AFD_ASSIGN(const TensorInfo* packed,
               matrix.tensors.checked(name + "_packed", packed_shape, kTypes));
    AFD_ASSIGN(const TensorInfo* scales,
               matrix.tensors.checked(name + "_scale", scale_shape, kScaleTypes));
    AFD_ASSIGN(const auto bytes,
               read_block<uint8_t>(matrix.tensors, *packed, {first, count, 0, row_bytes}));
    AFD_ASSIGN(const auto exponents,
               read_block<uint8_t>(matrix.tensors, *scales, {first, count, 0, groups}));
    return mxfp4_values(matrix.weight, bytes, exponents, depth, first);
}

Result<std::vector<Bf16>> mxfp4_values(std::string_view name,
                                       std::span<const uint8_t> bytes,
                                       std::span<const uint8_t> exponents,
                                       uint64_t depth,
                                       uint64_t first) {
    const uint64_t row_bytes = ceil_div(depth, 2);
    const uint64_t groups = ceil_div(depth, kMxfp4Group);
    const std::vector<float> factors = e8m0_values(exponents);
    std::vector<Bf16> out(factors.size() / groups * depth);
    for (uint64_t i = 0; i < out.size(); ++i) {
        const uint64_t n = i / depth;
        const uint64_t k = i % depth;
        const uint8_t byte = bytes[n * row_bytes + k / 2];
        const float value =
            kE2m1[k % 2 == 0 ? byte & 15 : byte >> 4] * factors[n * groups + k / kMxfp4Group];
        out[i] = ops::from_float(value);
    }
    AFD_TRY(check_expanded(name, out, depth, first));
    return out;
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0

#include "model/checkpoint/tensor_store.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "model/checkpoint/tensor_names.h"
#include "model/safetensors/float_types.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

uint64_t elements_of(std::span<const uint64_t> shape) {
    return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

}  // namespace

Result<TensorStore> TensorStore::open(const std::string& directory) {
    AFD_ASSIGN(TensorFiles files, TensorFiles::open(directory));
    for (const NamePrefix& prefix : kWrappedNames) {
        if (files.find(kEmbeddingTensor) != nullptr) break;
        const std::string_view rest =
            std::string_view(kEmbeddingTensor).substr(prefix.plain.size());
        if (files.find(std::string(prefix.stored) + std::string(rest)) != nullptr) {
            AFD_TRY(files.rename(prefix));
        }
    }
    return TensorStore(std::move(files));
}

bool TensorStore::holds(std::string_view name) const {
    return find(name) != nullptr || foreign().has(name);
}

Result<std::vector<float>> TensorStore::read_block_scales(const std::string& weight,
                                                          std::span<const uint64_t> shape) const {
    const std::string name = weight + "_scale_inv";
    const TensorInfo* scale = find(name);
    if (scale == nullptr) {
        return unimplemented(
            "tensor {} is F8_E4M3, and {} {} is missing; supported: a scale for each block of "
            "128 x 128{}",
            with(weight, name, shape_text(shape), kForeignRemedy));
    }
    if (!std::ranges::equal(scale->shape, shape)) {
        return unimplemented(
            "tensor {}: expected shape {}, found {}; supported: a scale for each block of "
            "128 x 128{}",
            with(name, shape_text(shape), shape_text(scale->shape), kForeignRemedy));
    }
    if (scale->dtype != StorageType::kF8E8M0 && scale->dtype != StorageType::kU8) {
        return read_f32(name, shape);
    }
    std::vector<uint8_t> exponents(scale->end - scale->begin);
    AFD_TRY(read_bytes(*scale, 0, std::as_writable_bytes(std::span(exponents))));
    return e8m0_values(exponents);
}

Result<Fp8Blocks> TensorStore::read_fp8_blocks(std::string_view name,
                                               uint64_t num_outputs,
                                               uint64_t depth) const {
    const std::array<uint64_t, 2> shape = {num_outputs, depth};
    return read_fp8_rows(name, shape, 0, num_outputs);
}

Result<Fp8Blocks> TensorStore::read_fp8_rows(std::string_view name,
                                             std::span<const uint64_t> shape,
                                             uint64_t first,
                                             uint64_t count) const {
    AFD_ASSERT(first % ops::kFp8BlockEdge == 0, "row %zu", static_cast<size_t>(first));
    constexpr StorageType kType = StorageType::kF8E4M3;
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, std::span(&kType, 1)));
    const uint64_t depth = shape[1];
    Fp8Blocks blocks{.num_outputs = count, .depth = depth};
    blocks.values.resize(count * depth);
    AFD_TRY(read_bytes(*tensor, first * depth, std::as_writable_bytes(std::span(blocks.values))));
    AFD_ASSIGN(const std::vector<float> scales,
               read_block_scales(std::string(name), fp8_scale_shape(shape[0], depth)));
    // They are few, and the same for every part of the matrix that asks.
    const auto [num_rows, per_row] = fp8_scale_shape(count, depth);
    const auto begin =
        scales.begin() + static_cast<std::ptrdiff_t>(first / ops::kFp8BlockEdge * per_row);
    blocks.scale.assign(begin, begin + static_cast<std::ptrdiff_t>(num_rows * per_row));
    AFD_TRY(blocks.check(std::string(name), first));
    return blocks;
}

Result<std::vector<ops::Bf16>> TensorStore::read_bf16(std::string_view name,
                                                      std::span<const uint64_t> shape) const {
    if (shape.size() == 2) return read_bf16_rows(name, shape, 0, shape[0]);
    return read_bf16_slice(name, shape, 0, shape.empty() ? 1 : shape[0]);
}

Result<std::vector<ops::Bf16>> TensorStore::read_bf16_slice(std::string_view name,
                                                            std::span<const uint64_t> shape,
                                                            uint64_t first,
                                                            uint64_t count) const {
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, kFloatTypes));
    // Only the slice is read and converted: a fused tensor of all experts would take twice its
    // size.
    const uint64_t entry = elements_of(shape.empty() ? shape : shape.subspan(1));
    return read_rounded(*tensor, first * entry, count * entry);
}

Result<std::vector<ops::Bf16>> TensorStore::read_bf16_rows(std::string_view name,
                                                           std::span<const uint64_t> shape,
                                                           uint64_t first,
                                                           uint64_t count) const {
    AFD_ASSERT(shape.size() >= 2, "%zu dimensions", shape.size());
    const TensorInfo* tensor = find(name);
    const bool is_fp8 = tensor != nullptr && tensor->dtype == StorageType::kF8E4M3;
    if (shape.size() != 2 || (!is_fp8 && !foreign().has(name))) {
        AFD_ASSIGN(tensor, checked(name, shape, kFloatTypes));
        return read_rounded(*tensor, first * shape.back(), count * shape.back());
    }
    // Scales and words may cover several rows.
    const uint64_t before = first % ops::kFp8BlockEdge;
    AFD_ASSIGN(auto rows, read_quantised_rows(name, shape, first - before, before + count));
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(before * shape[1]));
    return rows;
}

Result<std::vector<ops::Bf16>> TensorStore::read_quantised_rows(std::string_view name,
                                                                std::span<const uint64_t> shape,
                                                                uint64_t first,
                                                                uint64_t count) const {
    if (foreign().has(name)) return foreign().read_rows(name, shape, first, count);
    AFD_ASSIGN(const Fp8Blocks blocks, read_fp8_rows(name, shape, first, count));
    return blocks.to_bf16();
}

Result<std::vector<ops::Bf16>> TensorStore::read_rounded(const TensorInfo& tensor,
                                                         uint64_t offset,
                                                         uint64_t count) const {
    return with_float_type(tensor.dtype, [&](auto zero) -> Result<std::vector<ops::Bf16>> {
        auto stored = huge_vector<decltype(zero)>(count);
        AFD_TRY(
            read_bytes(tensor, offset * sizeof zero, std::as_writable_bytes(std::span(stored))));
        if constexpr (std::is_same_v<decltype(zero), ops::Bf16>) return stored;
        std::vector<ops::Bf16> values(stored.size());
        std::ranges::transform(stored, values.begin(), [](auto value) {
            return ops::from_float(ops::to_float(value));
        });
        return values;
    });
}

}  // namespace afd::model

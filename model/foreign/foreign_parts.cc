// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/foreign_parts.h"

#include <algorithm>
#include <cmath>

#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"
#include "proto/failure.h"

namespace afd::model {

std::string foreign_stem(std::string_view weight) {
    constexpr std::string_view kWeight = ".weight";
    return std::string(weight.substr(0, weight.size() - kWeight.size()));
}

Result<std::vector<uint32_t>> read_words(const TensorFiles& tensors,
                                         const std::string& name,
                                         const std::array<uint64_t, 2>& shape,
                                         const Block& block) {
    constexpr std::array kTypes = {StorageType::kI32, StorageType::kU32};
    AFD_ASSIGN(const TensorInfo* tensor, tensors.checked(name, shape, kTypes));
    return read_block<uint32_t>(tensors, *tensor, block);
}

Result<std::vector<float>> read_scales(const TensorFiles& tensors,
                                       const std::string& name,
                                       std::span<const uint64_t> shape,
                                       const Block& block) {
    constexpr std::array kTypes = {StorageType::kBf16, StorageType::kF16, StorageType::kF32};
    AFD_ASSIGN(const TensorInfo* tensor, tensors.checked(name, shape, kTypes));
    std::vector<float> scales;
    const auto widened = [&](auto zero) -> Result<> {
        AFD_ASSIGN(const auto stored, read_block<decltype(zero)>(tensors, *tensor, block));
        for (const auto value : stored) scales.push_back(ops::to_float(value));
        return {};
    };
    if (tensor->dtype == StorageType::kBf16) AFD_TRY(widened(ops::Bf16{}));
    if (tensor->dtype == StorageType::kF16) AFD_TRY(widened(ops::Fp16{}));
    if (tensor->dtype == StorageType::kF32) {
        AFD_ASSIGN(scales, read_block<float>(tensors, *tensor, block));
    }
    const auto bad = std::ranges::find_if(scales, [](float s) { return !std::isfinite(s); });
    if (bad == scales.end()) return scales;
    return data_loss("tensor {}: holds a scale of {:f}. Fetch the file again", with(name, *bad));
}

Result<> check_expanded(std::string_view weight,
                        std::span<const ops::Bf16> values,
                        uint64_t depth,
                        uint64_t first) {
    constexpr uint16_t kExponent = 0x7f80;
    // A look of its own, by the bits: within the loop that expands it would cost more.
    const auto bad = std::ranges::find_if(
        values, [](ops::Bf16 value) { return (value.bits & kExponent) == kExponent; });
    if (bad == values.end()) return {};
    const auto at = static_cast<uint64_t>(bad - values.begin());
    return data_loss("tensor {}: element [{}, {}] is {:f}. Fetch the file again",
                     with(weight, first + at / depth, at % depth, ops::to_float(*bad)));
}

}  // namespace afd::model

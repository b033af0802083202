// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResidualType: what the residual stream is kept in (model/attention/residual.h). A choice of who
// serves, not of the checkpoint.

#include <cstdint>
#include <string_view>

namespace afd::model {

enum class ResidualType : uint8_t { kBf16 = 0, kFp32 = 1 };

// What a model is served with if nobody says otherwise.
inline constexpr ResidualType kServingResidual = ResidualType::kFp32;

constexpr std::string_view name_of(ResidualType type) {
    return type == ResidualType::kFp32 ? "fp32" : "bf16";
}

}  // namespace afd::model

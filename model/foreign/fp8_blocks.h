// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fp8Blocks: a weight matrix [N, K] as DeepSeek-V3 and its descendants are released: e4m3 values
// with one scale for each block of 128 x 128, the last ones of both directions shorter.
//
//   NAME             F8_E4M3 [N, K]
//   NAME_scale_inv   [ceil(N / 128), ceil(K / 128)] F32; BF16 or F16, widened exactly; F8_E8M0 or
//                    U8: 2^(byte - 127) ("ue8m0")
//   W[n, k] = value[n, k] · scale[n / 128, k / 128]; in spite of its name the scale multiplies.
//
// Read by model/checkpoint/tensor_store.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/format/weight_format.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/e4m3.h"
#include "proto/status.h"

namespace afd::model {

// Blocks of a matrix [num_outputs, depth] in each direction.
std::array<uint64_t, 2> fp8_scale_shape(uint64_t num_outputs, uint64_t depth);

// 2^(byte - 127) of each; 255 is no number.
std::vector<float> e8m0_values(std::span<const uint8_t> bytes);

struct Fp8Blocks {
    uint64_t num_outputs = 0;
    uint64_t depth = 0;
    std::vector<ops::E4m3> values = {};  // [N, K]
    std::vector<float> scale = {};       // fp8_scale_shape(N, K)

    // (value · scale, rounded to fp32) →bf16.
    std::vector<ops::Bf16> to_bf16() const;

    // Errors: kDataLoss for a value that is no number, and for a scale that is not finite, is
    // negative or makes of 448 no finite bf16; they name the tensor and where, if this is what it
    // has from `first_row` on.
    Result<> check(const std::string& name, uint64_t first_row = 0) const;
};

}  // namespace afd::model

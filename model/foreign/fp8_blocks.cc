// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/fp8_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "proto/failure.h"

namespace afd::model {
namespace {

// Whether a block may have this scale. Zero is that of a block of zeros. By one that is so large
// the largest value of e4m3 is no bf16; the block may have smaller ones alone, but writers scale
// blocks to their largest, so that it is nonsense all the same, and to look at each product would
// cost time.
bool is_scale(float scale) {
    constexpr float kE4m3Max = 448;
    return scale >= 0 && std::isfinite(ops::to_float(ops::from_float(scale * kE4m3Max)));
}

}  // namespace

std::array<uint64_t, 2> fp8_scale_shape(uint64_t num_outputs, uint64_t depth) {
    return {ops::fp8_blocks(num_outputs), ops::fp8_blocks(depth)};
}

std::vector<float> e8m0_values(std::span<const uint8_t> bytes) {
    std::vector<float> values(bytes.size());
    std::ranges::transform(bytes, values.begin(), [](uint8_t byte) {
        // 0 is 2^-127, a subnormal of fp32.
        return byte == 255 ? std::numeric_limits<float>::quiet_NaN()
                           : std::ldexp(1.0f, int{byte} - 127);
    });
    return values;
}

std::vector<ops::Bf16> Fp8Blocks::to_bf16() const {
    std::vector<ops::Bf16> out(values.size());
    const uint64_t per_row = ops::fp8_blocks(depth);
    for (uint64_t n = 0; n < num_outputs; ++n) {
        for (uint64_t block = 0; block < per_row; ++block) {
            const float factor = scale[n / ops::kFp8BlockEdge * per_row + block];
            const uint64_t last = std::min((block + 1) * ops::kFp8BlockEdge, depth);
            for (uint64_t k = block * ops::kFp8BlockEdge; k < last; ++k) {
                const uint64_t at = n * depth + k;
                out[at] = ops::from_float(ops::to_float(values[at]) * factor);
            }
        }
    }
    return out;
}

Result<> Fp8Blocks::check(const std::string& name, uint64_t first_row) const {
    // Not its address: it is always inlined, which needs an optimiser then.
    const auto bad =
        std::ranges::find_if(values, [](ops::E4m3 value) { return ops::is_nan(value); });
    if (bad != values.end()) {
        const auto at = static_cast<uint64_t>(bad - values.begin());
        return data_loss("tensor {}: element [{}, {}] is no number. Fetch the file again",
                         with(name, first_row + at / depth, at % depth));
    }
    for (size_t i = 0; i < scale.size(); ++i) {
        if (is_scale(scale[i])) continue;
        return data_loss(
            "tensor {}_scale_inv: the scale of block [{}, {}] is {:f}; a finite number of at least "
            "0 is needed, and 448 times as much as a finite bf16. Fetch the file again",
            with(name,
                 first_row / ops::kFp8BlockEdge + i / ops::fp8_blocks(depth),
                 i % ops::fp8_blocks(depth),
                 scale[i]));
    }
    return {};
}

}  // namespace afd::model

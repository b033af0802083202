// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/matrix_quantiser.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "ops/linear/quantise.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

constexpr float kInt4Max = 7.0f;

Result<> check_finite(ops::Rows<const Bf16> weight, size_t first_row) {
    for (size_t n = 0; n < weight.num_rows; ++n) {
        for (size_t k = 0; k < weight.num_cols; ++k) {
            const float value = ops::to_float(weight.row(n)[k]);
            if (std::isfinite(value)) continue;
            return data_loss("element [{}, {}] is {:f}, which cannot be quantised",
                             with(first_row + n, k, value));
        }
    }
    return {};
}

void quantise_int8(ops::Rows<const Bf16> weight, StoredMatrix& out) {
    out.int8.resize(out.num_outputs * out.depth);
    out.int8_scale.resize(out.num_outputs);
    for (size_t n = 0; n < out.num_outputs; ++n) {
        out.int8_scale[n] = ops::quantise_row(
            ops::DType::kBf16, weight.row(n), nullptr, out.depth, &out.int8[n * out.depth]);
    }
}

// The smallest number of five significant bits that is not below `value`: q has three bits, so that
// q · scale is a bf16 as it stands, which the kernels are fastest with; and no q is clipped.
float short_scale(float value) {
    constexpr uint32_t kStep = uint32_t{1} << 19;
    return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + kStep - 1) & ~(kStep - 1));
}

// The smallest fp16 that is not below `value`. REQUIRES: value is finite and at least 0.
ops::Fp16 fp16_not_below(float value) {
    const ops::Fp16 nearest = ops::fp16_from_float(value);
    // Rounded up in any case: below it the largest value of a group would need a q of 8.
    const bool is_below = ops::to_float(nearest) < value;
    return {static_cast<uint16_t>(nearest.bits + (is_below ? 1 : 0))};
}

// The bits of the scale of a group whose largest magnitude is `largest`.
uint16_t scale_bits(float largest, ops::WeightFormat format) {
    // From the largest magnitude. A search for the scale with the least squared error gave a worse
    // perplexity on the demo model.
    const float scale = largest / kInt4Max;
    return ops::has_fp16_scales(format) ? fp16_not_below(scale).bits
                                        : ops::from_float(short_scale(scale)).bits;
}

float largest_of(const Bf16* values, size_t count) {
    float largest = 0;
    for (size_t k = 0; k < count; ++k) {
        largest = std::max(largest, std::abs(ops::to_float(values[k])));
    }
    return largest;
}

// One group; nibble k goes to bit 4 · (k % 2) of byte k / 2. Groups begin at even k.
void quantise_group(const Bf16* values, size_t count, float scale, uint8_t* bytes) {
    // A group of zeros has scale 0, and its q are zeros already.
    for (size_t k = 0; k < count && scale > 0; ++k) {
        const float q = std::nearbyint(ops::to_float(values[k]) / scale);
        const unsigned nibble = static_cast<unsigned>(static_cast<int>(q)) & 0xfu;
        bytes[k / 2] = static_cast<uint8_t>(bytes[k / 2] | nibble << (k % 2 * 4));
    }
}

Result<> quantise_int4(ops::Rows<const Bf16> weight, size_t first_row, StoredMatrix& out) {
    const size_t group = ops::int4_group_size(out.format);
    const size_t num_groups = int4_scale_columns(out.depth, out.format);
    const size_t row_bytes = (out.depth + 1) / 2;
    out.int4.resize(out.num_outputs * row_bytes);
    out.int4_scale.resize(out.num_outputs * num_groups);
    for (size_t n = 0; n < out.num_outputs; ++n) {
        for (size_t g = 0; g < num_groups; ++g) {
            const Bf16* values = weight.row(n) + g * group;
            const size_t count = std::min(group, out.depth - g * group);
            const float largest = largest_of(values, count);
            const uint16_t bits = scale_bits(largest, out.format);
            const float scale = ops::int4_scale(out.format, bits);
            if (std::isinf(scale)) {
                return data_loss(
                    "row {} has {:f} in a group, whose scale is beyond fp16 (65504); use bf16 "
                    "scales",
                    with(first_row + n, largest));
            }
            out.int4_scale[n * num_groups + g] = bits;
            quantise_group(values, count, scale, &out.int4[n * row_bytes + g * group / 2]);
        }
    }
    return {};
}

}  // namespace

Result<StoredMatrix> quantise_matrix(ops::Rows<const Bf16> weight,
                                     ops::WeightFormat format,
                                     size_t first_row) {
    AFD_ASSERT(format == ops::WeightFormat::kInt8 || ops::is_int4(format),
               "nothing quantises to %s",
               std::string(ops::name_of(format)).c_str());
    AFD_TRY(check_finite(weight, first_row));
    StoredMatrix out{.format = format, .num_outputs = weight.num_rows, .depth = weight.num_cols};
    if (format == ops::WeightFormat::kInt8) {
        quantise_int8(weight, out);
    } else {
        AFD_TRY(quantise_int4(weight, first_row, out));
    }
    return out;
}

}  // namespace afd::model

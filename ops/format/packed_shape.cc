// SPDX-License-Identifier: Apache-2.0

#include "ops/format/packed_shape.h"

#include "ops/tensor/round_up.h"

namespace afd::ops {

size_t PackedShape::num_panels() const {
    // Both halves of a gate-up panel are padded on their own.
    return is_gate_up ? div_up(num_outputs / 2, kPanelColumns / 2)
                      : div_up(num_outputs, kPanelColumns);
}

size_t PackedShape::panel_bytes() const {
    switch (format) {
        case WeightFormat::kBf16: {
            const size_t interleave = bf16_interleave(numeric_class);
            // An odd depth is padded to a whole pair: vdpbf16ps takes two weights of a column at a
            // time.
            return round_up(depth, interleave) * kPanelColumns * sizeof(uint16_t);
        }
        case WeightFormat::kInt8:
            return int8_values_bytes(depth) + kPanelColumns * sizeof(float);
        case WeightFormat::kFp8Block128:
            return fp8_values_bytes(depth) + fp8_scales_bytes(depth);
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            break;
    }
    const Int4Groups groups = int4_groups(format);
    const size_t rest = depth % groups.size;
    return groups.offset(depth) + (rest == 0 ? 0 : groups.bytes(rest));
}

}  // namespace afd::ops

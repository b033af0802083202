// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedShape: what a packed weight matrix is, and from that where its bytes stand.
//
// A packed matrix is an array of panels of kPanelColumns outputs each, the last one padded with
// zero weights; a gate-up matrix has 16 gate columns and the 16 up columns that they meet in each
// panel. One panel, panel_bytes() long, little-endian:
//   bf16   [ceil(K / i)][32][i] bf16, with i = bf16_interleave(class): 1 or 2
//   int8   [ceil(K / 4)][32][4] of q + 128, uint8 | scale [32] fp32
//   int4   for every group: scale [32], bf16 or fp16 as the format says
//          | of formats with zero points: zero [32], bf16
//          | [ceil(group / 8)][32][2] words of 16 bits.
//          Nibble j of word [i][c][p] is q of element k = 8·i + 2·j + p of the group, in two's
//          complement; beyond K the zero point at the end of a pair, and then 0.
//   mxfp4  as int4 in groups of 32, the scales bf16, nibbles e2m1
//   fp8    [ceil(K / 4)][32][4] of e4m3, 0 beyond K | for every block of 128 elements two scales,
//          fp32: that of the first 16 columns and that of the others | zeros up to 64 bytes.
//          Blocks are as high as eight halves of a panel, so half a panel never has two scales.
// All layouts but that of bf16 are the same in every numeric class.

#include <cstddef>
#include <cstdint>

#include "ops/format/numeric_class.h"
#include "ops/format/weight_format.h"

namespace afd::ops {

// Outputs of one panel.
inline constexpr size_t kPanelColumns = 32;

// Raised whenever the bytes of a packed matrix change their meaning.
inline constexpr uint32_t kPackedLayoutRevision = 3;

// Packed matrices begin at multiples of this many bytes; so does every panel.
inline constexpr size_t kPackedAlignment = 64;

struct PackedShape {
    size_t num_outputs = 0;  // 2 · intermediate of a gate-up matrix
    size_t depth = 0;
    WeightFormat format = WeightFormat::kBf16;
    NumericClass numeric_class = NumericClass::kPortable;
    bool is_gate_up = false;

    friend bool operator==(const PackedShape&, const PackedShape&) = default;

    size_t num_panels() const;
    size_t panel_bytes() const;
    size_t size_bytes() const { return num_panels() * panel_bytes(); }
};

// Bytes before the scales of an int8 panel.
constexpr size_t int8_values_bytes(size_t depth) {
    return (depth + 3) / 4 * 4 * kPanelColumns;
}

// Eight elements of depth of an int4 panel; its scales for a group, or its zero points.
inline constexpr size_t kInt4StepBytes = 8 * kPanelColumns / 2;
inline constexpr size_t kInt4ScaleBytes = kPanelColumns * sizeof(uint16_t);

// How the groups of an int4 or mxfp4 panel lie.
struct Int4Groups {
    size_t size = 0;  // Elements of depth: 32 or 64
    bool has_fp16_scales = false;
    bool has_zeros = false;

    // Before the words of a group.
    constexpr size_t head_bytes() const { return (has_zeros ? 2 : 1) * kInt4ScaleBytes; }
    // Of one with `count` elements, the last one alone having fewer than `size`.
    constexpr size_t bytes(size_t count) const {
        return head_bytes() + (count + 7) / 8 * kInt4StepBytes;
    }
    // Where the group of element k, a multiple of `size`, begins in a panel.
    constexpr size_t offset(size_t k) const { return k / size * bytes(size); }
};

// REQUIRES: has_nibbles(format).
constexpr Int4Groups int4_groups(WeightFormat format) {
    return {int4_group_size(format), has_fp16_scales(format), has_zero_points(format)};
}

// Bytes before the scales of an fp8 panel, and of the scales.
constexpr size_t fp8_values_bytes(size_t depth) {
    return (depth + 3) / 4 * 4 * kPanelColumns;
}
constexpr size_t fp8_scales_bytes(size_t depth) {
    const size_t bytes = fp8_blocks(depth) * 2 * sizeof(float);
    return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

}  // namespace afd::ops

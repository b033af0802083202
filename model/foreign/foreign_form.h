// SPDX-License-Identifier: Apache-2.0
#pragma once

// ForeignForm: in which form another program has quantised a checkpoint's matrices, as its
// config.json says (model/family/foreign_keys.h). Which matrices these are the tensors say; the
// others are as they are without. X.weight [N, K], G groups along K, words of 32 bits of eight
// 4-bit numbers, the first in the lowest bits:
//
//   kFp8Scaled     compressed-tensors, float-quantized: X.weight F8_E4M3 [N, K], X.weight_scale
//                  [N, 1], [N], [1] or one for each block of 128 x 128.  W = value · scale
//   kInt8Rows      compressed-tensors, int-quantized: X.weight I8 [N, K], X.weight_scale [N, 1] or
//                  [N]; rows that meet it are quantised as they come.  W = value · scale
//   kPackedInt4    compressed-tensors, pack-quantized: X.weight_packed [N, K / 8] words along K,
//                  q + 8; X.weight_scale [N, G]; X.weight_zero_point [N / 8, G] words along N,
//                  zero + 8, or none; X.weight_g_idx [K], or none.  W = (q - zero) · scale
//   kGptq          X.qweight [K / 8, N] words along K; X.qzeros [G, N / 8] words along N; X.scales
//                  [G, N]; X.g_idx [K], or none.  W = (q - zero) · scale
//   kAwq           X.qweight [K, N / 8] and X.qzeros [G, N / 8], words along N, whose nibbles are
//                  columns 0, 2, 4, 6, 1, 3, 5, 7; X.scales [G, N].  W = (q - zero) · scale
//   kMxfp4         compressed-tensors, mxfp4-pack-quantized: X.weight_packed U8 [N, K / 2] of e2m1,
//                  even k in the low nibble; X.weight_scale U8 [N, K / 32].
//                  W = value · 2^(scale - 127)
//   kFusedExperts  gpt-oss: the experts alone, all of a layer in one tensor (fused_experts.h)
// A product is taken in fp32 and rounded to bf16 once; those of kMxfp4 are bf16 values.

#include <cstdint>

namespace afd::model {

// Ends the message about a form of another program that is not read, behind what is supported: what
// the user can do next.
inline constexpr const char* kForeignRemedy =
    "; for another one run afd-quantize on the original model or convert this one to bf16";

enum class ForeignKind : uint8_t {
    kNone,
    kFp8Scaled,
    kInt8Rows,
    kPackedInt4,
    kGptq,
    kAwq,
    kMxfp4,
    kFusedExperts
};

struct ForeignForm {
    ForeignKind kind = ForeignKind::kNone;
    uint32_t group = 0;               // Elements along K that share a scale; 0: all of them.
    bool is_symmetric = false;        // int4 without zero points other than the middle.
    bool is_in_order = false;         // int4 whose groups are of neighbours along K.
    bool has_zeros_less_one = false;  // kGptq: one less of each in a word of qzeros, with borrows.

    bool is_int4() const {
        return kind == ForeignKind::kPackedInt4 || kind == ForeignKind::kGptq ||
               kind == ForeignKind::kAwq;
    }
    friend bool operator==(const ForeignForm&, const ForeignForm&) = default;
};

}  // namespace afd::model

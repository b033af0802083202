// SPDX-License-Identifier: Apache-2.0
#pragma once

// The experts of gpt-oss: all of a layer in one tensor, gate and up interleaved (output 2i of the
// fused matrix is output i of the gate, 2i + 1 of up), with biases. P is "model.layers.3.mlp.
// experts", E experts, I wide, inputs H:
//
//   P.gate_up_proj_blocks  U8 [E, 2 I, H / 32, 16]  of e2m1, the even input in the low nibble
//   P.gate_up_proj_scales  U8 [E, 2 I, H / 32]      value · 2^(scale - 127), a bf16 exactly
//   P.down_proj_blocks     U8 [E, H, I / 32, 16],   P.down_proj_scales U8 [E, H, I / 32]
//   P.gate_up_proj_bias    [E, 2 I],                P.down_proj_bias [E, H]
// or, where somebody has expanded them, with inputs in rows and outputs in columns:
//   P.gate_up_proj         BF16 [E, H, 2 I],        P.down_proj BF16 [E, I, H]
//
// To the rest of the program they are matrices "P.7.gate_proj.weight" [I, H], "P.7.up_proj.weight"
// and "P.7.down_proj.weight" [H, I] in the form ForeignKind::kFusedExperts, which afd-quantize
// writes as such. The biases stay fused there (read_expert_biases() of expert_tensors.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/foreign/foreign_parts.h"
#include "model/safetensors/tensor_files.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// Whether the store holds "X.weight" as part of a fused tensor.
bool is_fused_expert(const TensorFiles& tensors, std::string_view weight);

// The fused tensors that may hold it; none if its name is no expert's.
std::vector<std::string> fused_expert_tensors(std::string_view weight);

// Whether it does so in mxfp4.
bool is_fused_mxfp4(const TensorFiles& tensors, std::string_view weight);

// Rows [first, first + count) of the matrix. REQUIRES: is_fused_expert().
// Errors: those of TensorFiles; kDataLoss for an element that is no number.
Result<std::vector<ops::Bf16>> fused_expert_rows(const ForeignMatrix& matrix,
                                                 uint64_t first,
                                                 uint64_t count);

// The same as they are stored. REQUIRES: is_fused_mxfp4(). Errors: those of TensorFiles.
struct Mxfp4Rows {
    std::vector<uint8_t> bytes;      // [count, ceil(K / 2)]
    std::vector<uint8_t> exponents;  // [count, ceil(K / 32)]
};
Result<Mxfp4Rows> fused_mxfp4_rows(const ForeignMatrix& matrix, uint64_t first, uint64_t count);

}  // namespace afd::model

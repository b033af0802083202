// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which format experts have in memory where another program has quantised some of the matrices.
// There are two answers, one for routed experts and one for shared ones with dense MLPs: released
// models have the former in int4 and the latter, which are few, in bf16. Where the form is int8,
// there is a third one for the attention.

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "model/json/key_reader.h"

namespace afd::model {

// What quantization_config says itself: `ignore` and `targets` of compressed-tensors, exceptions in
// `dynamic` of GPTQ and AWQ, `modules_to_not_convert` of AWQ. All there is to go by before the
// weights are there. `is_part`: of a larger model, whose lists may have the names of kWrappedNames.
// REQUIRES: the family has read `config`.
void foretell_expert_formats(const KeyReader& keys, bool is_part, ModelConfig& config);

// What the tensors say, whatever was foretold. Routed experts stay in int4 if each of their
// matrices is, with scales of one type in 16 bits, in int8 if each is, and those of gpt-oss in
// mxfp4 if each is; otherwise all of them are expanded to bf16. Shared experts and dense MLPs are
// in the format of routed ones, int4, int8 or fp8 in blocks, if each of their matrices is,
// otherwise in bf16. The attention is in int8 if each of AttentionConfig::matrices() is, otherwise
// in bf16.
void settle_expert_formats(const TensorStore& tensors, ModelConfig& config);

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes a checkpoint with quantised weights (model/checkpoint/stored_matrix.h has the tensors'
// names and types), next to what a checkpoint needs besides: config.json with a
// quantization_config, the tokenizer and the generation defaults.
//
//   experts    gate, up and down projections of routed experts, shared experts and dense layers
//   attention  latent: q_proj, or q_a_proj and q_b_proj; kv_a_proj_with_mqa; o_proj. Not kv_b_proj:
//              it is used absorbed, and then one half of it is summed along its output channels,
//              where a scale for each cannot be taken out of the sum.
//              With grouped heads: q_proj, k_proj, v_proj and o_proj.
// A source in fp8 (model/checkpoint/fp8_blocks.h) is read as bf16; what is not quantised is copied,
// as it is. Embedding, head, router and norms stay as they are: a few per cent of the bytes, and
// the most sensitive to rounding.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd {

struct QuantiseResult {
    model::QuantisationConfig formats;  // As written: experts that were in fp8 may have stayed.
    uint64_t bytes_before = 0;          // Of all tensors.
    uint64_t bytes_after = 0;
};

// The largest magnitude of each channel of what goes into a layer's MLPs, [layers][hidden].
using ChannelRanges = std::vector<std::vector<float>>;

// A shard of the result is closed at this size.
inline constexpr uint64_t kShardBytes = uint64_t{4} << 30;

// `out_directory` is created; config.json is written last, so an unfinished result does not load.
// `progress` is called with the number of layers done. `ranges` are for wanted.smooth.
// Errors: kInvalidArgument (the model is quantised already), kAlreadyExists (out_directory is not
// empty), those of reading (naming the tensor) and of writing.
Result<QuantiseResult> quantise_checkpoint(const model::ModelFiles& files,
                                           const model::QuantisationConfig& wanted,
                                           const std::string& out_directory,
                                           ops::Parallel& parallel,
                                           const std::function<void(uint32_t)>& progress,
                                           uint64_t shard_bytes = kShardBytes,
                                           const ChannelRanges& ranges = {});

}  // namespace afd

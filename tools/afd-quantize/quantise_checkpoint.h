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
// A source in fp8 (model/foreign/fp8_blocks.h) is read as bf16; what is not quantised is copied,
// as it is. Embedding, head, router and norms stay as they are: a few per cent of the bytes, and
// the most sensitive to rounding.
//
// Memory: some rows of a matrix a thread, whatever the size of the model.

#include <cstdint>
#include <functional>
#include <string>

#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"
#include "tools/afd-quantize/companion_files.h"
#include "tools/afd-quantize/quantise_plan.h"
#include "tools/afd-quantize/result_directory.h"
#include "tools/afd-quantize/smooth_columns.h"

namespace afd::tools {

struct QuantiseResult {
    model::QuantisationConfig formats;  // As written: experts that were in fp8 may have stayed.
    uint64_t bytes_before = 0;          // Of all tensors.
    uint64_t bytes_after = 0;
};

// What decides about the bytes of a result, in a line: the job of its ResultDirectory.
// `smooth_text`: the hash of the text that wanted.smooth takes its ranges from.
std::string describe_job(const model::ModelFiles& files,
                         const model::QuantisationConfig& wanted,
                         const std::string& smooth_text,
                         uint64_t shard_bytes = kShardBytes);

struct QuantiseLimits {
    uint64_t shard_bytes = kShardBytes;
    // Source bytes between two looks at the disk: what an interruption costs at most.
    uint64_t batch_bytes = uint64_t{512} << 20;
};

// Goes on where an interrupted run of the same job ended; the result has the same bytes as without
// an interruption. `companions` are written first and config.json last, so an unfinished result
// does not load. What is to be done with the result comes before ResultDirectory::finish(), so that
// it can be gone on with, too. `progress` is called with the bytes of the source that are done, now
// and then. `ranges` are for wanted.smooth. Errors: those of QuantisePlan::make(), of reading
// (naming the tensor) and of writing.
Result<QuantiseResult> quantise_checkpoint(const model::ModelFiles& files,
                                           const model::QuantisationConfig& wanted,
                                           const CompanionFiles& companions,
                                           ResultDirectory& directory,
                                           ops::Parallel& parallel,
                                           const std::function<void(uint64_t)>& progress,
                                           const QuantiseLimits& limits = {},
                                           const ChannelRanges& ranges = {});

}  // namespace afd::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The factors of kv_dtype = int8_channel: for each channel of a layer's latents and rotated keys
// 127 by the largest magnitude that it has on a text; 1 for a channel that is always zero. What is
// larger on another text is cut off.

#include <functional>
#include <string>

#include "model/safetensors/whole_file.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"
#include "tools/afd-quantize/text_sample.h"

namespace afd::tools {

// Measures them with a bf16 cache and writes `file` (model::kKvScalesFile of the model's directory,
// or elsewhere). Rows that memory need not hold go into files in `scratch`.
// Errors: those of measure_perplexity() and write_safetensors(); kUnimplemented for a model whose
// attention has no latents.
Result<> write_kv_scales(const std::string& model_directory,
                         const TextSample& text,
                         model::WholeFile file,
                         const std::string& scratch,
                         ops::Parallel& parallel,
                         const std::function<void(double)>& progress);

}  // namespace afd::tools

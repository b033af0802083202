// SPDX-License-Identifier: Apache-2.0
#pragma once

// One expert of a checkpoint, packed into memory of its own. Many of them, through the weight
// cache: model/decoder/expert_weights.h.

#include <cstdint>

#include "model/family/model_files.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/format/numeric_class.h"
#include "proto/status.h"

namespace afd::model {

// `expert`: logical. Errors: those of read_expert_tensors().
Result<ops::PackedExpert> load_expert(const ModelFiles& files,
                                      uint32_t layer,
                                      uint32_t expert,
                                      ops::NumericClass numeric_class);

}  // namespace afd::model

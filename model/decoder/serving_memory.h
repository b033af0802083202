// SPDX-License-Identifier: Apache-2.0
#pragma once

// What serving a checkpoint takes of memory, from config.json and the headers alone: weights that
// are stored in a form that nothing multiplies count as what they become.

#include <cstdint>

#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"

namespace afd::model {

// One expert, packed in expert_format().
uint64_t packed_expert_bytes(const ModelConfig& config,
                             uint32_t layer,
                             uint32_t expert,
                             ops::NumericClass numeric_class);

struct ServingMemory {
    uint64_t experts = 0;    // Of all FFN workers together, packed.
    uint64_t attention = 0;  // Of each attention worker: embedding, attention, routers, head.
    uint64_t routers = 0;    // Of that, at most; with router = ffn attention workers may lack them.
    uint64_t kv_bytes_per_token = 0;
    // Of these, in layers with a window beside others without one, and how many tokens a sequence
    // holds there at most.
    uint64_t kv_windowed_bytes_per_token = 0;
    uint64_t kv_windowed_tokens = 0;
};

// With the weights in `formats`.
ServingMemory serving_memory(const ModelFiles& files, const QuantisationConfig& formats);

}  // namespace afd::model

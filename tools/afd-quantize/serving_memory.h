// SPDX-License-Identifier: Apache-2.0
#pragma once

// What serving a checkpoint takes, from config.json and the headers alone.

#include <cstdint>

#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"

namespace afd {

// One expert, packed in model::expert_format().
uint64_t packed_expert_bytes(const model::ModelConfig& config,
                             uint32_t layer,
                             uint32_t expert,
                             ops::NumericClass numeric_class);

struct ServingMemory {
    uint64_t experts = 0;    // Of all FFN workers together, packed.
    uint64_t attention = 0;  // Of each attention worker: embedding, attention, routers, head.
    uint64_t kv_bytes_per_token = 0;
    // Of these, in layers with a window beside others without one, and how many tokens a sequence
    // holds there at most.
    uint64_t kv_windowed_bytes_per_token = 0;
    uint64_t kv_windowed_tokens = 0;
};

// With the weights in `formats`.
ServingMemory serving_memory(const model::ModelFiles& files,
                             const model::QuantisationConfig& formats);

}  // namespace afd

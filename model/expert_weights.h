// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loads expert MLPs into an ops::ExpertTable: exactly those that a list names, so that an FFN
// worker holds its shard and nothing else. Which rank holds what is schedule/expert_placement.h;
// here a slot is just (layer, logical expert) -> key.
//
// Logical experts of an MoE layer: 0 ... num_experts-1 routed, num_experts the shared experts (one
// MLP of their joint width). Of a dense layer: 0, its MLP.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model_files.h"
#include "ops/grouped_ffn.h"
#include "ops/numeric_class.h"
#include "ops/parallel.h"
#include "proto/status.h"

namespace afd::model {

struct ExpertSlot {
    uint32_t layer = 0;
    uint32_t expert = 0;  // Logical.
    size_t key = 0;       // Distinct; below num_keys.
};

// Reads checkpoints with one tensor set per expert (experts.<e>.gate_proj.weight ...) and with
// fused ones (experts.gate_up_proj, experts.down_proj). Loads run as tasks of `parallel`.
// Errors: those of TensorStore; kInvalidArgument for a slot that the configuration does not have.
Result<ops::ExpertTable> load_experts(const ModelFiles& files,
                                      std::span<const ExpertSlot> slots,
                                      size_t num_keys,
                                      ops::NumericClass numeric_class,
                                      ops::Parallel& parallel);

// Slots of all experts of all layers, key = layer * experts_per_layer(config) + logical expert:
// what the colocated mode and the tools load.
std::vector<ExpertSlot> all_expert_slots(const ModelConfig& config);

// num_experts and the shared slot.
inline size_t experts_per_layer(const ModelConfig& config) {
    return size_t{config.num_experts} + config.num_shared_slots();
}

}  // namespace afd::model

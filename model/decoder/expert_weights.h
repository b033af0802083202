// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loads expert MLPs into an ops::ExpertTable: exactly those that a list names, so that an FFN
// worker holds its shard and nothing else. Which rank holds what is
// schedule/dispatch/expert_placement.h; here a slot is just (layer, logical expert) -> key.
//
// With a weight cache the packed experts are mapped from it, and packed into it first where they
// are missing (model/decoder/expert_cache.h). Several processes that start at once share that work:
// each takes the next layer that nobody packs yet. Whatever goes wrong with the cache costs one
// warning and private memory, never the load. What is mapped has not been read when the load is
// over (model/decoder/mapped_experts.h), unless a file was found damaged in use: then all of it is
// checked first, so that other damage does not end one process after the other.
//
// Logical experts of an MoE layer: 0 ... num_experts-1 routed, num_experts the shared experts (one
// MLP of their joint width). Of a dense layer: 0, its MLP.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/decoder/mapped_experts.h"
#include "model/family/model_files.h"
#include "model/weight_cache/weight_cache.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::model {

struct ExpertSlot {
    uint32_t layer = 0;
    uint32_t expert = 0;  // Logical.
    size_t key = 0;       // Distinct; below num_keys.
};

struct LoadedExperts {
    // What the table's views show; destroyed after it. Null: every expert is in private memory.
    std::unique_ptr<MappedExperts> mapped;
    ops::ExpertTable table;
    WeightCacheReport report;
};

// How long to wait for another process that packs a layer, counted anew whenever it is seen to get
// on; then the layer is packed into private memory. Only a stopped process is ever waited for so
// long (a dead one has no lock), and one whose disk takes that long to flush a layer.
inline constexpr uint64_t kWeightCacheWaitMs = 120'000;

// Reads checkpoints with one tensor set per expert (experts.<e>.gate_proj.weight ...) and with
// fused ones (experts.gate_up_proj, experts.down_proj). Loads run as tasks of `parallel`.
// Errors: those of read_matrix(); kInvalidArgument for a slot that the configuration does not have.
Result<LoadedExperts> load_experts(const ModelFiles& files,
                                   std::span<const ExpertSlot> slots,
                                   size_t num_keys,
                                   ops::NumericClass numeric_class,
                                   ops::Parallel& parallel,
                                   const WeightCache& cache = {},
                                   uint64_t wait_ms = kWeightCacheWaitMs);

// Slots of all experts of all layers, key = layer * experts_per_layer(config) + logical expert:
// what the colocated mode and the tools load.
std::vector<ExpertSlot> all_expert_slots(const ModelConfig& config);

// num_experts and the shared slot.
inline size_t experts_per_layer(const ModelConfig& config) {
    return size_t{config.num_experts} + config.num_shared_slots();
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of the fused-MoE framework by name: what tools list, what the feature matrix and the
// tests' matrix are generated from.
//
// A registry is a list that its user holds; nothing registers itself. A new Experts part is one
// file with its record, and one line in experts_parts() (docs/fused_moe.md says how).

#include <memory>
#include <span>
#include <string_view>

#include "ops/experts/grouped_ffn.h"
#include "ops/fused_moe/experts.h"
#include "ops/fused_moe/prepare_finalize.h"
#include "ops/reference/expert_ffn.h"

namespace afd::ops {

// What an Experts part is made from; a part takes what it needs. Key = layer · experts_per_layer +
// local id. Everything outlives the part.
struct ExpertsSetup {
    const ExpertTable* table = nullptr;
    // The same weights for ops/reference; int4 ones dequantised.
    std::span<const reference::ExpertWeights> weights = {};
    size_t experts_per_layer = 0;
    size_t hidden = 0;
};

struct ExpertsEntry {
    const ExpertsCapability* capability = nullptr;
    std::unique_ptr<Experts> (*make)(const ExpertsSetup& setup) = nullptr;
};

struct PrepareFinalizeEntry {
    const PrepareFinalizeCapability* capability = nullptr;
    // Null: the part needs a transport, and daemon/ makes it.
    std::unique_ptr<PrepareFinalize> (*make)(const FusedMoeConfig& config,
                                             Parallel& parallel) = nullptr;
    // Bytes that such a part reserves. Null: they are in windows or segments.
    Capacity (*memory)(const FusedMoeConfig& config, unsigned num_threads) = nullptr;
    // Bytes of these (between_processes.h). Null: there are none.
    Result<Capacity> (*shared_memory)(const FusedMoeConfig& config, size_t block_tokens) = nullptr;
};

// The record of an instance for the configuration: a batched part is given the room it needs.
PrepareFinalizeCapability record_for(const PrepareFinalizeCapability& record,
                                     const FusedMoeConfig& config);

std::span<const PrepareFinalizeEntry> prepare_finalize_parts();
std::span<const ExpertsEntry> experts_parts();

// Errors: kNotFound: the names that there are.
Result<const PrepareFinalizeEntry*> find_prepare_finalize(std::string_view name);
Result<const ExpertsEntry*> find_experts(std::string_view name);

// The first reason why the two do not serve the configuration together. A remote PrepareFinalize
// is judged with the part as its other side runs it; a batched one is given the room that the
// configuration needs.
Result<> check_composition(const PrepareFinalizeEntry& prepare_finalize,
                           const ExpertsEntry& experts,
                           const FusedMoeConfig& config);

}  // namespace afd::ops

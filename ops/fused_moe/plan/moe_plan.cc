// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/plan/moe_plan.h"

#include <algorithm>
#include <string>

#include "ops/format/numeric_class.h"
#include "ops/format/packed_shape.h"
#include "ops/format/weight_format.h"
#include "ops/fused_moe/driver_memory.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

Result<MoeMemory> memory_of(const MoePair& pair,
                            const MoeLimits& limits,
                            const FusedMoeConfig& config,
                            const Experts& experts,
                            const Experts* shared) {
    AFD_TRY(check_composition(*pair.prepare_finalize, *pair.experts, config));
    const PrepareFinalizeCapability record = record_for(*pair.prepare_finalize->capability, config);
    MoeMemory memory;
    if (pair.prepare_finalize->memory != nullptr) {
        memory.dispatch = pair.prepare_finalize->memory(config, limits.num_threads);
    }
    memory.driver = driver_memory(record, experts, config, shared).total();
    if (!memory.total().overflowed()) return memory;
    return invalid_argument("the bytes of {} with max_num_tokens {} are more than can be counted",
                            with(record.name, config.max_num_tokens));
}

// A format of that quantisation; workspaces are the same for all of them.
WeightFormat format_of(ExpertQuantisation quantisation) {
    switch (quantisation) {
        case ExpertQuantisation::kNone:
            return WeightFormat::kBf16;
        case ExpertQuantisation::kInt8:
            return WeightFormat::kInt8;
        case ExpertQuantisation::kInt4:
            return WeightFormat::kInt4Group32;
        case ExpertQuantisation::kFp8:
            return WeightFormat::kFp8Block128;
    }
    return WeightFormat::kBf16;
}

size_t experts_of_rank(const FusedMoeConfig& config) {
    return (config.num_experts + config.num_ranks - 1) / config.num_ranks;
}

Capacity bytes_of(const PackedShape& shape) {
    return Capacity(shape.num_panels()) * shape.panel_bytes();
}

Result<> check_range(const char* name, size_t value) {
    if (value >= 1 && value <= INT32_MAX) return {};
    return invalid_argument("{} is {}; allowed are 1 ... {}", with(name, value, INT32_MAX));
}

}  // namespace

Result<> check(const MoeLimits& limits) {
    const FusedMoeConfig& config = limits.config;
    AFD_TRY(check(config));
    AFD_TRY(check_range("intermediate", limits.intermediate));
    AFD_TRY(check_range("num_layers", limits.num_layers));
    // The experts say their workspaces in plain bytes, which this keeps from wrapping.
    const size_t num_slots = config.top_k + config.num_shared;
    const Capacity bytes =
        Capacity(config.max_num_tokens) * num_slots * limits.intermediate * sizeof(Bf16);
    if (bytes <= Capacity(kRowBytesMax)) return {};
    return invalid_argument(
        "the rows of max_num_tokens {}, intermediate {} and {} slots take {} bytes; allowed are {}",
        with(config.max_num_tokens, limits.intermediate, num_slots, bytes.text(), kRowBytesMax));
}

Capacity rank_weight_bytes(const MoeLimits& limits) {
    const WeightFormat format = format_of(limits.config.quantisation);
    const NumericClass numeric_class = best_numeric_class();
    const bool has_gate = is_gated(limits.config.activation);
    const PackedShape up{.num_outputs = (has_gate ? 2 : 1) * limits.intermediate,
                         .depth = limits.config.hidden,
                         .format = format,
                         .numeric_class = numeric_class,
                         .is_gate_up = has_gate};
    const PackedShape down{.num_outputs = limits.config.hidden,
                           .depth = limits.intermediate,
                           .format = format,
                           .numeric_class = numeric_class};
    // Those of a shared stage are in the process that sends.
    const size_t num_shared = limits.config.has_shared_stage ? 0 : limits.config.num_shared;
    return (bytes_of(up) + bytes_of(down)) * (experts_of_rank(limits.config) + num_shared) *
           limits.num_layers;
}

Result<MoePlan> plan_moe(const MoePair& pair, const MoeLimits& limits) {
    const FusedMoeConfig& config = limits.config;
    AFD_TRY(check(limits));
    AFD_TRY(check_composition(*pair.prepare_finalize, *pair.experts, config));
    const size_t per_layer = config.num_experts + config.num_shared;
    // Sizes without weights: the planner runs where the model would not fit.
    const ExpertTable table =
        ExpertTable::of_sizes({.num_keys = limits.num_layers * per_layer,
                               .hidden = config.hidden,
                               .intermediate = limits.intermediate,
                               .format = format_of(pair.quantisation),
                               .int4_rows = limits.int4_rows,
                               .activation = config.activation,
                               .has_bias = config.bias == ExpertBias::kPresent});
    const auto local = pair.experts->make(
        {.table = &table, .experts_per_layer = per_layer, .hidden = config.hidden});
    const RemoteExperts remote(*pair.experts->capability);
    const Experts& experts =
        pair.prepare_finalize->capability->is_remote ? static_cast<const Experts&>(remote) : *local;
    const GroupedExperts stage(table, per_layer);
    const Experts* shared = config.has_shared_stage ? &stage : nullptr;

    FusedMoeConfig whole = config;
    whole.row_fraction = 1.0;
    MoePlan plan;
    AFD_ASSIGN(plan.worst_case, memory_of(pair, limits, whole, experts, shared));
    AFD_ASSIGN(plan.bounded, memory_of(pair, limits, config, experts, shared));
    if (pair.prepare_finalize->shared_memory != nullptr) {
        AFD_ASSIGN(plan.shared_memory,
                   pair.prepare_finalize->shared_memory(config, limits.block_tokens));
        if (plan.shared_memory.overflowed()) {
            return invalid_argument(
                "the shared memory of {} with max_num_tokens {} is more than can be counted",
                with(pair.prepare_finalize->capability->name, config.max_num_tokens));
        }
    }
    const Capacity tokens(config.max_num_tokens);
    const bool is_batched =
        pair.prepare_finalize->capability->activation_format == ActivationFormat::kBatched;
    // Repeated ids are ordinary input: only where an expert gets a token's row once do the rank's
    // experts bound the rows of a token, elsewhere each slot is one.
    const size_t routed_rows =
        is_batched ? std::min(config.top_k, experts_of_rank(config)) : config.top_k;
    const size_t num_shared = config.has_shared_stage ? 0 : config.num_shared;
    plan.rank_rows_max = tokens * (routed_rows + num_shared);
    plan.rank_rows_mean =
        Capacity(((tokens * config.top_k).value() + config.num_ranks - 1) / config.num_ranks) +
        tokens * num_shared;
    return plan;
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/plan/registry.h"

#include <string>

#include "ops/fused_moe/parts/batched_experts.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_batched_prepare_finalize.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "ops/fused_moe/parts/reference_experts.h"
#include "ops/fused_moe/parts/two_phase_prepare_finalize.h"
#include "ops/fused_moe/plan/between_processes.h"
#include "ops/fused_moe/plan/remote_capabilities.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

template <typename Part>
std::unique_ptr<PrepareFinalize> make_local(const FusedMoeConfig& config, Parallel& parallel) {
    return std::make_unique<Part>(config, parallel);
}

std::unique_ptr<PrepareFinalize> make_two_phase(const FusedMoeConfig& config, Parallel& parallel) {
    return std::make_unique<TwoPhasePrepareFinalize>(config, config.num_ranks, parallel);
}

template <typename Part>
Capacity local_memory(const FusedMoeConfig& config, unsigned) {
    return Part::memory(config).total(record_for(Part::kCapability, config), config);
}

Capacity two_phase_memory(const FusedMoeConfig& config, unsigned num_threads) {
    return TwoPhasePrepareFinalize::memory(config, config.num_ranks, num_threads)
        .total(TwoPhasePrepareFinalize::kCapability, config);
}

template <bool ranks_route>
Result<Capacity> windows_of(const FusedMoeConfig& config, size_t /*block_tokens*/) {
    return window_bytes(config, ranks_route);
}

template <typename Part>
std::unique_ptr<Experts> make_packed(const ExpertsSetup& setup) {
    return std::make_unique<Part>(*setup.table, setup.experts_per_layer);
}

std::unique_ptr<Experts> make_reference(const ExpertsSetup& setup) {
    return std::make_unique<ReferenceExperts>(setup.weights, setup.experts_per_layer, setup.hidden);
}

constexpr PrepareFinalizeEntry kPrepareFinalizeParts[] = {
    {&LocalPrepareFinalize::kCapability,
     make_local<LocalPrepareFinalize>,
     local_memory<LocalPrepareFinalize>},
    {&LocalBatchedPrepareFinalize::kCapability,
     make_local<LocalBatchedPrepareFinalize>,
     local_memory<LocalBatchedPrepareFinalize>},
    {&TwoPhasePrepareFinalize::kCapability, make_two_phase, two_phase_memory},
    // Parts between processes are made by the daemon; here they are judged by their records only.
    {&kAfdWindowCapability, nullptr, nullptr, windows_of<false>},
    {&kAfdWindowFfnRouterCapability, nullptr, nullptr, windows_of<true>},
    {&kAfdTwoPhaseCapability, nullptr, nullptr, two_phase_bytes},
};

constexpr ExpertsEntry kExpertsParts[] = {
    {&ReferenceExperts::kCapability, make_reference},
    {&kGroupedBf16, make_packed<GroupedExperts>},
    {&kGroupedInt8, make_packed<GroupedExperts>},
    {&kGroupedInt4, make_packed<GroupedExperts>},
    {&kGroupedFp8, make_packed<GroupedExperts>},
    {&BatchedExperts::kCapability, make_packed<BatchedExperts>},
};

template <typename Entry>
Result<const Entry*> find(std::string_view kind,
                          std::string_view name,
                          std::span<const Entry> entries) {
    std::string names;
    for (const Entry& entry : entries) {
        if (entry.capability->name == name) return &entry;
        names += (names.empty() ? "" : ", ") + std::string(entry.capability->name);
    }
    return not_found("no {} part is called {}; there are {}", with(kind, name, names));
}

}  // namespace

PrepareFinalizeCapability record_for(const PrepareFinalizeCapability& record,
                                     const FusedMoeConfig& config) {
    PrepareFinalizeCapability instance = record;
    // Only the batched format has a bound for each source; it is the configuration's, so no
    // constant record can hold it.
    if (instance.activation_format == ActivationFormat::kBatched) {
        instance.max_num_tokens_per_rank = RankCapacity(config.max_num_tokens);
    }
    return instance;
}

std::span<const PrepareFinalizeEntry> prepare_finalize_parts() {
    return kPrepareFinalizeParts;
}

std::span<const ExpertsEntry> experts_parts() {
    return kExpertsParts;
}

Result<const PrepareFinalizeEntry*> find_prepare_finalize(std::string_view name) {
    return find("PrepareFinalize", name, prepare_finalize_parts());
}

Result<const ExpertsEntry*> find_experts(std::string_view name) {
    return find("Experts", name, experts_parts());
}

Result<> check_composition(const PrepareFinalizeEntry& prepare_finalize,
                           const ExpertsEntry& experts,
                           const FusedMoeConfig& config) {
    const PrepareFinalizeCapability dispatch = record_for(*prepare_finalize.capability, config);
    ExpertsCapability part = *experts.capability;
    // The same experts run here or elsewhere; which of the two is the dispatching part's to say.
    part.is_remote = dispatch.is_remote;
    return check_composition(dispatch, part, config);
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/reference_experts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "proto/failure.h"

namespace afd::ops {
namespace {

reference::Matrix run(const reference::ExpertWeights& weights, const ActivationRows& x) {
    if (!x.is_int8()) {
        return reference::expert_ffn(reference::widen(x.bf16), weights, reference::Rounding::kBf16);
    }
    return reference::expert_ffn(
        {x.int8.values.data, x.int8.values.num_cols}, x.int8.row_scale[0], weights);
}

}  // namespace

ReferenceExperts::ReferenceExperts(std::span<const reference::ExpertWeights> weights,
                                   size_t experts_per_layer,
                                   size_t hidden)
    : weights_(weights), experts_per_layer_(experts_per_layer), hidden_(hidden) {
    for (const reference::ExpertWeights& expert : weights) {
        if (expert.gate.empty()) continue;
        // The first expert speaks for all: keys that this process does not hold are empty.
        capability_ = narrowed(kCapability, expert.activation, !expert.gate_bias.empty());
        break;
    }
}

WorkspaceShapes ReferenceExperts::workspace_shapes(const ActivationSizes& sizes) const {
    switch (sizes.format) {
        case ActivationFormat::kStandard:
            return {.output_rows = sizes.num_rows * sizes.num_slots};
        case ActivationFormat::kBatched:
            return {.output_rows = sizes.num_rows * experts_per_layer_};
        case ActivationFormat::kGrouped:
            return {.output_rows = sizes.num_rows};
    }
    return {};
}

Result<> ReferenceExperts::run_row(size_t key, const ActivationRows& x, Bf16* out) const {
    if (key >= weights_.size() || weights_[key].gate.empty()) {
        return invalid_argument("key {} has no expert; there are {} keys, {} of each layer",
                                with(key, weights_.size(), experts_per_layer_));
    }
    const std::vector<Bf16> row = reference::narrow(run(weights_[key], x));
    std::copy_n(row.data(), hidden_, out);
    return {};
}

Result<> ReferenceExperts::apply(const StandardActivations& standard, Rows<Bf16> output) const {
    // One row at a time, whatever the format: what a row becomes cannot depend on the rows beside
    // it.
    for (size_t i = 0; i < standard.x.num_rows() * standard.num_slots; ++i) {
        const auto id = static_cast<int32_t>(standard.local_ids[i]);
        if (state_of(standard.local_ids[i]) != AssignmentState::kValid) continue;
        if (static_cast<size_t>(id) >= experts_per_layer_) {
            return invalid_argument("local expert id is {}; a layer has {}",
                                    with(id, experts_per_layer_));
        }
        const size_t key = standard.layer_id * experts_per_layer_ + static_cast<size_t>(id);
        AFD_TRY(run_row(key, standard.x.slice(i / standard.num_slots, 1), output.row(i)));
    }
    return {};
}

Result<> ReferenceExperts::apply(const BatchedActivations& batched, Rows<Bf16> output) const {
    for (size_t expert = 0; expert < batched.num_local_experts; ++expert) {
        const size_t count = batched.num_tokens_of(expert).value();
        for (size_t i = 0; i < count; ++i) {
            const size_t row = batched.row_of(expert, i);
            AFD_TRY(run_row(batched.layer_id * experts_per_layer_ + expert,
                            batched.x.slice(row, 1),
                            output.row(row)));
        }
    }
    return {};
}

Result<> ReferenceExperts::apply(const GroupedActivations& grouped, Rows<Bf16> output) const {
    size_t row = 0;
    for (const auto& [key, count] : grouped.groups) {
        for (int64_t i = 0; i < count; ++i, ++row) {
            AFD_TRY(run_row(static_cast<size_t>(key), grouped.x.slice(row, 1), output.row(row)));
        }
    }
    return {};
}

Result<> ReferenceExperts::apply(const Activations& activations,
                                 Rows<Bf16> output,
                                 const ExpertsResources&) {
    if (const auto* standard = std::get_if<StandardActivations>(&activations)) {
        return apply(*standard, output);
    }
    if (const auto* batched = std::get_if<BatchedActivations>(&activations)) {
        return apply(*batched, output);
    }
    return apply(std::get<GroupedActivations>(activations), output);
}

}  // namespace afd::ops

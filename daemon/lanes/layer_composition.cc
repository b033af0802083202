// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/layer_composition.h"

#include "ops/fused_moe/parts/grouped_experts.h"

namespace afd::daemon {
namespace {

// int8 rows with smooth scales are a row for each expert; in one process it is the experts that
// quantise them, to the same bits.
schedule::RowDtype local_dispatch_dtype(const WorkerSetup& setup) {
    const bool is_smooth = setup.files.config().quantisation.smooth;
    return setup.is_colocated && is_smooth && setup.dispatch_dtype == schedule::RowDtype::kInt8
               ? schedule::RowDtype::kBf16
               : setup.dispatch_dtype;
}

}  // namespace

const ops::ExpertsCapability& experts_record(const model::ModelConfig& model) {
    return ops::grouped_record(ops::quantisation_of(model.quantisation.experts));
}

ops::FusedMoeConfig moe_config(const WorkerSetup& setup) {
    const model::ModelConfig& model = setup.files.config();
    const schedule::Geometry& geometry = setup.layout.geometry;
    return {.hidden = model.hidden,
            .num_experts = model.num_experts,
            .top_k = model.top_k,
            .num_shared = model.num_shared_slots(),
            // The framework's bounds are those of the windows, so that no call can be refused for
            // its size.
            .max_num_tokens = geometry.micro_batch_size,
            .num_micro_batches = geometry.num_micro_batches,
            .has_shared_stage = setup.has_shared_stage(),
            .activation = model.activation,
            .bias = model.has_expert_bias ? ops::ExpertBias::kPresent : ops::ExpertBias::kAbsent,
            .quantisation = ops::quantisation_of(model.quantisation.experts),
            .dispatch_dtype = local_dispatch_dtype(setup),
            .needs_routing = setup.router == schedule::RouterPlacement::kFfn};
}

}  // namespace afd::daemon

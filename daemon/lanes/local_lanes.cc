// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/local_lanes.h"

#include "daemon/lanes/layer_composition.h"
#include "daemon/lanes/moe_lane.h"

namespace afd::daemon {

LocalLanes::LocalLanes(const LaneSources& sources, WorkerExperts experts)
    : held_(std::move(experts)),
      prepare_finalize_(moe_config(sources.setup), sources.parallel),
      experts_(held_.loaded.table, model::experts_per_layer(sources.setup.files.config())) {}

Result<std::unique_ptr<ExpertLanes>> LocalLanes::make(const LaneSources& sources) {
    const WorkerSetup& setup = sources.setup;
    const model::ModelConfig& config = setup.files.config();
    AFD_ASSIGN(WorkerExperts experts,
               load_worker_experts(setup,
                                   sources.welcome,
                                   model::all_expert_slots(config),
                                   config.num_layers * model::experts_per_layer(config),
                                   sources.parallel,
                                   sources.attachment.own().heartbeat()));
    // Composed behind its construction: the framework keeps pointers to the parts, which must not
    // move.
    std::unique_ptr<LocalLanes> made(new LocalLanes(sources, std::move(experts)));
    AFD_ASSIGN(made->moe_,
               ops::FusedMoe::compose(
                   made->prepare_finalize_, made->experts_, moe_config(setup), sources.parallel));
    const schedule::Geometry& geometry = setup.layout.geometry;
    for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
        made->lanes_.push_back(std::make_unique<MoeLane>(
            LaneTraits{.rows = LaneRows::kAny, .rows_max = geometry.micro_batch_size},
            *made->moe_,
            m));
    }
    return std::unique_ptr<ExpertLanes>(std::move(made));
}

}  // namespace afd::daemon

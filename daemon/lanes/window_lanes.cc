// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/window_lanes.h"

#include "daemon/config/instance_geometry.h"
#include "daemon/lanes/layer_composition.h"

namespace afd::daemon {
namespace {

// The shared experts of every MoE layer, key = layer.
std::vector<model::ExpertSlot> shared_expert_slots(const model::ModelConfig& config) {
    std::vector<model::ExpertSlot> slots;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        if (config.is_moe_layer(layer)) slots.push_back({layer, config.num_experts, layer});
    }
    return slots;
}

}  // namespace

WindowLanes::WindowLanes(const LaneSources& sources)
    : lost_ranks_(sources.setup.placement, sources.setup.router),
      windows_(*sources.attachment.transport,
               sources.setup.layout.geometry,
               sources.setup.placement,
               sources.attachment.transport->session(),
               sources.setup.router,
               sources.setup.dispatch_dtype),
      experts_(experts_record(sources.setup.files.config())) {
    windows_.avoid(lost_ranks_);
    windows_.set_metrics(sources.setup.metrics());
    if (sources.welcome.dispatch_sync()) windows_.set_mode(schedule::DispatchMode::kSync);
    if (rows_have_rest(sources.setup.files.config(), sources.setup.router)) windows_.send_rest();
    if (sources.setup.row_checksums) windows_.use_checksums();
}

Result<std::unique_ptr<ExpertLanes>> WindowLanes::make(const LaneSources& sources) {
    std::unique_ptr<WindowLanes> made(new WindowLanes(sources));
    AFD_TRY(made->load_smooth_scales(sources));
    AFD_TRY(made->load_shared_stage(sources));
    AFD_TRY(made->compose(sources));
    return std::unique_ptr<ExpertLanes>(std::move(made));
}

Result<> WindowLanes::load_smooth_scales(const LaneSources& sources) {
    const WorkerSetup& setup = sources.setup;
    if (setup.dispatch_dtype != schedule::RowDtype::kInt8 ||
        !setup.files.config().quantisation.smooth) {
        return {};
    }
    AFD_ASSIGN(smooth_, model::SmoothScales::load(setup.files));
    windows_.set_smooth(*smooth_);
    return {};
}

Result<> WindowLanes::load_shared_stage(const LaneSources& sources) {
    if (!sources.setup.has_shared_stage()) return {};
    const model::ModelConfig& config = sources.setup.files.config();
    AFD_ASSIGN(shared_,
               load_worker_experts(sources.setup,
                                   sources.welcome,
                                   shared_expert_slots(config),
                                   config.num_layers,
                                   sources.parallel,
                                   sources.attachment.own().heartbeat()));
    shared_stage_.emplace(shared_->loaded.table, 1);
    return {};
}

Result<> WindowLanes::compose(const LaneSources& sources) {
    ops::Experts* const shared_stage = shared_stage_ ? &*shared_stage_ : nullptr;
    AFD_ASSIGN(moe_,
               ops::FusedMoe::compose(
                   windows_, experts_, moe_config(sources.setup), sources.parallel, shared_stage));
    const schedule::Geometry& geometry = sources.setup.layout.geometry;
    for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
        lanes_.push_back(std::make_unique<WindowLane>(
            WindowLane::Parts{&*moe_,
                              &windows_,
                              sources.attachment.transport.get(),
                              &lost_ranks_,
                              sources.setup.router == schedule::RouterPlacement::kFfn},
            m,
            geometry.micro_batch_size));
    }
    // 0: every prompt goes through the windows (dispatch = window).
    if (sources.welcome.prefill_tokens_max() == 0) return {};
    AFD_ASSIGN(
        two_phase_,
        TwoPhaseParts::make(sources, lost_ranks_, smooth_ ? &*smooth_ : nullptr, shared_stage));
    // Last: rounds and traces number it behind those of the windows.
    lanes_.push_back(two_phase_->make_lane());
    return {};
}

}  // namespace afd::daemon

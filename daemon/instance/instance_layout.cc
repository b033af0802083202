// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_layout.h"

#include "daemon/config/instance_geometry.h"
#include "daemon/gateway/request/random_seed.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/instance/expert_plan.h"
#include "daemon/instance/window_memory.h"
#include "daemon/placement/placement_source.h"
#include "daemon/placement/placement_table.h"
#include "daemon/program/logging.h"
#include "daemon/worker/vocabulary_file.h"
#include "schedule/dispatch/lost_ranks.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::daemon {

Result<> InstanceLayout::plan() {
    const std::vector<uint32_t> allowed = allowed_cpus();
    const double quota = cpu_quota();
    AFD_ASSIGN(cpus_,
               setup_.cores().plan(allowed, [this, quota](const std::vector<uint32_t>& cores) {
                   return hosts_.plan_local_cpus(config_, cores, quota);
               }));
    // Anew for each layout, so that a worker of an afdd that died cannot attach to the next one's
    // segments, nor one that a resize has ended to those of its successors.
    instance_id_ = draw_random();
    AFD_ASSIGN(const schedule::RowDtype dispatch_dtype,
               choose_dispatch_dtype(config_.dispatch_dtype, setup_.model().config()));
    identity_ = make_identity(
        instance_id_, setup_.model(), setup_.numeric_class(), config_.router, dispatch_dtype);
    segment_prefix_ = schedule::segment_prefix(config_.instance, instance_id_);
    return {};
}

Result<> InstanceLayout::place_experts() {
    rank_experts_.resize(config_.num_ffn_workers());
    if (rank_experts_.empty()) return {};
    const model::ModelConfig& model = setup_.model().config();
    AFD_ASSIGN(scheduler_name_, check_scheduler(config_));
    AFD_ASSIGN(placement_, plan_experts(config_, model));
    // What each rank holds of any MoE layer: a placement may differ from layer to layer.
    for (uint32_t rank = 0; rank < config_.num_ffn_workers(); ++rank) {
        for (const schedule::HeldExpert& held : placement_->held_experts(rank)) {
            if (model.is_moe_layer(held.layer_id)) rank_experts_[rank].insert(held.expert);
        }
    }
    return {};
}

Result<schedule::WindowLayout> InstanceLayout::window_layout() const {
    AFD_ASSIGN(const schedule::Geometry geometry,
               make_geometry(setup_.model().config(),
                             instance_geometry(config_, cpus_, identity_.row_dtype)));
    return schedule::WindowLayout::compute(geometry);
}

MemorySources InstanceLayout::memory_sources(const schedule::WindowLayout& layout) const {
    return {.model = setup_.model().config(),
            .files = &setup_.model(),
            .numeric_class = setup_.numeric_class(),
            .placement = placement_ ? &*placement_ : nullptr,
            .layout = layout};
}

Result<InstanceMemory> InstanceLayout::memory() const {
    AFD_ASSIGN(const schedule::WindowLayout layout, window_layout());
    return memory_here(config_, memory_sources(layout));
}

Result<InstanceMemory> InstanceLayout::memory_on(const std::string& host,
                                                 bool has_weight_cache) const {
    AFD_ASSIGN(const schedule::WindowLayout layout, window_layout());
    return daemon::memory_on(host, has_weight_cache, config_, memory_sources(layout));
}

Result<> InstanceLayout::create_segments() {
    const model::ModelConfig& model = setup_.model().config();
    AFD_ASSIGN(const schedule::WindowLayout layout, window_layout());
    const schedule::Geometry& geometry = layout.geometry;
    AFD_TRY(check_window_messages(config_, layout));
    const schedule::Windows windows = windows_of(config_.transport);
    AFD_ASSIGN(schedule::InstanceSegments segments,
               schedule::InstanceSegments::create(segment_prefix_, layout, identity_, windows));
    segments_ = std::make_unique<schedule::InstanceSegments>(std::move(segments));
    const schedule::TwoPhaseCall call =
        two_phase_call(configured_welcome(config_, cpus_), geometry);
    two_phase_segments_ = std::make_unique<TwoPhaseSegments>(
        segment_prefix_,
        geometry.num_sessions,
        config_.two_phase_memory_max,
        schedule::two_phase_sizes_max(
            call,
            geometry.num_experts,
            two_phase_row_bytes(identity_.row_dtype, model.hidden, config_.row_checksums)),
        windows);
    segment_bytes_ = schedule::InstanceSegments::total_bytes(layout, windows);
    log::debug("segments {}-*: {} MiB", segment_prefix_, segment_bytes_ >> 20);
    return {};
}

std::vector<std::pair<std::string, int>> InstanceLayout::handles(schedule::Role role,
                                                                 uint32_t index) const {
    auto handles = segments_->handles(role, index);
    // Only attention workers sample.
    if (role == schedule::Role::kAttention) {
        handles.emplace_back(vocabulary_name(segment_prefix_), setup_.vocabulary());
    }
    return handles;
}

void InstanceLayout::fill_status(client::Status& status) const {
    status.set_segment_prefix(segment_prefix_);
    if (!placement_) return;
    const std::string& placement = config_.expert_placement;
    const bool is_built_in = placement == "round_robin" || replicas_of(placement) > 0;
    status.set_ffn_policy(config_.ffn_scheduler.empty() ? std::string(name_of(config_.ffn_policy))
                                                        : "library");
    status.set_ffn_scheduler(scheduler_name_);
    status.set_expert_placement(is_built_in                         ? placement
                                : schedule::names_plugin(placement) ? "library"
                                                                    : "file");
}

CanDoWithout InstanceLayout::can_do_without() const {
    if (!placement_) return {};
    return [this](const std::vector<bool>& is_lost) {
        return schedule::can_do_without(is_lost, *placement_, config_.router);
    };
}

control::Welcome InstanceLayout::common_welcome() const {
    control::Welcome welcome = configured_welcome(config_, cpus_);
    welcome.set_segment_prefix(segment_prefix_);
    *welcome.mutable_geometry() = instance_geometry(config_, cpus_, identity_.row_dtype);
    welcome.set_model_dir(setup_.model().directory());
    welcome.set_numeric_class(std::string(ops::name_of(setup_.numeric_class())));
    welcome.set_instance_id(instance_id_);
    welcome.set_model_identity(setup_.model().identity());
    welcome.set_weight_cache(setup_.weight_cache_directory());
    if (welcome.has_ucx()) setup_.ucx_network().store(*welcome.mutable_ucx());
    return welcome;
}

void InstanceLayout::add_experts(control::Role role,
                                 uint32_t index,
                                 control::Welcome& welcome) const {
    if (!placement_ || is_default_placement(config_)) return;
    *welcome.mutable_experts() = to_wire(*placement_, config_.router, role, index);
}

}  // namespace afd::daemon

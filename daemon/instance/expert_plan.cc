// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/expert_plan.h"

#include "daemon/config/instance_geometry.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/placement/placement_source.h"
#include "daemon/placement/placement_table.h"
#include "daemon/placement/plugin_questions.h"
#include "daemon/worker/worker_setup.h"

namespace afd::daemon {

bool is_default_placement(const Config& config) {
    return config.expert_placement == "round_robin" && config.replica_choice == "session";
}

Result<schedule::ExpertPlacement> plan_experts(const Config& config,
                                               const model::ModelConfig& model) {
    // Neither cores nor the dtype of rows have a say in who holds what.
    const control::Geometry instance =
        instance_geometry(config, CpuPlan{}, schedule::RowDtype::kBf16);
    AFD_ASSIGN(
        schedule::ExpertPlacement placement,
        plan_placement(config, layer_experts(model, dispatched_shared_slots(model, instance))));
    if (!is_default_placement(config)) AFD_TRY(check_table_bytes(placement, config.router));
    return placement;
}

Result<std::string> check_scheduler(const Config& config) {
    if (config.ffn_scheduler.empty()) return std::string();
    return ask_scheduler_name(config.ffn_scheduler);
}

}  // namespace afd::daemon

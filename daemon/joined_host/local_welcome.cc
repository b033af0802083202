// SPDX-License-Identifier: Apache-2.0
#include "daemon/joined_host/local_welcome.h"

#include <unistd.h>

#include "daemon/config/wire_choices.h"
#include "daemon/config/worker_name.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/worker/vocabulary_file.h"
#include "daemon/worker/welcomed_model.h"
#include "proto/failure.h"
#include "schedule/ucx/private_memory.h"

namespace afd::daemon {

Result<> LocalWelcome::localise(const Config& config,
                                const InstanceSetup& setup,
                                const UcxNetwork& network,
                                const CpuPlan& cpus,
                                size_t cpu_index,
                                control::Welcome& welcome) const {
    if (!welcome.has_ucx()) {
        return failed_precondition("workers of several hosts talk over transport = 'ucx'");
    }
    const control::Welcome own = configured_welcome(config, cpus);
    const WorkerCpus& own_cpus = (role == control::FFN ? cpus.ffn : cpus.attention)[cpu_index];
    welcome.set_segment_prefix(schedule::segment_prefix(config.instance, welcome.instance_id()));
    welcome.set_model_dir(setup.model().directory());
    welcome.set_weight_cache(setup.weight_cache_directory());
    welcome.set_num_threads(own_cpus.num_threads);
    welcome.mutable_cpus()->Assign(own_cpus.cpus.begin(), own_cpus.cpus.end());
    welcome.set_oversubscribed(own.oversubscribed());
    welcome.set_spin_us(own.spin_us());
    welcome.set_seccomp(own.seccomp());
    network.store(*welcome.mutable_ucx());
    if (role != control::FFN || welcome.ffn_scheduler().empty()) return {};
    if (::access(welcome.ffn_scheduler().c_str(), R_OK) == 0) return {};
    return not_found("ffn_scheduler = '{}' is not on this host; put it at the same place",
                     with(welcome.ffn_scheduler()));
}

Result<schedule::WorkerSegments> LocalWelcome::create_segments(
    const control::Welcome& welcome) const {
    AFD_ASSIGN(const WelcomedModel model, WelcomedModel::open(welcome));
    AFD_ASSIGN(const WelcomedWindows windows, model.windows(welcome));
    const schedule::WindowLayout& layout = windows.layout;
    const schedule::Role own_role = role_of(role);
    AFD_TRY(schedule::check_publication_bytes(layout));
    AFD_TRY(schedule::check_private_room(worker_name(role, index),
                                         schedule::private_bytes(layout, own_role)));
    return schedule::WorkerSegments::create(welcome.segment_prefix(),
                                            layout,
                                            windows.identity,
                                            own_role,
                                            index,
                                            schedule::Windows::kPrivate);
}

schedule::WorkerSegments::Handles LocalWelcome::shared_segments(
    const InstanceSetup& setup, const control::Welcome& welcome) const {
    schedule::WorkerSegments::Handles handles;
    // Only attention workers sample.
    if (role == control::ATTENTION) {
        handles.emplace_back(vocabulary_name(welcome.segment_prefix()), setup.vocabulary());
    }
    return handles;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/window_memory.h"

#include "daemon/placement/host_plan.h"
#include "schedule/near/near_link.h"
#include "schedule/ucx/private_memory.h"

namespace afd::daemon {

uint64_t window_bytes_on(const std::string& host,
                         const Config& config,
                         const schedule::WindowLayout& layout) {
    if (config.transport != Transport::kUcx || config.num_ffn_workers() == 0) return 0;
    const HostPlan plan(config);
    const uint64_t num_attention = plan.num_workers(control::ATTENTION, host);
    const uint64_t num_ffn = plan.num_workers(control::FFN, host);
    const bool have_rings = config.ucx_neighbours == Neighbours::kMemory;
    return num_attention * schedule::private_bytes(layout, schedule::Role::kAttention) +
           num_ffn * schedule::private_bytes(layout, schedule::Role::kFfn) +
           (have_rings ? num_attention * num_ffn * schedule::NearLink::kMemoryBytes : 0);
}

Result<> check_window_messages(const Config& config, const schedule::WindowLayout& layout) {
    if (config.transport != Transport::kUcx || config.num_ffn_workers() == 0) return {};
    return schedule::check_publication_bytes(layout);
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxPath: a way to another worker: a connection of UCX, or a link through memory of the host. For
// the sources of this folder; whoever has a path asks its UcxWorker. Guarded by its lock.

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>

#include "schedule/near/near_link.h"

namespace afd::schedule {

class UcxPath {
  public:
    // One of the two; none once it is closed.
    ucp_ep_h ep = nullptr;
    std::unique_ptr<NearLink> near;
    bool has_failed = false;
    uint64_t stranger_us = 0;  // When a peer opened it; 0: adopted.

    bool is_over() const { return has_failed || (near != nullptr && near->has_failed()); }
};

}  // namespace afd::schedule

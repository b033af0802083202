// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/build_version.h"

#include <fmt/core.h>

#include <cstring>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/program/version.h"
#include "ops/format/numeric_class.h"
#include "schedule/layout/segment_header.h"
#include "schedule/ucx/ucx_message.h"

namespace afd::daemon {

std::string build_version() {
    std::string rows(sizeof(schedule::kUcxMagic), ' ');
    std::memcpy(rows.data(), &schedule::kUcxMagic, rows.size());
    return fmt::format("{} (hosts {}, rows {}, segments {}, kernels {})",
                       kVersion,
                       kClusterVersion,
                       rows,
                       schedule::kLayoutVersion,
                       ops::kKernelRevision);
}

}  // namespace afd::daemon

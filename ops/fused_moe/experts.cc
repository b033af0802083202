// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/experts.h"

namespace afd::ops {

RemoteExperts::RemoteExperts(const ExpertsCapability& workers) : capability_(workers) {
    capability_.is_remote = true;
}

WorkspaceShapes RemoteExperts::workspace_shapes(const ActivationSizes&) const {
    return {};
}

// Never on the way: the driver does not run experts of other processes. It stands in for their
// record.
Result<> RemoteExperts::apply(const Activations&, Rows<Bf16>, const ExpertsResources&) {
    return {};
}

}  // namespace afd::ops

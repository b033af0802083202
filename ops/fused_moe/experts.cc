// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/experts.h"

namespace afd::ops {
namespace {

// The processes that run the experts decide what they serve; afdd compares configurations.
constexpr ExpertsCapability kRemoteCapability{
    .name = "remote",
    .activation_format = ActivationFormat::kRemote,
    .activations = bit(ExpertActivation::kSilu),
    .quantisations = bit(ExpertQuantisation::kNone),
    .weight_and_reduce = WeightAndReduceKind::kDelegate,
};

}  // namespace

const ExpertsCapability& RemoteExperts::capability() const {
    return kRemoteCapability;
}

WorkspaceShapes RemoteExperts::workspace_shapes(size_t, size_t) const {
    return {};
}

Result<void> RemoteExperts::apply(const Activations&,
                                  Rows<Bf16>,
                                  const ExpertsWorkspaces&,
                                  Parallel&) {
    return {};
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records of the PrepareFinalize parts that live in daemon/, where the transports are: the registry
// and the feature matrix know them without the processes.

#include "ops/fused_moe/capability.h"

namespace afd::ops {

// daemon/lanes/window_prepare_finalize.h. What FFN workers get of their windows is sorted by
// expert (FfnWorkerBatching); the instance sets max_in_flight to the window's micro-batches.
inline constexpr PrepareFinalizeCapability kAfdWindowCapability{
    .name = "afd_window",
    .activation_format = ActivationFormat::kGrouped,
    .is_remote = true,
    .is_asynchronous = true,
    .dispatch_dtypes = bit(RowDtype::kBf16) | bit(RowDtype::kInt8) | bit(RowDtype::kFp8),
    .adds_shared_rows = true,
    .knows_weights = true,
    .reduces = 0,
    .delegate = WeightAndReduceKind::kDelegate,
};

// The same part when FFN workers route what they get (router = ffn): by the rows as the attention
// worker has them, so these travel as bf16.
inline constexpr PrepareFinalizeCapability kAfdWindowFfnRouterCapability = [] {
    PrepareFinalizeCapability capability = kAfdWindowCapability;
    capability.name = "afd_window_ffn_router";
    capability.dispatch_dtypes = bit(RowDtype::kBf16);
    capability.routes = true;
    capability.knows_weights = false;
    return capability;
}();

// daemon/lanes/remote_two_phase.h: batches far larger than a window, one at a time.
inline constexpr PrepareFinalizeCapability kAfdTwoPhaseCapability = [] {
    PrepareFinalizeCapability capability = kAfdWindowCapability;
    capability.name = "afd_two_phase";
    capability.max_in_flight = 1;
    return capability;
}();

}  // namespace afd::ops

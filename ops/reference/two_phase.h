// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference operators of the two-phase dispatch: lists of slots, counted and sorted in plain loops.

#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"

namespace afd::ops::reference {

// As the functions of ops/ without memory or threads of the caller, with the same errors and the
// same bits.
Result<> two_phase_layout(const TwoPhaseLayoutRequest& request);
Result<> two_phase_offsets(const TwoPhaseOffsetsRequest& request);
Result<> two_phase_payload(const TwoPhasePayloadRequest& request);
Result<> two_phase_combine(const TwoPhaseCombineRequest& request);

}  // namespace afd::ops::reference

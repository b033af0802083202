// SPDX-License-Identifier: Apache-2.0
#pragma once

// The two-phase ends of a ToyNetwork: the words and rows of rounds as messages. The windows are in
// toy_transport.h.

#include <cstdint>
#include <memory>

#include "schedule/transport/two_phase_transport.h"
#include "tests/schedule/transport/toy_machines.h"

namespace afd::schedule {

// REQUIRES of both: `machines` outlives what is made.
std::unique_ptr<TwoPhaseDispatchTransport> make_toy_two_phase_dispatch(ToyMachines& machines,
                                                                       uint32_t session);
std::unique_ptr<TwoPhaseReturnTransport> make_toy_two_phase_return(ToyMachines& machines,
                                                                   uint32_t rank);

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C for the client programs: the first one requests a Cancellation, so that the program can
// end well; a second one, a tenth of a second later or more, exits at once with kExitInterrupted.

#include "clients/cancellation.h"

namespace afd::client {

// REQUIRES: called once in a process; `cancellation` lives to its end and is not moved.
void cancel_on_interrupt(const Cancellation& cancellation);

// From now on SIGTERM is taken as Ctrl-C is, for who leaves something behind that is to be put in
// order. REQUIRES: cancel_on_interrupt() was called.
void cancel_on_termination();

}  // namespace afd::client

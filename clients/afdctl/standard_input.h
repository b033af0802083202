// SPDX-License-Identifier: Apache-2.0
#pragma once

// The text that a command is given on its standard input.

#include <string>

#include "clients/cancellation.h"
#include "proto/status.h"

namespace afd::client {

// Reads to its end; blocks as long as who writes it takes. Errors: kCancelled once `cancellation`
// is requested, whatever has come; kFailedPrecondition: it cannot be read.
Result<std::string> read_standard_input(const Cancellation& cancellation);

}  // namespace afd::client

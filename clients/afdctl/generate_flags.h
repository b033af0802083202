// SPDX-License-Identifier: Apache-2.0
#pragma once

// The flags of `afdctl generate` that say how tokens are chosen and where the text ends: one for
// each field of proto/sampling.proto, and of those of Generate (proto/client.proto).

#include "proto/client.pb.h"

namespace CLI {
class App;
}

namespace afd::client {

// `wish` outlives `command`.
void add_sampling_flags(CLI::App& command, SamplingSettings& sampling);
void add_end_flags(CLI::App& command, Generate& wish);

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The exposition: everything that an instance counts, in Prometheus' text format. Names, units and
// buckets of what vLLM has, too, are vLLM's with the prefix afd_; the rest is our own. No label
// names a request, and none a layer and an expert at once: the number of series stays bounded.
//
// Pure: from what was read at one time to text. Over which wire it goes is the front ends'
// business: all of them ask the gateway with a GetMetrics (client.proto).

#include <string>

#include "daemon/exposition/metrics_snapshot.h"

namespace afd::daemon {

// Ends with a newline. `vllm_names`: metrics that vLLM has come under its own names, too.
std::string exposition_text(const MetricsSnapshot& snapshot, bool vllm_names);

}  // namespace afd::daemon

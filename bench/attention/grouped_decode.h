// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "bench/attention/attention_report.h"
#include "bench/attention/grouped_model.h"

namespace afd::bench {

// decode/<model>/context:<S>/threads:<T>: gqa_attention() of one token of each of T sequences, as
// run_decode() (attention_decode.h). REQUIRES: context is a multiple of ops::kAttentionBlock.
void run_grouped_decode(AttentionReport& report,
                        const GroupedModel& model,
                        size_t context,
                        unsigned num_threads);

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// A row of bench_attention: one step of attention with grouped heads over caches in memory.

#include <cstddef>

#include "bench/attention/attention_report.h"
#include "bench/attention/grouped_model.h"
#include "ops/format/kv_dtype.h"

namespace afd::bench {

// decode/<model>/context:<S>/threads:<T>[/kv:<dtype>]: gqa_attention() of one token of each of T
// sequences, as run_decode() (attention_decode.h); bytes and operations are those of the positions
// that a token sees. REQUIRES: context and the model's window are multiples of
// ops::kAttentionBlock.
void run_grouped_decode(AttentionReport& report,
                        const GroupedModel& model,
                        size_t context,
                        unsigned num_threads,
                        ops::KvDtype kv_dtype = ops::KvDtype::kBf16);

}  // namespace afd::bench

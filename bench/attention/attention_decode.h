// SPDX-License-Identifier: Apache-2.0
#pragma once

// A row of bench_attention: one step of latent attention over caches in memory.

#include <cstddef>

#include "bench/attention/attention_model.h"
#include "bench/attention/attention_report.h"

namespace afd::bench {

// decode/<model>/context:<S>/threads:<T>[/kv:<dtype>]: mla_attention() of one token of each of T
// sequences. Sequences take turns over latent caches that together are larger than four times the
// last-level cache, so each finds its cache in memory. The ratio is the time /
// RowLimits::least_seconds(). REQUIRES: context is a multiple of ops::kAttentionBlock.
void run_decode(AttentionReport& report,
                const AttentionModel& model,
                size_t context,
                unsigned num_threads,
                ops::KvDtype kv_dtype = ops::KvDtype::kBf16);

}  // namespace afd::bench

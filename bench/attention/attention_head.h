// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of bench_attention: what comes behind the layers, from hidden rows to tokens.

#include "bench/attention/attention_report.h"

namespace afd::bench {

// head/threads:<T>: 32 rows through lm_head; the ratio is the time / RowLimits::least_seconds().
// sample/<way>/threads:<T>: the choice of one token of each of these rows; the ratio is the time /
// that of the head. All of them or, where the report wants neither "head/threads:<T>" nor "sample",
// none.
void run_head(AttentionReport& report, unsigned num_threads);

}  // namespace afd::bench

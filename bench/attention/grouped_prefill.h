// SPDX-License-Identifier: Apache-2.0
#pragma once

// A row of bench_attention: the beginning of a prompt in a whole block with grouped heads.

#include "bench/attention/attention_report.h"
#include "bench/attention/grouped_model.h"

namespace afd::bench {

// prefill/<model>/threads:<T>: as run_prefill() (attention_prefill.h), with grouped heads.
void run_grouped_prefill(AttentionReport& report, const GroupedModel& model, unsigned num_threads);

}  // namespace afd::bench

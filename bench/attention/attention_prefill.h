// SPDX-License-Identifier: Apache-2.0
#pragma once

// A row of bench_attention: the beginning of a prompt in a whole block of latent attention.

#include "bench/attention/attention_model.h"
#include "bench/attention/attention_report.h"

namespace afd::bench {

// prefill/<model>/threads:<T>: the first 512 tokens of a sequence through the whole attention
// block: norm, prolog, attention, output projection, residual. The ratio is operations a second /
// the peak of the class.
void run_prefill(AttentionReport& report, const AttentionModel& model, unsigned num_threads);

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys that families with grouped heads and a plain softmax router share. Problems stay in
// `keys`.

#include "model/checkpoint/config.h"
#include "model/checkpoint/key_reader.h"

namespace afd::model {

// Refuses what none of them is served with: another activation than silu, and attention to a window
// of positions, unless the file itself switches it off (use_sliding_window).
void refuse_other_decoders(KeyReader& keys);

// A softmax over all experts, the best num_experts_per_tok of them, weights as they are or divided
// by their sum (which makes them a softmax over the chosen). REQUIRES: config.num_experts is read.
void read_softmax_router(KeyReader& keys, ModelConfig& config, bool norm_topk_prob);

}  // namespace afd::model

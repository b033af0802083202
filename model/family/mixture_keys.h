// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys that families with grouped heads and a plain softmax router share. Problems stay in
// `keys`.

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "model/json/key_reader.h"

namespace afd::model {

// Refuses what none of them is served with: another activation than silu.
void refuse_other_decoders(KeyReader& keys);

// Refuses attention to a window of positions, unless the file itself switches it off
// (use_sliding_window) or gives it to no layer (layer_types). Latent attention has none, either.
void refuse_windows(KeyReader& keys);

// The window of each layer (GqaTraits::windows): sliding_window for the layers that layer_types
// calls sliding_attention, or without layer_types for all; none where use_sliding_window is false,
// which means `usual` where the file leaves it out.
// REQUIRES: num_layers and context_length are read, the latter by read_rope(), too.
std::vector<uint32_t> read_windows(KeyReader& keys, const ModelConfig& config, bool usual = true);

// The experts of a layer: num_experts or num_local_experts, of which `usual` is the family's and
// the other one may be what transformers 5 has made of it. Both only if they agree.
uint32_t read_num_experts(KeyReader& keys, const std::string& usual);

// A softmax over all experts, the best num_experts_per_tok of them, weights as they are or divided
// by their sum (which makes them a softmax over the chosen). REQUIRES: config.num_experts is read.
void read_softmax_router(KeyReader& keys, ModelConfig& config, bool norm_topk_prob);

// The experts as Mixtral names and counts them, with that router, its weights divided by their sum.
void read_block_sparse_moe(KeyReader& keys, ModelConfig& config);

// Newer libraries call the part of a layer that read_block_sparse_moe() names "mlp", as all
// families do: then config.names does, too. Which of them wrote a checkpoint its tensors say.
void settle_mixture_names(const TensorStore& tensors, ModelConfig& config);

}  // namespace afd::model

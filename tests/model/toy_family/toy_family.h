// SPDX-License-Identifier: Apache-2.0
#pragma once

// The toy family, "toy_gqa" / ToyGqaForCausalLM: grouped heads (toy_attention.h) and experts in
// every layer, chosen by a softmax, with tensor names of its own. It is not part of model/: a test
// registers it.
//
// Keys beside those of read_dimensions() and read_rope() (without scaling): num_attention_heads,
// num_key_value_heads, head_dim, num_local_experts, num_experts_per_tok, intermediate_size.

#include "model/family/family.h"

namespace afd::model {

Family toy_family();

}  // namespace afd::model

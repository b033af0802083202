// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference FFNToAttention: row by row, value by value.

#include "ops/operators/ffn_to_attention.h"

namespace afd::ops::reference {

// As ops::ffn_to_attention, with the same errors, except for slots named twice, and the same bytes.
Result<> ffn_to_attention(const FfnToAttentionRequest& request);

}  // namespace afd::ops::reference

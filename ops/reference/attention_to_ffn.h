// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference AttentionToFFN: worker by worker, slot by slot.

#include "ops/operators/attention_to_ffn.h"

namespace afd::ops::reference {

// As ops::attention_to_ffn, with the same errors and the same bytes.
Result<> attention_to_ffn(const AttentionToFfnRequest& request);

}  // namespace afd::ops::reference

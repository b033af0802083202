// SPDX-License-Identifier: Apache-2.0
#pragma once

// A tensor that the weights may hold although the model that config.json describes has no such
// part: a bias, a norm, shared experts. Left out in silence, it would make every answer wrong.

#include <string>
#include <string_view>

#include "model/checkpoint/tensor_store.h"
#include "proto/status.h"

namespace afd::model {

// OK if there is no tensor of that name, or if it is a bias and all of it is 0: some programs write
// one with every matrix. `keys`: those of config.json that say whether the part is there.
// Errors: kInvalidArgument names the tensor and the keys; those of TensorStore::read_bf16().
Result<> refuse_unread(const TensorStore& tensors, const std::string& name, std::string_view keys);

}  // namespace afd::model

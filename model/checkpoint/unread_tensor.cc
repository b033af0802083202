// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/unread_tensor.h"

#include <algorithm>

#include "proto/failure.h"

namespace afd::model {

Result<> refuse_unread(const TensorStore& tensors, const std::string& name, std::string_view keys) {
    const TensorInfo* tensor = tensors.find(name);
    if (tensor == nullptr) return {};
    if (name.ends_with(".bias")) {
        AFD_ASSIGN(const auto values, tensors.read_bf16(name, tensor->shape));
        const auto is_zero = [](ops::Bf16 value) { return ops::to_float(value) == 0; };
        if (std::ranges::all_of(values, is_zero)) return {};
    }
    return invalid_argument(
        "tensor {}: the weights hold it, and the model of config.json has no such part; if {} says "
        "so wrongly correct it there, else fetch the file again, or this model is not served",
        with(name, keys));
}

}  // namespace afd::model

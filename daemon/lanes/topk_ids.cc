// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/topk_ids.h"

#include <fmt/core.h>

#include <cstddef>

namespace afd::daemon {

Result<> check_topk_ids(const ops::MoeInput& input, uint32_t num_experts) {
    for (size_t i = 0; i < size_t{input.num_tokens} * input.top_k; ++i) {
        // A router's mistake would be an expert of nobody: it ends the requests, not the worker.
        if (input.topk_ids[i] < static_cast<int32_t>(num_experts)) continue;
        return Error{Code::kInternal,
                     fmt::format("layer {}: expert {} was chosen, the layer has {}",
                                 input.layer_id,
                                 input.topk_ids[i],
                                 num_experts)};
    }
    return {};
}

}  // namespace afd::daemon

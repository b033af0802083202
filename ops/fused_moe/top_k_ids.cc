// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_moe/top_k_ids.h"

#include <algorithm>

namespace afd::ops {
namespace {

int32_t narrow(int64_t id) {
    if (id < 0) return -1;
    return static_cast<int32_t>(std::min<int64_t>(id, INT32_MAX));
}

}  // namespace

Capacity TopKIds::memory(const FusedMoeConfig& config, const PrepareFinalizeCapability& record) {
    const Capacity num_ids = Capacity(config.max_num_tokens) * config.top_k;
    if (config.topk_indices_dtype == IdDtype::kInt64) return bytes_of<int32_t>(num_ids);
    return record.topk_indices_dtype == IdDtype::kInt64 ? bytes_of<int64_t>(num_ids) : Capacity(0);
}

void TopKIds::complete(const FusedMoeConfig& config,
                       const PrepareFinalizeCapability& record,
                       std::span<std::byte> memory,
                       MoeInput& input) {
    const size_t num_ids = size_t{input.num_tokens} * input.top_k;
    if (config.topk_indices_dtype == IdDtype::kInt64) {
        input.topk_ids_given = input.topk_ids_int64;
        if (input.topk_ids_int64 == nullptr) return;
        auto* ids = reinterpret_cast<int32_t*>(memory.data());
        std::transform(input.topk_ids_int64, input.topk_ids_int64 + num_ids, ids, narrow);
        input.topk_ids = ids;
        return;
    }
    input.topk_ids_given = input.topk_ids;
    if (record.topk_indices_dtype == IdDtype::kInt64 && input.topk_ids != nullptr) {
        auto* ids = reinterpret_cast<int64_t*>(memory.data());
        std::copy_n(input.topk_ids, num_ids, ids);
        input.topk_ids_int64 = ids;
    }
}

}  // namespace afd::ops

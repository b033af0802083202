// SPDX-License-Identifier: Apache-2.0

#include "ops/combine.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::ops {
namespace {

// Columns summed at once: the accumulators stay in registers and the first-level cache.
constexpr size_t kColumns = 256;

// The row of (token, slot), or null for a masked slot.
const Bf16* row_of(const CombineRequest& r, size_t token, size_t slot) {
    if (slot < r.top_k) {
        const int64_t id = r.topk_ids[token * r.top_k + slot];
        if (id < 0 || id >= r.num_experts) return nullptr;
    }
    size_t offset = token * r.token_stride_bytes + slot * r.slot_stride_bytes;
    if (r.row_index != nullptr) {
        const int32_t index = r.row_index[token * (r.top_k + r.num_shared) + slot];
        if (index < 0) return nullptr;
        offset = static_cast<size_t>(index) * r.slot_stride_bytes;
    }
    return reinterpret_cast<const Bf16*>(r.rows + offset);
}

void add_weighted(const Bf16* row, float weight, size_t count, float* sums) {
    for (size_t i = 0; i < count; ++i) sums[i] = sums[i] + to_float(row[i]) * weight;
}

void combine_token(const CombineRequest& r, size_t token) {
    const size_t hidden = r.out.num_cols;
    for (size_t first = 0; first < hidden; first += kColumns) {
        const size_t count = std::min(kColumns, hidden - first);
        float sums[kColumns] = {};
        for (size_t slot = 0; slot < r.top_k + r.num_shared; ++slot) {
            const Bf16* row = row_of(r, token, slot);
            if (row == nullptr) continue;
            const float weight = slot < r.top_k ? r.topk_weights[token * r.top_k + slot] : 1.0f;
            add_weighted(row + first, weight, count, sums);
        }
        Bf16* out = r.out.row(token) + first;
        for (size_t i = 0; i < count; ++i) out[i] = from_float(sums[i]);
    }
}

}  // namespace

void combine(const CombineRequest& request) {
    AFD_ASSERT(request.out.num_rows >= request.num_tokens,
               "%zu rows for %zu tokens",
               request.out.num_rows,
               request.num_tokens);
    for (size_t token = 0; token < request.num_tokens; ++token) combine_token(request, token);
}

}  // namespace afd::ops

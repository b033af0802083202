// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/combine.h"

#include "ops/experts/weighted_sum.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// The row of (token, slot), or null for a masked slot.
template <typename T>
const T* row_of(const BasicCombineRequest<T>& r, size_t token, size_t slot) {
    if (slot < r.top_k && r.topk_ids != nullptr) {
        const int64_t id = r.topk_ids[token * r.top_k + slot];
        // A masked slot's row was not written in this round: it is not looked at, whatever stands
        // there.
        if (id < 0 || id >= r.num_experts) return nullptr;
    }
    const bool is_apart = r.shared_rows.data != nullptr;
    if (slot >= r.top_k && is_apart) {
        return r.shared_rows.row(token * r.num_shared + slot - r.top_k);
    }
    const size_t entry = token * (r.top_k + (is_apart ? 0 : r.num_shared)) + slot;
    if (r.row_address != nullptr) {
        return reinterpret_cast<const T*>(r.row_address[entry]);
    }
    size_t offset = token * r.token_stride_bytes + slot * r.slot_stride_bytes;
    if (r.row_index != nullptr) {
        const int32_t index = r.row_index[entry];
        if (index < 0) return nullptr;
        offset = static_cast<size_t>(index) * r.slot_stride_bytes;
    }
    return reinterpret_cast<const T*>(r.rows + offset);
}

template <typename T>
void combine_token(const BasicCombineRequest<T>& r, size_t token) {
    weighted_sum(r.out.num_cols, r.out.row(token), [&](WeightedSum<T>& sum) {
        for (size_t slot = 0; slot < r.top_k + r.num_shared; ++slot) {
            const T* row = row_of(r, token, slot);
            if (row == nullptr) continue;
            sum.add(row, slot < r.top_k ? r.topk_weights[token * r.top_k + slot] : 1.0f);
        }
    });
}

template <typename T>
void combine_all(const BasicCombineRequest<T>& request, Parallel& parallel) {
    AFD_ASSERT(request.out.num_rows >= request.num_tokens,
               "%zu rows for %zu tokens",
               request.out.num_rows,
               request.num_tokens);
    const size_t elements = request.out.num_cols * (request.top_k + request.num_shared);
    for_rows(parallel, request.num_tokens, elements, [&](size_t first, size_t last, unsigned) {
        for (size_t token = first; token < last; ++token) combine_token(request, token);
    });
}

}  // namespace

void combine(const CombineRequest& request, Parallel& parallel) {
    combine_all(request, parallel);
}

void combine(const BasicCombineRequest<Fp16>& request, Parallel& parallel) {
    combine_all(request, parallel);
}

}  // namespace afd::ops

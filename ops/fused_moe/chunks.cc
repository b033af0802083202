// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/chunks.h"

#include <algorithm>

namespace afd::ops {

Result<> apply_in_chunks(Experts& experts,
                         const StandardActivations& standard,
                         size_t max_tokens,
                         Rows<Bf16> output,
                         const ExpertsResources& resources) {
    const size_t num_tokens = standard.x.num_rows();
    const bool is_reduced = experts.capability().weight_and_reduce == WeightAndReduceKind::kNoOp;
    // Experts that reduce give a row for each token, the others one for each slot.
    const size_t rows_per_token = is_reduced ? 1 : standard.num_slots;
    for (size_t first = 0; first < num_tokens; first += max_tokens) {
        const size_t count = std::min(max_tokens, num_tokens - first);
        StandardActivations chunk = standard;
        chunk.x = standard.x.slice(first, count);
        chunk.local_ids = standard.local_ids + first * standard.num_slots;
        chunk.weights = standard.weights + first * standard.num_slots;
        const Rows<Bf16> rows = output.slice(first * rows_per_token, count * rows_per_token);
        AFD_TRY(experts.apply(chunk, rows, resources));
    }
    return {};
}

Result<> apply_in_chunks(Experts& experts,
                         const GroupedActivations& grouped,
                         size_t max_rows,
                         std::span<ExpertGroup> scratch,
                         Rows<Bf16> output,
                         const ExpertsResources& resources) {
    const auto rows_max = static_cast<int64_t>(max_rows);
    size_t first_row = 0;
    size_t group = 0;
    int64_t taken = 0;  // Rows of the group that went with earlier chunks.
    while (group < grouped.groups.size()) {
        size_t num_groups = 0;
        int64_t num_rows = 0;
        while (group < grouped.groups.size() && num_rows < rows_max) {
            const auto [key, count] = grouped.groups[group];
            const int64_t part = std::min(count - taken, rows_max - num_rows);
            scratch[num_groups++] = {.key = key, .count = part};
            num_rows += part;
            taken += part;
            // A group that is cut goes on in the next chunk: a row's bits depend on no other row,
            // so it may be cut anywhere.
            if (taken < count) break;
            taken = 0;
            ++group;
        }
        const auto count = static_cast<size_t>(num_rows);
        const GroupedActivations chunk{.x = grouped.x.slice(first_row, count),
                                       .groups = {scratch.data(), num_groups}};
        AFD_TRY(experts.apply(chunk, output.slice(first_row, count), resources));
        first_row += count;
    }
    return {};
}

}  // namespace afd::ops

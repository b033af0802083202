// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/driver_memory.h"

#include <algorithm>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/top_k_ids.h"

namespace afd::ops {
namespace {

ActivationSizes sizes_of(ActivationFormat format,
                         const RowBounds& bounds,
                         size_t num_tokens,
                         size_t num_slots) {
    switch (format) {
        case ActivationFormat::kStandard:
            return {format, num_tokens, num_slots};
        case ActivationFormat::kBatched:
            return {format, bounds.places.value(), num_slots};
        case ActivationFormat::kGrouped:
            return {format, (Capacity(num_tokens) * num_slots).value()};
    }
    return {};
}

Capacity row_bytes(size_t num_rows, const FusedMoeConfig& config) {
    return bytes_of<Bf16>(Capacity(num_rows) * config.hidden);
}

Capacity in_lines(size_t bytes) {
    return bytes_of<std::byte>(Capacity(bytes));
}

}  // namespace

Capacity DriverMemory::total() const {
    return workspace13 + workspace2 + (output + shared_rows + weighted + ids) * bounds.num_batches +
           tables;
}

DriverMemory driver_memory(const PrepareFinalizeCapability& record,
                           const Experts& experts,
                           const FusedMoeConfig& config,
                           const Experts* shared) {
    const RowBounds bounds = row_bounds(record, config);
    const size_t num_slots = config.top_k + config.num_shared;
    const size_t chunk_tokens = config.max_chunk_tokens == 0
                                    ? bounds.num_tokens
                                    : std::min(config.max_chunk_tokens, bounds.num_tokens);
    const ActivationFormat format = record.activation_format;
    const WorkspaceShapes chunk =
        experts.workspace_shapes(sizes_of(format, bounds, chunk_tokens, num_slots));
    const WorkspaceShapes whole =
        experts.workspace_shapes(sizes_of(format, bounds, bounds.num_tokens, num_slots));
    DriverMemory memory{.bounds = bounds,
                        .chunk_tokens = chunk_tokens,
                        .shared_tokens = 0,
                        .shared_dtype = RowDtype::kBf16,
                        .workspace13 = in_lines(chunk.workspace13_bytes),
                        .workspace2 = in_lines(chunk.workspace2_bytes),
                        // Of the whole call even where it goes in chunks: outputs wait for
                        // finalize.
                        .output = row_bytes(whole.output_rows, config),
                        .shared_rows = {},
                        .weighted = {},
                        .ids = TopKIds::memory(config, record),
                        .tables = {}};
    const Capacity num_experts(config.num_experts + config.num_shared);
    memory.tables = bytes_of<ExpertGroup>(num_experts) + bytes_of<uint32_t>(num_experts);
    if (config.apply_router_weight_on_input) {
        memory.weighted = row_bytes(bounds.num_tokens, config);
        memory.tables = memory.tables + bytes_of<float>(Capacity(bounds.num_tokens));
    }
    if (shared == nullptr) return memory;
    memory.shared_tokens = config.max_shared_tokens == 0
                               ? config.max_num_tokens
                               : std::min(config.max_shared_tokens, config.max_num_tokens);
    const WorkspaceShapes stage = shared->workspace_shapes(
        {.num_rows = memory.shared_tokens, .num_slots = config.num_shared});
    // The stage runs between two calls of the experts and never inside one, so both share their
    // scratch.
    memory.workspace13 = std::max(memory.workspace13, in_lines(stage.workspace13_bytes));
    memory.workspace2 = std::max(memory.workspace2, in_lines(stage.workspace2_bytes));
    memory.shared_rows = row_bytes(config.max_num_tokens * config.num_shared, config);
    const Capacity slots = Capacity(memory.shared_tokens) * config.num_shared;
    // The stage gets the rows that would have arrived. int8 rows are no exception: its experts
    // quantise bf16 rows to the same bits.
    if (config.dispatch_dtype == RowDtype::kFp8) memory.shared_dtype = RowDtype::kFp8;
    memory.tables = memory.tables + bytes_of<LocalExpert>(slots) + bytes_of<float>(slots) +
                    DispatchRows::memory(memory.shared_dtype, config.hidden, memory.shared_tokens);
    return memory;
}

}  // namespace afd::ops

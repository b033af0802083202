// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/in_process.h"

#include <algorithm>
#include <string>

#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

LayoutKey key_of(const MoeInput& input) {
    return {.topk_ids = input.topk_ids_given != nullptr ? input.topk_ids_given : input.topk_ids,
            .ids_generation = input.ids_generation,
            .placement_epoch = input.placement_epoch,
            .num_tokens = input.num_tokens,
            .top_k = input.top_k,
            .num_shared = input.num_shared};
}

size_t sum_of(const std::vector<Workspace>& workspaces) {
    size_t bytes = 0;
    for (const Workspace& workspace : workspaces) bytes += workspace.bytes().size();
    return bytes;
}

}  // namespace

Capacity InProcessMemory::total(const PrepareFinalizeCapability& record,
                                const FusedMoeConfig& config) const {
    const RowBounds bounds = row_bounds(record, config);
    return layout * (bounds.num_batches + config.num_kept_layouts) + rows * bounds.num_batches +
           scratch;
}

InProcess::InProcess(const PrepareFinalizeCapability& record,
                     const FusedMoeConfig& config,
                     const InProcessMemory& memory)
    : capability_(record),
      config_(config),
      bounds_(row_bounds(record, config)),
      slots_(bounds_.num_batches),
      // A batch always has one of its own, however many are kept beyond their calls.
      layouts_(bounds_.num_batches + config.num_kept_layouts),
      rows_(slots_.size()),
      layout_memory_(layouts_.size()) {
    for (Workspace& rows : rows_) rows.reserve(memory.rows.value());
    for (Workspace& layout : layout_memory_) layout.reserve(memory.layout.value());
    scratch_.reserve(memory.scratch.value());
}

size_t InProcess::reserved_bytes() const {
    return sum_of(rows_) + sum_of(layout_memory_) + scratch_.bytes().size();
}

Result<size_t> InProcess::take_layout(const MoeInput& input) {
    const auto free = std::find_if(layouts_.begin(), layouts_.end(), [](const Layout& layout) {
        return layout.num_users == 0;
    });
    if (free == layouts_.end()) {
        return resource_exhausted(
            "all {} layouts are in use, and num_kept_layouts is {}; drop one that is kept, or "
            "raise it",
            with(layouts_.size(), config_.num_kept_layouts));
    }
    const auto index = static_cast<size_t>(free - layouts_.begin());
    // Fails before anything is marked as used, so that a refused call leaves the layout free.
    AFD_TRY(lay_out(input, index));
    free->key = key_of(input);
    // One source, this process: its rows are all of them.
    free->source_prefix = {0, static_cast<int32_t>(num_rows(index).value())};
    return index;
}

Result<size_t> InProcess::layout_for(const MoeInput& input) {
    if (input.layout == nullptr) return take_layout(input);
    AFD_ASSERT(input.layout->owner() == this, "a layout of another part");
    AFD_TRY(check_same_layout(layouts_[input.layout->index()].key, key_of(input)));
    return size_t{input.layout->index()};
}

Result<Ticket> InProcess::prepare_async(const MoeInput& input, uint32_t index) {
    AFD_ASSERT(index < slots_.size(), "slot %u of %zu", index, slots_.size());
    Slot& slot = slots_[index];
    if (slot.in_use) {
        return invalid_argument("micro_batch {} is in flight; finish or drop its ticket first",
                                with(index));
    }
    // Both can refuse; until they are through, neither the slot nor the layout counts as taken.
    AFD_ASSIGN(const size_t layout, layout_for(input));
    AFD_TRY(send(input, index, layout));
    slot = {.in_use = true,
            .has_output = false,
            .id = next_id_++,
            .layout = layout,
            .input = input,
            .output = {}};
    ++layouts_[layout].num_users;
    return Ticket(this, index, slot.id);
}

ActivationMetadata InProcess::metadata(const Ticket& ticket) const {
    const size_t layout = layout_of(ticket);
    return {.total = num_rows(layout),
            .expert_counts = {expert_counts(layout), config_.num_experts + config_.num_shared},
            .source_prefix = layouts_[layout].source_prefix};
}

Result<> InProcess::finalize_async(const Ticket& ticket, const ExpertsOutput& output) {
    Slot& slot = slots_[ticket.slot()];
    slot.output = output;
    slot.has_output = true;
    return {};
}

bool InProcess::finalized(const Ticket& ticket) const {
    return slots_[ticket.slot()].has_output;
}

const ExpertsOutput& InProcess::output(const Ticket& ticket) const {
    const Slot& slot = slots_[ticket.slot()];
    AFD_ASSERT(slot.has_output, "finalize before finalize_async");
    return slot.output;
}

Result<> InProcess::finalize(Ticket&& ticket,
                             const TopKWeightAndReduce& reduce,
                             Rows<Bf16> out,
                             Parallel& parallel) {
    // Gives the slot back when it ends, so not before the reduction has read it.
    const Ticket taken = std::move(ticket);
    const int32_t* rows = row_index(layout_of(taken));
    reduce.apply(output(taken), input(taken), config_.num_experts, rows, out, parallel);
    return {};
}

Result<DeferredRows> InProcess::deferred(const Ticket& ticket) const {
    return DeferredRows{output(ticket), row_index(layout_of(ticket)), input(ticket)};
}

void InProcess::cancel(uint32_t slot, uint64_t id) {
    AFD_ASSERT(slots_[slot].in_use && slots_[slot].id == id, "slot %u", slot);
    slots_[slot].in_use = false;
    release_layout(static_cast<uint32_t>(slots_[slot].layout));
}

Result<DispatchLayout> InProcess::share_layout(const Ticket& ticket) {
    Layout& layout = layouts_[layout_of(ticket)];
    // Two calls are known to have equal ids by pointer and generation; comparing the ids themselves
    // would cost what a layout saves.
    if (layout.key.ids_generation == 0) {
        return invalid_argument(
            "ids_generation is 0; a layout is shared by calls that name the generation of their "
            "topk_ids");
    }
    ++layout.num_users;
    return DispatchLayout(this, static_cast<uint32_t>(layout_of(ticket)));
}

void InProcess::release_layout(uint32_t index) {
    AFD_ASSERT(layouts_[index].num_users > 0, "layout %u", index);
    --layouts_[index].num_users;
}

}  // namespace afd::ops

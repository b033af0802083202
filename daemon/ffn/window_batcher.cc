// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/window_batcher.h"

#include "proto/check.h"

namespace afd::daemon {

WindowBatcher::WindowBatcher(schedule::ReturnTransport& transport,
                             size_t num_keys,
                             size_t num_layers,
                             size_t row_elements) {
    const schedule::WindowLayout& layout = transport.layout();
    const schedule::Geometry& geometry = layout.geometry;
    request_.attributes = {.expert_num = static_cast<int64_t>(num_keys),
                           .max_out_shape = {geometry.num_sessions,
                                             geometry.micro_batch_size,
                                             geometry.selected_expert_num,
                                             static_cast<int64_t>(row_elements)},
                           // Whatever rows hold: they are copied byte for byte, and an int8 or fp8
                           // row is so many pairs of bytes (sent_row_elements).
                           .token_dtype = ops::TokenDtype::kBf16,
                           // The scheduler of the live path is ReadyScan, which filled the buffers.
                           .need_schedule = 0,
                           .layer_num = static_cast<int64_t>(num_layers)};
    request_.context = &transport.own_control().context();
    request_.window = {transport.own_window(), layout.ffn_window.total_bytes};
    request_.control = {transport.own_control().base(), layout.ffn_control.total_bytes};
    workspace_.reserve(ops::ffn_worker_batching_workspace_bytes(request_.attributes));
}

void WindowBatcher::gather(const schedule::ReadyScan&,
                           ExpertBatch& batch,
                           ops::Parallel& parallel) {
    const auto num_keys = static_cast<size_t>(request_.attributes.expert_num);
    ops::FfnWorkerBatchingOutput output;
    output.y = std::as_writable_bytes(std::span(batch.x));
    output.group_list = {&batch.groups.data()->key, 2 * num_keys};
    output.session_ids = batch.session_ids;
    output.micro_batch_ids = batch.micro_batch_ids;
    output.token_ids = batch.token_ids;
    output.expert_offsets = batch.expert_offsets;
    const auto gathered = ops::ffn_worker_batching(request_, output, workspace_.bytes(), parallel);
    // ReadyScan wrote the scheduler's buffers from validated copies: an error is a bug of ours.
    AFD_ASSERT(gathered.ok(), "%s", gathered.error().message.c_str());
    batch.num_rows = static_cast<size_t>(output.actual_token_num);
    batch.num_groups = static_cast<size_t>(output.num_groups);
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/window_batcher.h"

#include <algorithm>
#include <span>

#include "ops/fused_moe/sent_rows.h"
#include "proto/check.h"

namespace afd::daemon {

WindowBatcher::WindowBatcher(schedule::ReturnTransport& transport,
                             size_t num_keys,
                             size_t num_layers,
                             schedule::RowDtype dtype,
                             size_t hidden,
                             bool takes_apart)
    : num_sessions_(transport.layout().geometry.num_sessions),
      context_(schedule::make_schedule_context(transport.layout().geometry,
                                               schedule::ScheduleMode::kFfn)),
      lists_(num_sessions_ * (3 + transport.layout().geometry.slots_per_micro_batch())) {
    const schedule::WindowLayout& layout = transport.layout();
    const schedule::Geometry& geometry = layout.geometry;
    const bool is_int8 = takes_apart && dtype == schedule::RowDtype::kInt8;
    const size_t row_elements = is_int8 ? hidden : ops::sent_row_elements(dtype, hidden);
    request_.attributes = {.expert_num = static_cast<int64_t>(num_keys),
                           .max_out_shape = {geometry.num_sessions,
                                             geometry.micro_batch_size,
                                             geometry.selected_expert_num,
                                             static_cast<int64_t>(row_elements)},
                           .token_dtype = is_int8 ? ops::TokenDtype::kInt8 : ops::TokenDtype::kBf16,
                           // The scheduler of the live path is ReadyScan.
                           .need_schedule = 0,
                           .layer_num = static_cast<int64_t>(num_layers)};
    auto& ffn = context_.ffn;
    const uint64_t list_bytes = num_sessions_ * sizeof(int32_t);
    ffn.layer_ids_buf = 0;
    ffn.session_ids_buf = list_bytes;
    ffn.micro_batch_ids_buf = 2 * list_bytes;
    ffn.expert_ids_buf = 3 * list_bytes;
    ffn.layer_ids_buf_size = list_bytes;
    ffn.session_ids_buf_size = list_bytes;
    ffn.micro_batch_ids_buf_size = list_bytes;
    ffn.expert_ids_buf_size = geometry.slots_per_micro_batch() * list_bytes;
    request_.context = &context_;
    request_.window = {transport.own_window(), layout.ffn_window.total_bytes};
    request_.control = std::as_writable_bytes(std::span(lists_));
    workspace_.reserve(ops::ffn_worker_batching_workspace_bytes(request_.attributes));
}

void WindowBatcher::list(const schedule::ReadyScan& scan) {
    const auto taken = scan.taken();
    context_.ffn.out_num = static_cast<uint32_t>(taken.size());
    for (size_t i = 0; i < taken.size(); ++i) {
        lists_[i] = taken[i].layer_id;
        lists_[num_sessions_ + i] = static_cast<int32_t>(taken[i].session);
        lists_[2 * num_sessions_ + i] = static_cast<int32_t>(taken[i].micro_batch);
        const std::span<const int32_t> ids = scan.ids(i);
        std::ranges::copy(ids, &lists_[3 * num_sessions_ + i * ids.size()]);
    }
}

void WindowBatcher::gather(const schedule::ReadyScan& scan,
                           ExpertBatch& batch,
                           ops::Parallel& parallel) {
    list(scan);
    const auto num_keys = static_cast<size_t>(request_.attributes.expert_num);
    ops::FfnWorkerBatchingOutput output;
    output.y = std::as_writable_bytes(std::span(batch.x));
    output.group_list = {&batch.groups.data()->key, 2 * num_keys};
    output.session_ids = batch.session_ids;
    output.micro_batch_ids = batch.micro_batch_ids;
    output.token_ids = batch.token_ids;
    output.expert_offsets = batch.expert_offsets;
    output.dynamic_scale = batch.scales;
    const auto gathered = ops::ffn_worker_batching(request_, output, workspace_.bytes(), parallel);
    // All of the request is private and was validated by ReadyScan: an error is a bug of ours.
    AFD_ASSERT(gathered.ok(), "%s", gathered.error().message.c_str());
    batch.num_rows = static_cast<size_t>(output.actual_token_num);
    batch.num_groups = static_cast<size_t>(output.num_groups);
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/schedule_context.h"

#include "schedule/layout/window_layout.h"

namespace afd::schedule {
namespace {

void set_attention_area(const WindowLayout& layout, ScheduleContext::AttentionArea& area) {
    area.token_info_buf = 0;
    area.token_info_buf_size = layout.attention_window.info_bytes;
    area.token_data_buf = layout.attention_window.data_offset;
    area.token_data_buf_size = layout.attention_window.data_bytes;
}

void set_ffn_area(const WindowLayout& layout, ScheduleContext::FfnArea& area) {
    const FfnControlLayout& control = layout.ffn_control;
    area.token_info_buf = 0;
    area.token_info_buf_size = layout.ffn_window.info_bytes;
    area.token_data_buf = layout.ffn_window.data_offset;
    area.token_data_buf_size = layout.ffn_window.data_bytes;
    area.layer_ids_buf = control.layer_ids_offset;
    area.layer_ids_buf_size = control.per_session_bytes;
    area.session_ids_buf = control.session_ids_offset;
    area.session_ids_buf_size = control.per_session_bytes;
    area.micro_batch_ids_buf = control.micro_batch_ids_offset;
    area.micro_batch_ids_buf_size = control.per_session_bytes;
    area.expert_ids_buf = control.expert_ids_offset;
    area.expert_ids_buf_size = control.expert_ids_bytes;
}

}  // namespace

ScheduleContext make_schedule_context(const Geometry& geometry, ScheduleMode mode) {
    // Asserts if the geometry is invalid: it was to be validated by the caller.
    const WindowLayout layout = WindowLayout::compute(geometry).value();
    ScheduleContext context{};
    context.common.session_num = geometry.num_sessions;
    context.common.micro_batch_num = geometry.num_micro_batches;
    context.common.micro_batch_size = geometry.micro_batch_size;
    context.common.selected_expert_num = geometry.selected_expert_num;
    context.common.expert_num = geometry.num_experts;
    context.common.attn_to_ffn_token_size = geometry.attn_to_ffn_token_bytes;
    context.common.ffn_to_attn_token_size = geometry.ffn_to_attn_token_bytes;
    context.common.schedule_mode = static_cast<int32_t>(mode);
    context.control.run_flag = 1;
    // M − 1, so that the first step, (micro_batch_id + 1) mod M, is micro-batch 0.
    context.attention.micro_batch_id =
        mode == ScheduleMode::kFfn ? 0 : geometry.num_micro_batches - 1;
    // Colocated: there are no windows, and offsets into segments that do not exist would mislead
    // whoever reads the context.
    if (geometry.num_ffn_workers == 0) return context;
    if (mode != ScheduleMode::kFfn) set_attention_area(layout, context.attention);
    if (mode != ScheduleMode::kAttention) set_ffn_area(layout, context.ffn);
    return context;
}

}  // namespace afd::schedule

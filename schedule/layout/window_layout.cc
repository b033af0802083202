// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/window_layout.h"

#include "schedule/layout/metrics_layout.h"

namespace afd::schedule {
namespace {

constexpr uint64_t kWord = sizeof(int32_t);

FfnWindowLayout ffn_window_of(const Geometry& g) {
    const uint64_t num_lanes = uint64_t{g.num_sessions} * g.num_micro_batches;
    FfnWindowLayout layout;
    layout.descriptor_bytes = (kDescriptorIdsWord + g.slots_per_micro_batch()) * kWord;
    layout.info_bytes = num_lanes * layout.descriptor_bytes;
    // 512, as the operator's interface asks. HS is a multiple of it as well, so every row begins on
    // a cache line.
    layout.data_offset = round_up(layout.info_bytes, kTokenAlignBytes);
    layout.data_bytes = num_lanes * g.slots_per_micro_batch() * g.attn_to_ffn_token_bytes;
    layout.total_bytes = layout.data_offset + layout.data_bytes;
    return layout;
}

AttentionWindowLayout attention_window_of(const Geometry& g) {
    const uint64_t num_slots = g.num_micro_batches * g.slots_per_micro_batch();
    AttentionWindowLayout layout;
    layout.info_bytes = num_slots * kWord;
    layout.data_offset = round_up(layout.info_bytes, kTokenAlignBytes);
    layout.data_bytes = num_slots * g.ffn_to_attn_token_bytes;
    layout.total_bytes = layout.data_offset + layout.data_bytes;
    return layout;
}

FfnControlLayout ffn_control_of(const Geometry& g) {
    FfnControlLayout layout;
    layout.acknowledged_offset = kControlCommonBytes;
    // A session polls its own row of acknowledgements; without the padding each store for a
    // neighbour would take the line away from it.
    layout.acknowledged_row_bytes = round_up(g.num_micro_batches * kWord, kLineBytes);
    layout.per_session_bytes = g.num_sessions * kWord;
    const uint64_t buffer_stride = round_up(layout.per_session_bytes, kLineBytes);
    layout.executions_offset =
        layout.acknowledged_offset + g.num_sessions * layout.acknowledged_row_bytes;
    layout.executions_bytes = uint64_t{g.num_sessions} * g.num_micro_batches * sizeof(uint64_t);
    layout.layer_ids_offset =
        layout.executions_offset + round_up(layout.executions_bytes, kLineBytes);
    layout.session_ids_offset = layout.layer_ids_offset + buffer_stride;
    layout.micro_batch_ids_offset = layout.session_ids_offset + buffer_stride;
    layout.expert_ids_offset = layout.micro_batch_ids_offset + buffer_stride;
    layout.expert_ids_bytes = g.num_sessions * g.slots_per_micro_batch() * kWord;
    layout.total_bytes = layout.expert_ids_offset + round_up(layout.expert_ids_bytes, kLineBytes);
    return layout;
}

}  // namespace

Result<WindowLayout> WindowLayout::compute(const Geometry& geometry) {
    AFD_TRY(validate(geometry));
    WindowLayout layout;
    layout.geometry = geometry;
    layout.ffn_window = ffn_window_of(geometry);
    layout.ffn_control = ffn_control_of(geometry);
    layout.attention_window = attention_window_of(geometry);
    layout.attention_control_bytes = kControlCommonBytes;
    layout.attention_metrics_bytes =
        kMetricsLanesOffset + geometry.num_ffn_workers * kHistogramBytes;
    layout.ffn_metrics_bytes =
        kMetricsLanesOffset + round_up(geometry.num_experts * sizeof(uint64_t), kLineBytes);
    return layout;
}

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/ucx/ucx_network.h"
#include "schedule/context/fresh_memory.h"

namespace afd::schedule {

namespace {

void format(const WindowLayout& layout, Role role, uint32_t index, std::byte* control) {
    format_control(make_segment_header(layout.geometry, test_identity(), role, index).value(),
                   role == Role::kFfn ? ScheduleMode::kFfn : ScheduleMode::kAttention,
                   control);
}

}  // namespace

UcxNetwork::UcxNetwork(const Geometry& geometry, const UcxConfig& config)
    : config_(config),
      layout_(WindowLayout::compute(geometry).value()),
      book_(geometry.num_sessions, geometry.num_ffn_workers),
      session_doorbells_(geometry.num_sessions),
      rank_doorbells_(geometry.num_ffn_workers) {
    for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
        session_controls_.push_back(zeroed_bytes(layout_.attention_control_bytes));
        format(layout_, Role::kAttention, s, session_controls_.back().get());
    }
    for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) {
        rank_controls_.push_back(zeroed_bytes(layout_.ffn_control.total_bytes));
        format(layout_, Role::kFfn, f, rank_controls_.back().get());
    }
}

UcxEndConfig UcxNetwork::end_config(Role role, uint32_t index, uint64_t epoch) {
    const bool is_ffn = role == Role::kFfn;
    return {.role = role,
            .index = index,
            .instance_id = test_identity().instance_id,
            .epoch = epoch,
            .book = &book_,
            .control = (is_ffn ? rank_controls_ : session_controls_)[index].get(),
            .doorbell = (is_ffn ? rank_doorbells_ : session_doorbells_)[index]};
}

std::unique_ptr<UcxDispatch> UcxNetwork::dispatch(uint32_t session) {
    return dispatch_of_epoch(session, book_.epoch(Role::kAttention, session) + 1);
}

std::unique_ptr<UcxDispatch> UcxNetwork::dispatch_of_epoch(uint32_t session, uint64_t epoch) {
    return UcxDispatch::make(end_config(Role::kAttention, session, epoch),
                             layout_,
                             UcxWorker::make(config_, false).value())
        .value();
}

std::unique_ptr<UcxReturn> UcxNetwork::returns(uint32_t rank) {
    return UcxReturn::make(end_config(Role::kFfn, rank, book_.epoch(Role::kFfn, rank) + 1),
                           layout_,
                           UcxWorker::make(config_, true, layout_.geometry.num_sessions).value())
        .value();
}

}  // namespace afd::schedule

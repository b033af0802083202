// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn_loop.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::daemon {
namespace {

// How often a waiting loop beats although nobody rings.
constexpr uint64_t kIdleTickUs = 1'000'000;
// Rows that one thread returns at a time: enough to pay for handing them out.
constexpr size_t kReturnRows = 32;

}  // namespace

FfnLoop::FfnLoop(const Parts& parts,
                 const schedule::FfnSchedulerConfig& scheduler,
                 schedule::AdaptiveWait wait)
    : parts_(parts),
      wait_(wait),
      heartbeat_(parts.transport->heartbeat()),
      scan_(*parts.transport,
            *parts.layout,
            *parts.placement,
            parts.transport->rank(),
            parts.transport->own_control()),
      scheduler_(scheduler) {
    const schedule::WindowLayout& layout = *parts_.layout;
    const schedule::Geometry& geometry = layout.geometry;
    const size_t hidden = parts_.hidden;
    const size_t num_keys = parts_.placement->num_layers() *
                            parts_.placement->num_local_experts_per_layer(parts_.transport->rank());
    const size_t rows_max = geometry.num_sessions * geometry.slots_per_micro_batch();
    gathered_.resize(rows_max * hidden);
    results_.resize(rows_max * hidden);
    group_list_.resize(num_keys * 2);
    session_ids_.resize(rows_max);
    micro_batch_ids_.resize(rows_max);
    token_ids_.resize(rows_max);
    expert_offsets_.resize(rows_max);

    batching_.attributes = {.expert_num = static_cast<int64_t>(num_keys),
                            .max_out_shape = {geometry.num_sessions,
                                              geometry.micro_batch_size,
                                              geometry.selected_expert_num,
                                              static_cast<int64_t>(hidden)},
                            .token_dtype = ops::TokenDtype::kBf16,
                            .need_schedule = 0,
                            .layer_num = parts_.placement->num_layers()};
    batching_.context = &parts_.transport->own_control().context();
    batching_.window = {parts_.transport->own_window(), layout.ffn_window.total_bytes};
    batching_.control = {parts_.transport->own_control().base(), layout.ffn_control.total_bytes};
    batch_.y = std::as_writable_bytes(std::span(gathered_));
    batch_.group_list = group_list_;
    batch_.session_ids = session_ids_;
    batch_.micro_batch_ids = micro_batch_ids_;
    batch_.token_ids = token_ids_;
    batch_.expert_offsets = expert_offsets_;
    batching_workspace_.reserve(ops::ffn_worker_batching_workspace_bytes(batching_.attributes));
    const ops::WorkspaceShapes shapes = parts_.experts->workspace_shapes(
        {.format = ops::ActivationFormat::kGrouped, .num_rows = rows_max});
    workspace13_.reserve(shapes.workspace13_bytes);
    workspace2_.reserve(shapes.workspace2_bytes);
}

void FfnLoop::run() {
    while (!is_shut_down()) {
        const uint64_t now_us = schedule::steady_now_us();
        const auto descriptors = scheduler_.decide(now_us, scan_.scan(now_us), true);
        heartbeat_.beat();
        if (descriptors.empty()) {
            wait_for_sessions();
        } else {
            execute(descriptors);
        }
    }
}

bool FfnLoop::is_shut_down() {
    WorkerCommand command;
    return parts_.port->pop_command(command) && command.kind == WorkerCommand::Kind::kShutdown;
}

void FfnLoop::execute(std::span<const schedule::ReadyDescriptor> descriptors) {
    heartbeat_.set_computing();
    const uint64_t start_us = schedule::steady_now_us();
    scan_.take(descriptors);
    gather_rows();
    run_experts();
    return_rows();
    scan_.acknowledge_taken();

    const auto num_rows = static_cast<uint64_t>(batch_.actual_token_num);
    const schedule::ReadyScanErrors& errors = scan_.errors();
    parts_.metrics.add(Counter::kTokens, num_rows);
    parts_.metrics.add(Counter::kRows, num_rows);
    parts_.metrics.add(Counter::kRounds, descriptors.size());
    parts_.metrics.add(Counter::kSteps, 1);
    parts_.metrics.set(Counter::kRefused,
                       errors.num_bad_flags + errors.num_bad_layers + errors.num_bad_ids);
    parts_.metrics.add(Counter::kComputeUs, schedule::steady_now_us() - start_us);
}

void FfnLoop::gather_rows() {
    const auto gathered =
        ops::ffn_worker_batching(batching_, batch_, batching_workspace_.bytes(), *parts_.parallel);
    // ReadyScan wrote the scheduler's buffers from validated copies: an error is a bug of ours.
    AFD_ASSERT(gathered.ok(), "%s", gathered.error().message.c_str());
}

void FfnLoop::run_experts() {
    const auto num_rows = static_cast<size_t>(batch_.actual_token_num);
    const size_t hidden = parts_.hidden;
    const auto* groups = reinterpret_cast<const ops::ExpertGroup*>(group_list_.data());
    const auto computed = parts_.experts->apply(
        ops::GroupedActivations{
            .x = {ops::make_rows<const ops::Bf16>(gathered_.data(), num_rows, hidden)},
            .groups = {groups, static_cast<size_t>(batch_.num_groups)}},
        ops::make_rows(results_.data(), num_rows, hidden),
        {workspace13_.bytes(), workspace2_.bytes(), parts_.parallel});
    // Ids that this rank does not hold were masked: an error is a bug of ours.
    AFD_ASSERT(computed.ok(), "%s", computed.error().message.c_str());
}

void FfnLoop::return_rows() {
    const auto num_rows = static_cast<size_t>(batch_.actual_token_num);
    const size_t hidden = parts_.hidden;
    parts_.parallel->run((num_rows + kReturnRows - 1) / kReturnRows, [&](size_t task, unsigned) {
        const size_t end = std::min(num_rows, (task + 1) * kReturnRows);
        for (size_t i = task * kReturnRows; i < end; ++i) {
            scan_.put_result(static_cast<uint32_t>(session_ids_[i]),
                             static_cast<uint32_t>(micro_batch_ids_[i]),
                             static_cast<uint32_t>(token_ids_[i]),
                             static_cast<uint32_t>(expert_offsets_[i]),
                             std::as_bytes(std::span(&results_[i * hidden], hidden)));
        }
    });
}

void FfnLoop::wait_for_sessions() {
    if (const auto session = scheduler_.waits_for_session()) {
        heartbeat_.set_waiting(
            {.kind = schedule::WaitKind::kDispatch, .peer = static_cast<int32_t>(*session)});
    } else {
        heartbeat_.set_idle();
    }
    parts_.metrics.add(Counter::kWaits, 1);
    const uint64_t deadline_us =
        std::min(scheduler_.decide_again_us(), schedule::steady_now_us() + kIdleTickUs);
    wait_.until(deadline_us, true, [&](schedule::Order order) {
        return parts_.port->has_command() || scan_.has_new(order);
    });
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/ffn_loop.h"

#include <algorithm>
#include <cstring>

#include "daemon/ffn/ffn_router.h"
#include "daemon/ffn/window_batcher.h"
#include "daemon/program/logging.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"
#include "proto/crash_point.h"

namespace afd::daemon {
namespace {

// How often a waiting loop beats even if nobody rings.
constexpr uint64_t kRestingTickUs = 1'000'000;

size_t rows_max(const schedule::Geometry& geometry) {
    return geometry.num_sessions * geometry.slots_per_micro_batch();
}

size_t rows_max(const FfnLoop::Parts& parts) {
    return rows_max(parts.transport->layout().geometry);
}

size_t num_keys(const FfnLoop::Parts& parts) {
    return size_t{parts.placement->num_layers()} *
           parts.placement->num_local_experts_per_layer(parts.transport->rank());
}

std::unique_ptr<ExpertBatcher> make_batcher(const FfnLoop::Parts& parts) {
    if (parts.router == nullptr) {
        return std::make_unique<WindowBatcher>(*parts.transport,
                                               num_keys(parts),
                                               parts.placement->num_layers(),
                                               parts.dispatch_dtype,
                                               parts.hidden,
                                               !parts.row_checksums);
    }
    return std::make_unique<FfnRouter>(*parts.transport,
                                       *parts.placement,
                                       *parts.router,
                                       parts.hidden,
                                       parts.rows_have_rest,
                                       parts.parallel->num_threads());
}

}  // namespace

uint64_t pass_bytes(const schedule::Geometry& geometry, schedule::RowDtype dtype, size_t hidden) {
    constexpr size_t kPlaceBytes = 4 * sizeof(int32_t);  // Of the result's slot.
    const size_t result_bytes = hidden * sizeof(ops::Bf16);
    size_t taken_bytes = 0;
    if (dtype == schedule::RowDtype::kInt8) taken_bytes = sizeof(float);
    if (dtype == schedule::RowDtype::kFp8) taken_bytes = hidden * sizeof(ops::Bf16);
    return rows_max(geometry) *
           (ops::sent_row_bytes(dtype, hidden) + taken_bytes + result_bytes + kPlaceBytes);
}

FfnLoop::FfnLoop(const Parts& parts,
                 std::unique_ptr<schedule::PassScheduler> scheduler,
                 schedule::AdaptiveWait wait)
    : parts_(parts),
      wait_(wait),
      heartbeat_(parts.transport->heartbeat()),
      words_(parts.transport->words()),
      scan_(*parts.transport,
            *parts.placement,
            parts.router == nullptr ? schedule::RouterPlacement::kAttention
                                    : schedule::RouterPlacement::kFfn),
      scheduler_(std::move(scheduler)),
      probe_(parts.metrics, *parts.placement, parts.transport->rank()),
      batcher_(make_batcher(parts)),
      batch_(rows_max(parts),
             num_keys(parts),
             parts.dispatch_dtype,
             parts.hidden,
             !parts.row_checksums),
      // Everything for the largest pass that the windows can hold: later passes allocate nothing.
      arrived_(parts.dispatch_dtype, parts.hidden, batch_.scales.empty() ? rows_max(parts) : 0),
      results_(rows_max(parts) * parts.hidden) {
    AFD_ASSERT(parts.router == nullptr || parts.dispatch_dtype == schedule::RowDtype::kBf16,
               "rows that are routed here must be bf16");
    if (parts_.router != nullptr) batch_.weights.resize(rows_max(parts));
    if (parts_.row_checksums) {
        seals_.emplace(
            *parts.transport,
            ops::sent_row_bytes(parts.dispatch_dtype, parts.hidden, parts.rows_have_rest),
            rows_max(parts));
        if (parts_.router != nullptr) batch_.offered_slots.resize(rows_max(parts));
        if (parts_.rows_have_rest) batch_.sent_rows.resize(rows_max(parts));
    }
    // A row for each thread: put_result() copies it once, from private memory (R3).
    returned_.resize(parts_.parallel->num_threads() * row_bytes());
    const ops::WorkspaceShapes shapes = parts_.experts->workspace_shapes(
        {.format = ops::ActivationFormat::kGrouped, .num_rows = rows_max(parts)});
    workspace13_.reserve(shapes.workspace13_bytes);
    workspace2_.reserve(shapes.workspace2_bytes);
}

void FfnLoop::run() {
    // Two-phase blocks and passes take turns: a long prompt must not hold up decoding, which is why
    // one turn does a single block of it.
    // run_flag is for a loop that is busy; one that sleeps is told by afdd.
    while (words_.run_flag() && take_commands()) {
        const bool progressed = advance_two_phase();
        const auto descriptors = scan_.next_pass(*scheduler_, schedule::steady_now_us());
        look_at_scheduler();
        heartbeat_.beat();
        if (!descriptors.empty()) {
            execute(descriptors);
        } else if (!progressed) {
            wait_for_sessions();
        }
    }
}

// Returns false after kShutdown.
bool FfnLoop::take_commands() {
    for (WorkerCommand command; parts_.port->pop_command(command);) {
        if (command.kind == WorkerCommand::Kind::kShutdown) return false;
        const bool is_segment = command.kind == WorkerCommand::Kind::kSegment;
        if (is_segment && parts_.two_phase != nullptr) parts_.two_phase->on_segment(command);
    }
    return true;
}

bool FfnLoop::advance_two_phase() {
    if (parts_.two_phase == nullptr || !parts_.two_phase->has_work(schedule::Order::kAcquire)) {
        return false;
    }
    heartbeat_.set_computing();
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint64_t rows_before = parts_.two_phase->num_rows();
    const bool progressed = parts_.two_phase->advance();
    probe_.end_block(start_ns, parts_.two_phase->num_rows() - rows_before);
    return progressed;
}

// A user's scheduler that is set right at every turn looks as if it worked: its author must hear.
void FfnLoop::look_at_scheduler() {
    const schedule::PassSchedulerErrors errors = scheduler_->errors();
    if (errors == scheduler_errors_) return;
    scheduler_errors_ = errors;
    probe_.corrected(errors);
    if (!scheduler_warnings_.take(schedule::steady_now_us() / 1000)) return;
    log::warn(
        "the scheduler {}: so far {} choices named no descriptor, or a session's second one, and "
        "were dropped; {} times it was overruled because the oldest descriptor had waited too long",
        scheduler_->name(),
        errors.num_bad_choices,
        errors.num_overruled);
}

void FfnLoop::execute(std::span<const schedule::ReadyDescriptor> descriptors) {
    heartbeat_.set_computing();
    probe_.begin_pass(descriptors, scan_.num_ready());
    scan_.take(descriptors);
    AFD_CRASH_POINT("pass.taken");
    {
        const ops::StageTimer timer(parts_.profile, ops::MoeStage::kPermute);
        batcher_->gather(scan_, batch_, *parts_.parallel);
        if (seals_) seals_->look(batch_, *parts_.parallel);
    }
    AFD_CRASH_POINT("pass.gathered");
    probe_.end_stage(TraceKind::kGather, scan_.taken(), batch_.num_rows);
    run_experts();
    AFD_CRASH_POINT("pass.computed");
    probe_.end_stage(TraceKind::kExperts, scan_.taken(), batch_.num_rows);
    return_rows();
    AFD_CRASH_POINT("pass.returned");
    probe_.end_stage(TraceKind::kReturn, scan_.taken(), batch_.num_rows);
    scan_.acknowledge_taken();
    AFD_CRASH_POINT("pass.acknowledged");
    probe_.end_pass(batch_, descriptors.size(), scan_.errors());
}

void FfnLoop::run_experts() {
    const auto computed = parts_.experts->apply(
        ops::GroupedActivations{.x = activation_rows(),
                                .groups = std::span(batch_.groups).first(batch_.num_groups)},
        ops::make_rows(results_.data(), batch_.num_rows, parts_.hidden),
        {workspace13_.bytes(), workspace2_.bytes(), parts_.parallel, parts_.profile});
    // Ids that this rank does not hold were masked: an error is a bug of ours.
    AFD_ASSERT(computed.ok(), "%s", computed.error().message.c_str());
}

// What the batch holds, as experts take it.
ops::ActivationRows FfnLoop::activation_rows() {
    if (!batch_.scales.empty()) {
        const auto* values = reinterpret_cast<const int8_t*>(batch_.x.data());
        return {
            .int8 = {ops::make_rows(values, batch_.num_rows, parts_.hidden), batch_.scales.data()}};
    }
    const auto* rows = reinterpret_cast<const std::byte*>(batch_.x.data());
    return arrived_.decode(rows, batch_.num_rows, *parts_.parallel);
}

void FfnLoop::return_rows() {
    const ops::StageTimer timer(parts_.profile, ops::MoeStage::kUnpermute);
    const auto put = [&](size_t first, size_t last, unsigned thread) {
        for (size_t i = first; i < last; ++i) {
            scan_.put_result(static_cast<uint32_t>(batch_.session_ids[i]),
                             static_cast<uint32_t>(batch_.micro_batch_ids[i]),
                             static_cast<uint32_t>(batch_.token_ids[i]),
                             static_cast<uint32_t>(batch_.expert_offsets[i]),
                             returned_row(i, thread));
        }
    };
    ops::for_rows(
        *parts_.parallel, batch_.num_rows, row_bytes() / ops::kCopiedBytesPerElement, put);
}

// Row i as it goes into the window: its values, with router = ffn its weight behind them, and its
// seal, if rows have one.
std::span<const std::byte> FfnLoop::returned_row(size_t i, unsigned thread) {
    const auto values = std::as_bytes(std::span(&results_[i * parts_.hidden], parts_.hidden));
    if (batch_.weights.empty() && !seals_) return values;
    std::byte* const row = &returned_[thread * row_bytes()];
    std::memcpy(row, values.data(), values.size());
    size_t num_bytes = values.size();
    if (!batch_.weights.empty()) {
        std::memcpy(row + num_bytes, &batch_.weights[i], sizeof(float));
        num_bytes += sizeof(float);
    }
    if (seals_) {
        schedule::seal_row({row, num_bytes}, row + num_bytes, seals_->is_intact(i));
        num_bytes += schedule::kRowSealBytes;
    }
    return {row, num_bytes};
}

void FfnLoop::wait_for_sessions() {
    if (const auto session = scheduler_->waits_for_session()) {
        heartbeat_.set_waiting(
            {.kind = schedule::WaitKind::kDispatch, .peer = static_cast<int32_t>(*session)});
    } else {
        heartbeat_.set_idle();
    }
    // Nobody rings when a scheduler's deadline passes, so the sleep ends by itself there.
    const uint64_t tick_us = schedule::steady_now_us() + kRestingTickUs;
    // Nor when an answer of afdd is overdue.
    const uint64_t due_us = parts_.two_phase == nullptr ? tick_us : parts_.two_phase->due_us();
    const uint64_t deadline_us = std::min({scheduler_->decide_again_us(), tick_us, due_us});
    const bool has_work = has_working_session();
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint64_t sleeps_before = wait_.num_sleeps();
    const bool is_woken = wait_.until(deadline_us, expects_work_, [&](schedule::Order order) {
        return parts_.port->has_command() || scan_.has_new(order) ||
               (parts_.two_phase != nullptr && parts_.two_phase->has_work(order));
    });
    // A session that had work before and after is why this worker waited; one that has ended its
    // work, or has just begun, is not.
    probe_.waited(
        start_ns, !(has_work && has_working_session()), wait_.num_sleeps() != sleeps_before);
    // After a tick without news the next wait sleeps at once. Three idle workers on fewer cores,
    // which spun at every tick, took 76 ms of a core in 5 s, and take 1.7 ms so.
    expects_work_ = is_woken || deadline_us < tick_us;
}

bool FfnLoop::has_working_session() {
    const uint64_t now_us = schedule::steady_now_us();
    const uint32_t num_sessions = parts_.transport->layout().geometry.num_sessions;
    for (uint32_t session = 0; session < num_sessions; ++session) {
        const schedule::WorkerState state = parts_.transport->peer(session, now_us).heartbeat.state;
        if (state == schedule::WorkerState::kComputing ||
            state == schedule::WorkerState::kWaiting) {
            return true;
        }
    }
    return false;
}

}  // namespace afd::daemon

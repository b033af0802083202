// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/fused_moe.h"

#include <algorithm>
#include <string>
#include <thread>

#include "ops/fused_moe/chunks.h"
#include "ops/fused_moe/top_k_ids.h"
#include "ops/fused_moe/weighted_rows.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

// The `count` tokens of a call from `first` on, as a call of their own.
MoeInput part_of(const MoeInput& input, uint32_t first, uint32_t count) {
    MoeInput part = input;
    part.num_tokens = count;
    part.x = input.x.slice(first, count);
    if (input.x_middle.data != nullptr) {
        part.x_middle = input.x_middle.slice(first, count);
        part.x_low = input.x_low.slice(first, count);
    }
    if (input.topk_ids == nullptr) return part;
    part.topk_ids = input.topk_ids + place_of(TokenRow{first}, SlotIndex{0}, input.top_k);
    if (input.topk_ids_int64 != nullptr) {
        part.topk_ids_int64 += place_of(TokenRow{first}, SlotIndex{0}, input.top_k);
    }
    part.topk_weights = input.topk_weights + place_of(TokenRow{first}, SlotIndex{0}, input.top_k);
    return part;
}

Result<> check_shared_stage(const Experts* shared, const FusedMoeConfig& config) {
    if (config.has_shared_stage != (shared != nullptr)) {
        return Error{Code::kInvalidArgument,
                     config.has_shared_stage
                         ? "has_shared_stage is true, but no part for it was given"
                         : "a part for the shared stage was given, but has_shared_stage is false"};
    }
    if (shared == nullptr) return {};
    const ExpertsCapability& record = shared->capability();
    // The driver runs the stage between dispatch and answer and adds its rows in finalize, so it
    // must be here, take rows as they are, and leave them unreduced.
    const bool is_fit = !record.is_remote &&
                        (record.activation_formats & bit(ActivationFormat::kStandard)) != 0 &&
                        record.weight_and_reduce != WeightAndReduceKind::kNoOp;
    if (is_fit) return {};
    return failed_precondition(
        "{} cannot be the shared stage; it must run in this process, take standard activations and "
        "leave the reduction to finalize",
        with(record.name));
}

// `field` of the configuration is what the bytes grow with.
Result<> reserve_for(const char* field, size_t value, Capacity bytes, Workspace& workspace) {
    if (workspace.try_reserve(bytes.value())) return {};
    return resource_exhausted("{} is {}; there is no memory for the {} bytes that this takes",
                              with(field, value, bytes.text()));
}

Result<> reserve_for_tokens(const FusedMoeConfig& config, Capacity bytes, Workspace& workspace) {
    return reserve_for("max_num_tokens", config.max_num_tokens, bytes, workspace);
}

Result<> check_limit(const char* field, size_t value, size_t most) {
    if (value <= most) return {};
    return invalid_argument("{} is {}; this layer was composed for at most {}",
                            with(field, value, most));
}

Result<> check_whole(uint32_t num_dispatched, uint32_t num_tokens) {
    if (num_dispatched == num_tokens) return {};
    return failed_precondition(
        "the call's {} tokens go through in several parts, the first of {}; only a whole call has "
        "one layout",
        with(num_tokens, num_dispatched));
}

}  // namespace

FusedMoe::FusedMoe(PrepareFinalize& prepare_finalize,
                   Experts& experts,
                   const FusedMoeConfig& config,
                   Parallel& parallel,
                   Experts* shared)
    : prepare_finalize_(&prepare_finalize),
      experts_(&experts),
      shared_(shared),
      config_(config),
      parallel_(&parallel) {}

// All memory of all calls: later ones allocate nothing.
Result<> FusedMoe::reserve(const DriverMemory& memory) {
    if (memory.total().overflowed()) {
        return invalid_argument(
            "the bytes of {} with max_num_tokens {} are more than can be counted",
            with(prepare_finalize_->capability().name, config_.max_num_tokens));
    }
    bounds_ = memory.bounds;
    chunk_tokens_ = memory.chunk_tokens;
    AFD_TRY(reserve_for_tokens(config_, memory.workspace13, workspace13_));
    AFD_TRY(reserve_for_tokens(config_, memory.workspace2, workspace2_));
    // One pair of workspaces serves all batches, since experts run one call after the other;
    // outputs stay until finalize and are a batch's own.
    outputs_.resize(bounds_.num_batches);
    for (Workspace& output : outputs_) AFD_TRY(reserve_for_tokens(config_, memory.output, output));
    ids_.resize(bounds_.num_batches);
    for (Workspace& ids : ids_) AFD_TRY(reserve_for_tokens(config_, memory.ids, ids));
    micro_batch_of_.resize(bounds_.num_batches);
    AFD_TRY(reserve_for("num_experts", config_.num_experts, memory.tables, tables_));
    WorkspaceCursor cursor(tables_.bytes());
    const size_t num_experts = config_.num_experts + config_.num_shared;
    chunk_groups_ = cursor.take<ExpertGroup>(num_experts);
    place_counts_ = {cursor.take<uint32_t>(num_experts), config_.num_experts};
    if (config_.apply_router_weight_on_input) {
        weighted_.resize(bounds_.num_batches);
        for (Workspace& rows : weighted_) {
            AFD_TRY(reserve_for_tokens(config_, memory.weighted, rows));
        }
        ones_ = {cursor.take<float>(bounds_.num_tokens), bounds_.num_tokens};
        std::fill(ones_.begin(), ones_.end(), 1.0f);
    }
    return shared_ == nullptr ? Result<>() : reserve_shared(memory, cursor);
}

Result<> FusedMoe::reserve_shared(const DriverMemory& memory, WorkspaceCursor& cursor) {
    shared_rows_.resize(bounds_.num_batches);
    for (Workspace& rows : shared_rows_) {
        AFD_TRY(reserve_for_tokens(config_, memory.shared_rows, rows));
    }
    shared_tokens_ = memory.shared_tokens;
    const size_t num_slots = shared_tokens_ * config_.num_shared;
    shared_ids_ = {cursor.take<LocalExpert>(num_slots), num_slots};
    shared_weights_ = {cursor.take<float>(num_slots), num_slots};
    std::fill(shared_weights_.begin(), shared_weights_.end(), 1.0f);
    shared_input_.emplace(memory.shared_dtype, config_.hidden, shared_tokens_, cursor);
    return {};
}

Result<FusedMoe> FusedMoe::compose(PrepareFinalize& prepare_finalize,
                                   Experts& experts,
                                   const FusedMoeConfig& config,
                                   Parallel& parallel,
                                   Experts* shared) {
    AFD_TRY(check_composition(prepare_finalize.capability(), experts.capability(), config));
    AFD_TRY(check_shared_stage(shared, config));
    FusedMoe moe(prepare_finalize, experts, config, parallel, shared);
    AFD_TRY(moe.reserve(driver_memory(prepare_finalize.capability(), experts, config, shared)));
    return moe;
}

void FusedMoe::set_profile(StageProfile* profile) {
    profile_ = profile;
    prepare_finalize_->set_profile(profile);
}

Result<> FusedMoe::check_input(const MoeInput& input, uint32_t micro_batch) const {
    AFD_TRY(check_limit("micro_batch", micro_batch, config_.num_micro_batches - 1));
    AFD_TRY(check_limit("num_tokens", input.num_tokens, config_.max_num_tokens));
    AFD_TRY(check_limit("top_k", input.top_k, config_.top_k));
    AFD_TRY(check_limit("num_shared", input.num_shared, config_.num_shared));
    const PrepareFinalizeCapability& record = prepare_finalize_->capability();
    if (input.layout != nullptr && !record.shares_layouts) {
        return invalid_argument("{} does not share layouts; layout must not be given",
                                with(record.name));
    }
    if (input.layout != nullptr && input.layout->owner() != prepare_finalize_) {
        return invalid_argument("the layout is not one of this layer's {}", with(record.name));
    }
    AFD_TRY(check_ids(input));
    AFD_ASSERT(input.x.num_rows >= input.num_tokens && input.x.num_cols == config_.hidden,
               "x [%zu, %zu] for %u tokens of %zu",
               input.x.num_rows,
               input.x.num_cols,
               input.num_tokens,
               config_.hidden);
    return {};
}

Result<> FusedMoe::check_ids(const MoeInput& input) const {
    if (input.num_tokens == 0) return {};
    const bool is_int64 = config_.topk_indices_dtype == IdDtype::kInt64;
    const bool has_other = is_int64 ? input.topk_ids != nullptr : input.topk_ids_int64 != nullptr;
    if (has_other) {
        return invalid_argument(
            "the ids are {}; this layer was composed for topk_indices_dtype {}",
            with(is_int64 ? "int32" : "int64", name_of(config_.topk_indices_dtype)));
    }
    const bool has_ids = is_int64 ? input.topk_ids_int64 != nullptr : input.topk_ids != nullptr;
    if (has_ids || config_.needs_routing) return {};
    return invalid_argument("{} is not given; this layer was composed for rows that are routed",
                            with(is_int64 ? "topk_ids_int64" : "topk_ids"));
}

Rows<Bf16> FusedMoe::output_of(const MoeTicket& ticket) const {
    return rows_in(outputs_[ticket.ticket_.slot()]);
}

Rows<Bf16> FusedMoe::rows_in(const Workspace& workspace) const {
    const std::span<std::byte> bytes = workspace.bytes();
    return make_rows(reinterpret_cast<Bf16*>(bytes.data()),
                     bytes.size() / (config_.hidden * sizeof(Bf16)),
                     config_.hidden);
}

Result<> FusedMoe::run_experts(const MoeTicket& ticket, Rows<Bf16> output) {
    const ExpertsResources resources{
        workspace13_.bytes(), workspace2_.bytes(), parallel_, profile_};
    const Activations activations = prepare_finalize_->activations(ticket.ticket_);
    assert_consistent(prepare_finalize_->metadata(ticket.ticket_), activations);
    if (config_.max_chunk_tokens == 0) return experts_->apply(activations, output, resources);
    if (const auto* standard = std::get_if<StandardActivations>(&activations)) {
        return apply_in_chunks(*experts_, *standard, chunk_tokens_, output, resources);
    }
    const size_t num_rows = chunk_tokens_ * (config_.top_k + config_.num_shared);
    const std::span groups(chunk_groups_, config_.num_experts + config_.num_shared);
    return apply_in_chunks(
        *experts_, std::get<GroupedActivations>(activations), num_rows, groups, output, resources);
}

// The shared experts of the layer over its next rows, into rows of their own.
Result<> FusedMoe::run_shared(MoeTicket& ticket) {
    const StageTimer timer(profile_, MoeStage::kShared);
    // A part at a time: between two the caller can look whether the routed rows have come back.
    const MoeInput& input = ticket.input_;
    const size_t first = ticket.num_shared_done_;
    const size_t count = std::min(input.num_tokens - first, shared_tokens_);
    for (size_t i = 0; i < count * input.num_shared; ++i) {
        shared_ids_[i] = LocalExpert{static_cast<int32_t>(i % input.num_shared)};
    }
    const Rows<Bf16> rows = rows_in(shared_rows_[ticket.ticket_.slot()]);
    const ActivationRows x =
        shared_input_->prepare(input.x.slice(first, count), *parallel_, nullptr);
    AFD_TRY(shared_->apply(StandardActivations{.x = x,
                                               .layer_id = input.layer_id,
                                               .num_slots = input.num_shared,
                                               .local_ids = shared_ids_.data(),
                                               .weights = shared_weights_.data()},
                           rows.slice(first * input.num_shared, count * input.num_shared),
                           {workspace13_.bytes(), workspace2_.bytes(), parallel_}));
    ticket.num_shared_done_ += static_cast<uint32_t>(count);
    prepare_finalize_->shared_rows_written(ticket.ticket_, ticket.num_shared_done_);
    return {};
}

// Every micro-batch has a batch of its own, or, with fewer of them, any that is free.
Result<uint32_t> FusedMoe::batch_for(uint32_t micro_batch) const {
    if (bounds_.num_batches == config_.num_micro_batches) {
        if (prepare_finalize_->slot_free(micro_batch)) return micro_batch;
        return invalid_argument("micro_batch {} is in flight; finish or drop its ticket first",
                                with(micro_batch));
    }
    // All of them are looked at even after a free one: this micro-batch may hold a later one.
    uint32_t free = static_cast<uint32_t>(bounds_.num_batches);
    for (uint32_t batch = 0; batch < bounds_.num_batches; ++batch) {
        if (prepare_finalize_->slot_free(batch)) {
            free = std::min(free, batch);
        } else if (micro_batch_of_[batch] == micro_batch) {
            return invalid_argument("micro_batch {} is in flight; finish or drop its ticket first",
                                    with(micro_batch));
        }
    }
    if (free < bounds_.num_batches) return free;
    return resource_exhausted(
        "all {} batches that row_fraction {:f} of {} micro-batches reserves are in flight; start "
        "again when one has ended",
        with(bounds_.num_batches, config_.row_fraction, config_.num_micro_batches));
}

// Tokens from `first` on that one dispatch takes.
Result<uint32_t> FusedMoe::tokens_at_once(const MoeInput& input, uint32_t first) {
    const uint32_t num_left = input.num_tokens - first;
    // A layout was made for a call that went through whole.
    if (config_.row_fraction == 1.0 || input.layout != nullptr) return num_left;
    const ActivationFormat format = prepare_finalize_->capability().activation_format;
    const Count fit = tokens_that_fit(format, bounds_, input, TokenRow{first}, place_counts_);
    if (config_.overflow == RowOverflow::kChunk || fit == Count(num_left)) {
        return static_cast<uint32_t>(fit.value());
    }
    return resource_exhausted(
        "row_fraction {:f} reserves rows for {} of the call's {} tokens; raise it, or take "
        "overflow chunk",
        with(config_.row_fraction, fit.text(), num_left));
}

// The experts' input becomes a copy with the weights on it, which then weigh nothing else.
void FusedMoe::put_weights_on(MoeInput& input, uint32_t batch) {
    if (input.top_k == 0) return;
    const Rows<Bf16> rows = rows_in(weighted_[batch]).slice(0, input.num_tokens);
    weight_rows(input.x, input.topk_weights, rows, *parallel_);
    input.x = rows;
    input.topk_weights = ones_.data();
}

// Sends the tokens from first_token_ on that fit.
Result<> FusedMoe::dispatch(MoeTicket& ticket, uint32_t batch) {
    const ExclusiveStageTimer timer(profile_, MoeStage::kDispatch, MoeStage::kQuantise);
    MoeInput whole = ticket.input_;
    // The stage computes them from the call's own rows.
    if (shared_ != nullptr) whole.num_shared = 0;
    AFD_ASSIGN(ticket.num_tokens_, tokens_at_once(whole, ticket.first_token_));
    MoeInput dispatched = part_of(whole, ticket.first_token_, ticket.num_tokens_);
    if (config_.apply_router_weight_on_input) put_weights_on(dispatched, batch);
    AFD_ASSIGN(ticket.ticket_, prepare_finalize_->prepare_async(dispatched, batch));
    ticket.experts_done_ = false;
    return {};
}

Result<MoeTicket> FusedMoe::start(const MoeInput& input, uint32_t micro_batch) {
    AFD_TRY(check_input(input, micro_batch));
    AFD_ASSIGN(const uint32_t batch, batch_for(micro_batch));
    MoeTicket ticket;
    ticket.input_ = input;
    TopKIds::complete(config_, prepare_finalize_->capability(), ids_[batch].bytes(), ticket.input_);
    ticket.micro_batch_ = micro_batch;
    const bool has_stage = shared_ != nullptr && input.num_shared > 0;
    ticket.num_shared_done_ = has_stage ? 0 : input.num_tokens;
    AFD_TRY(dispatch(ticket, batch));
    // Only now: a dispatch that was refused leaves the batch free.
    micro_batch_of_[batch] = micro_batch;
    AFD_TRY(advance(ticket));
    return ticket;
}

Result<> FusedMoe::advance(MoeTicket& ticket) {
    // Remote experts work without us: finalize_async says where their rows go, at once. Ours run
    // here as soon as the rows are there. The shared stage comes last, so that it fills the time in
    // which the others answer.
    const bool is_remote = prepare_finalize_->capability().is_remote;
    if (!ticket.experts_done_ && (is_remote || prepare_finalize_->ready(ticket.ticket_))) {
        ExpertsOutput output{.rows = output_of(ticket)};
        if (!is_remote) AFD_TRY(run_experts(ticket, output_of(ticket)));
        if (shared_ != nullptr && ticket.input_.num_shared > 0) {
            output.num_shared = ticket.input_.num_shared;
            output.shared = rows_in(shared_rows_[ticket.ticket_.slot()])
                                .slice(ticket.first_token_ * output.num_shared,
                                       ticket.num_tokens_ * output.num_shared);
        }
        AFD_TRY(prepare_finalize_->finalize_async(ticket.ticket_, output));
        ticket.experts_done_ = true;
    }
    if (has_shared_left(ticket)) AFD_TRY(run_shared(ticket));
    return {};
}

bool FusedMoe::can_advance(const MoeTicket& ticket) const {
    return has_shared_left(ticket) ||
           (!ticket.experts_done_ && (prepare_finalize_->capability().is_remote ||
                                      prepare_finalize_->ready(ticket.ticket_)));
}

bool FusedMoe::ready(const MoeTicket& ticket) const {
    return ticket.experts_done_ && !has_shared_left(ticket) &&
           prepare_finalize_->finalized(ticket.ticket_);
}

Result<> FusedMoe::wait(MoeTicket& ticket, std::chrono::microseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
        AFD_TRY(advance(ticket));
        if (ready(ticket)) return {};
        if (std::chrono::steady_clock::now() >= deadline) break;
        const StageTimer timer(profile_, MoeStage::kWait);
        std::this_thread::yield();
    }
    return deadline_exceeded("micro_batch {} of layer {}: {} did not bring its {} within {} us",
                             with(ticket.micro_batch(),
                                  ticket.input_.layer_id,
                                  prepare_finalize_->capability().name,
                                  ticket.experts_done_ ? "results" : "rows",
                                  timeout.count()));
}

Result<> FusedMoe::finish_part(MoeTicket& ticket, Rows<Bf16> out) {
    do {
        AFD_TRY(advance(ticket));
    } while (has_shared_left(ticket));
    if (!ticket.experts_done_) {
        return failed_precondition(
            "micro_batch {} of layer {}: its rows have not arrived; finish() needs advance() to "
            "have run the experts",
            with(ticket.micro_batch(), ticket.input_.layer_id));
    }
    const StageTimer timer(profile_, MoeStage::kCombine);
    return prepare_finalize_->finalize(
        std::move(ticket.ticket_),
        top_k_weight_and_reduce(
            weight_and_reduce_of(prepare_finalize_->capability(), experts_->capability())),
        out.slice(ticket.first_token_, ticket.num_tokens_),
        *parallel_);
}

Result<> FusedMoe::finish(MoeTicket&& ticket, Rows<Bf16> out) {
    AFD_ASSERT(ticket.valid(), "finish of a ticket that is not in flight");
    MoeTicket taken = std::move(ticket);
    const uint32_t batch = taken.ticket_.slot();
    AFD_TRY(finish_part(taken, out));
    while (taken.first_token_ + taken.num_tokens_ < taken.input_.num_tokens) {
        taken.first_token_ += taken.num_tokens_;
        // The batch of the part before is free only now: parts of one call follow each other
        // (kChunk).
        AFD_TRY(dispatch(taken, batch));
        AFD_TRY(finish_part(taken, out));
    }
    return {};
}

Result<DispatchLayout> FusedMoe::share_layout(const MoeTicket& ticket) {
    AFD_TRY(check_whole(ticket.num_tokens_, ticket.input_.num_tokens));
    return prepare_finalize_->share_layout(ticket.ticket_);
}

Result<DeferredRows> FusedMoe::defer(const MoeTicket& ticket) const {
    AFD_TRY(check_whole(ticket.num_tokens_, ticket.input_.num_tokens));
    const PrepareFinalizeCapability& record = prepare_finalize_->capability();
    if (record.defers_finalize &&
        weight_and_reduce_of(record, experts_->capability()) == WeightAndReduceKind::kNoOp) {
        return failed_precondition("{} weights and sums its rows itself; it has none to hand out",
                                   with(experts_->capability().name));
    }
    return prepare_finalize_->deferred(ticket.ticket_);
}

size_t FusedMoe::reserved_bytes() const {
    size_t bytes =
        workspace13_.bytes().size() + workspace2_.bytes().size() + tables_.bytes().size();
    for (const Workspace& output : outputs_) bytes += output.bytes().size();
    for (const Workspace& rows : shared_rows_) bytes += rows.bytes().size();
    for (const Workspace& rows : weighted_) bytes += rows.bytes().size();
    for (const Workspace& ids : ids_) bytes += ids.bytes().size();
    return bytes;
}

Result<> FusedMoe::apply(const MoeInput& input, Rows<Bf16> out) {
    MoeTicket ticket;
    AFD_ASSIGN(ticket, start(input, 0));
    AFD_TRY(wait(ticket, std::chrono::microseconds(config_.wait_timeout_us)));
    return finish(std::move(ticket), out);
}

}  // namespace afd::ops

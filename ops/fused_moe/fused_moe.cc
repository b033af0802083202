// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/fused_moe.h"

#include <algorithm>
#include <string>

#include "proto/check.h"

namespace afd::ops {
namespace {

Result<void> check_limit(const char* field, size_t value, size_t most) {
    if (value <= most) return {};
    return Error{Code::kInvalidArgument,
                 std::string(field) + " is " + std::to_string(value) +
                     "; this layer was composed for at most " + std::to_string(most)};
}

}  // namespace

FusedMoe::FusedMoe(PrepareFinalize& prepare_finalize,
                   Experts& experts,
                   const FusedMoeConfig& config,
                   Parallel& parallel)
    : prepare_finalize_(&prepare_finalize),
      experts_(&experts),
      config_(config),
      parallel_(&parallel) {
    const size_t num_slots = config.top_k + config.num_shared;
    const size_t chunk_tokens = config.max_chunk_tokens == 0
                                    ? config.max_num_tokens
                                    : std::min(config.max_chunk_tokens, config.max_num_tokens);
    const WorkspaceShapes chunk = experts.workspace_shapes(chunk_tokens, num_slots);
    const WorkspaceShapes whole = experts.workspace_shapes(config.max_num_tokens, num_slots);
    workspace13_.reserve(chunk.workspace13_bytes);
    workspace2_.reserve(chunk.workspace2_bytes);
    outputs_.resize(config.num_micro_batches);
    for (Workspace& output : outputs_) {
        output.reserve(whole.output_rows * config.hidden * sizeof(Bf16));
    }
}

Result<FusedMoe> FusedMoe::compose(PrepareFinalize& prepare_finalize,
                                   Experts& experts,
                                   const FusedMoeConfig& config,
                                   Parallel& parallel) {
    AFD_TRY(check(config));
    AFD_TRY(check(prepare_finalize.capability(), config));
    AFD_TRY(check(experts.capability(), config));
    AFD_TRY(check_pair(prepare_finalize.capability(), experts.capability()));
    return FusedMoe(prepare_finalize, experts, config, parallel);
}

Result<void> FusedMoe::check_input(const MoeInput& input, uint32_t micro_batch) const {
    AFD_TRY(check_limit("micro_batch", micro_batch, config_.num_micro_batches - 1));
    AFD_TRY(check_limit("num_tokens", input.num_tokens, config_.max_num_tokens));
    AFD_TRY(check_limit("top_k", input.top_k, config_.top_k));
    AFD_TRY(check_limit("num_shared", input.num_shared, config_.num_shared));
    AFD_ASSERT(input.x.num_rows >= input.num_tokens && input.x.num_cols == config_.hidden,
               "x [%zu, %zu] for %u tokens of %zu",
               input.x.num_rows,
               input.x.num_cols,
               input.num_tokens,
               config_.hidden);
    return {};
}

Rows<Bf16> FusedMoe::output_of(const MoeTicket& ticket) const {
    const std::span<std::byte> bytes = outputs_[ticket.micro_batch()].bytes();
    return make_rows(reinterpret_cast<Bf16*>(bytes.data()),
                     bytes.size() / (config_.hidden * sizeof(Bf16)),
                     config_.hidden);
}

Result<void> FusedMoe::run_experts(const MoeTicket& ticket, Rows<Bf16> output) {
    const ExpertsWorkspaces workspaces{workspace13_.bytes(), workspace2_.bytes()};
    const Activations activations = prepare_finalize_->activations(ticket.ticket_);
    const auto* standard = std::get_if<StandardActivations>(&activations);
    if (standard == nullptr || config_.max_chunk_tokens == 0) {
        return experts_->apply(activations, output, workspaces, *parallel_);
    }
    const size_t num_tokens = standard->x.num_rows;
    for (size_t first = 0; first < num_tokens; first += config_.max_chunk_tokens) {
        const size_t count = std::min(config_.max_chunk_tokens, num_tokens - first);
        StandardActivations chunk = *standard;
        chunk.x = standard->x.slice(first, count);
        chunk.local_ids = standard->local_ids + first * standard->num_slots;
        const Rows<Bf16> rows =
            output.slice(first * standard->num_slots, count * standard->num_slots);
        AFD_TRY(experts_->apply(chunk, rows, workspaces, *parallel_));
    }
    return {};
}

Result<MoeTicket> FusedMoe::start(const MoeInput& input, uint32_t micro_batch) {
    AFD_TRY(check_input(input, micro_batch));
    MoeTicket ticket;
    ticket.input_ = input;
    AFD_ASSIGN(ticket.ticket_, prepare_finalize_->prepare_async(input, micro_batch));
    AFD_TRY(advance(ticket));
    return ticket;
}

Result<void> FusedMoe::advance(MoeTicket& ticket) {
    const bool is_remote =
        prepare_finalize_->capability().activation_format == ActivationFormat::kRemote;
    if (ticket.experts_done_) return {};
    if (!is_remote && !prepare_finalize_->ready(ticket.ticket_)) return {};
    const Rows<Bf16> output = output_of(ticket);
    AFD_TRY(run_experts(ticket, output));
    AFD_TRY(prepare_finalize_->finalize_async(ticket.ticket_, {output}));
    ticket.experts_done_ = true;
    return {};
}

bool FusedMoe::ready(const MoeTicket& ticket) const {
    return ticket.experts_done_ && prepare_finalize_->finalized(ticket.ticket_);
}

Result<void> FusedMoe::finish(MoeTicket&& ticket, Rows<Bf16> out) {
    AFD_ASSERT(ticket.valid(), "finish of a ticket that is not in flight");
    MoeTicket taken = std::move(ticket);
    AFD_TRY(advance(taken));
    if (!taken.experts_done_) {
        return Error{Code::kFailedPrecondition,
                     "micro_batch " + std::to_string(taken.micro_batch()) + " of layer " +
                         std::to_string(taken.input_.layer_id) +
                         ": its rows have not arrived; finish() needs advance() to have run the "
                         "experts"};
    }
    return prepare_finalize_->finalize(
        std::move(taken.ticket_),
        top_k_weight_and_reduce(experts_->capability().weight_and_reduce),
        out);
}

Result<void> FusedMoe::apply(const MoeInput& input, Rows<Bf16> out) {
    MoeTicket ticket;
    AFD_ASSIGN(ticket, start(input, 0));
    return finish(std::move(ticket), out);
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/instance_geometry.h"

#include <algorithm>

#include "daemon/config/wire_choices.h"
#include "ops/fused_moe/sent_rows.h"
#include "schedule/layout/row_checksum.h"

namespace afd::daemon {
namespace {

uint32_t row_bytes(uint64_t content_bytes) {
    return static_cast<uint32_t>(schedule::round_up(content_bytes, schedule::kTokenAlignBytes));
}

}  // namespace

bool rows_have_rest(const model::ModelConfig& model, schedule::RouterPlacement router) {
    return router == schedule::RouterPlacement::kFfn &&
           model.residual == model::ResidualType::kFp32;
}

uint32_t dispatched_shared_slots(const model::ModelConfig& model,
                                 const control::Geometry& instance) {
    // Colocated workers have their experts anyway, so the option moves nothing there.
    const bool has_stage = instance.shared_experts() == control::SHARED_EXPERTS_ATTENTION &&
                           instance.num_ffn_workers() > 0;
    return has_stage ? 0 : model.num_shared_slots();
}

Result<schedule::RowDtype> choose_dispatch_dtype(std::optional<schedule::RowDtype> wanted,
                                                 const model::ModelConfig& model) {
    const schedule::RowDtype dtype = wanted.value_or(schedule::RowDtype::kBf16);
    const ops::WeightFormat experts = model.quantisation.experts;
    if (dtype == schedule::RowDtype::kInt8 && experts != ops::WeightFormat::kInt8) {
        return Error{Code::kInvalidArgument,
                     "dispatch_dtype = 'int8': only experts with int8 weights take int8 rows, and "
                     "those of the model are " +
                         std::string(ops::name_of(experts)) +
                         "; leave dispatch_dtype at 'auto', or quantise the model with "
                         "afd-quantize --experts int8"};
    }
    // One worker may have routed and shared experts, and a token's rows go to both.
    if (dtype == schedule::RowDtype::kInt8 && model.quantisation.has_bf16_shared) {
        return Error{Code::kInvalidArgument,
                     "dispatch_dtype = 'int8': only experts with int8 weights take int8 rows, and "
                     "the shared experts and dense MLPs of the model are bf16; leave "
                     "dispatch_dtype at 'auto'"};
    }
    return dtype;
}

Result<schedule::Geometry> make_geometry(const model::ModelConfig& model,
                                         const control::Geometry& instance) {
    AFD_ASSIGN(const schedule::RouterPlacement router, from_wire(instance.router()));
    AFD_ASSIGN(const schedule::RowDtype dispatch_dtype, from_wire(instance.row_dtype()));
    const uint64_t value_bytes = uint64_t{model.hidden} * sizeof(ops::Bf16);
    const bool has_weight = router == schedule::RouterPlacement::kFfn;
    schedule::Geometry geometry;
    geometry.num_sessions = instance.num_sessions();
    geometry.num_micro_batches = instance.num_micro_batches();
    geometry.micro_batch_size = instance.micro_batch_size();
    const uint32_t num_shared = dispatched_shared_slots(model, instance);
    // At least 1: a dense layer, or a model without any MoE layer, still has one slot a token.
    geometry.selected_expert_num = std::max(1U, model.top_k + num_shared);
    geometry.num_experts = std::max(1U, model.num_experts + num_shared);
    const uint64_t seal_bytes = instance.row_checksums() ? schedule::kRowSealBytes : 0;
    geometry.attn_to_ffn_token_bytes =
        row_bytes(ops::sent_row_bytes(dispatch_dtype, model.hidden, rows_have_rest(model, router)) +
                  seal_bytes);
    geometry.ffn_to_attn_token_bytes =
        row_bytes(value_bytes + (has_weight ? sizeof(float) : 0) + seal_bytes);
    geometry.num_ffn_workers = instance.num_ffn_workers();
    AFD_TRY(schedule::validate(geometry));
    return geometry;
}

schedule::TwoPhaseCall two_phase_call(const control::Welcome& welcome,
                                      const schedule::Geometry& geometry) {
    return {.num_tokens = welcome.prefill_tokens_max(),
            .block_tokens = std::max(1U, welcome.two_phase_block()),
            .selected_expert_num = geometry.selected_expert_num};
}

schedule::TwoPhaseRowBytes two_phase_row_bytes(schedule::RowDtype dtype,
                                               size_t hidden,
                                               bool row_checksums) {
    const uint64_t seal_bytes = row_checksums ? schedule::kRowSealBytes : 0;
    return {.sent = ops::sent_row_bytes(dtype, hidden) + seal_bytes,
            .returned = hidden * sizeof(ops::Bf16) + seal_bytes};
}

schedule::InstanceIdentity make_identity(uint64_t instance_id,
                                         const model::ModelFiles& model,
                                         ops::NumericClass numeric_class,
                                         schedule::RouterPlacement router,
                                         schedule::RowDtype dispatch_dtype) {
    schedule::InstanceIdentity identity;
    identity.instance_id = instance_id;
    identity.model_identity = model.identity();
    // int8 rows give the bits of bf16 rows, so they are of one class; fp8 rows round once more.
    identity.numeric_class = std::string(ops::name_of(numeric_class)) + "/r" +
                             std::to_string(ops::kKernelRevision) +
                             (dispatch_dtype == schedule::RowDtype::kFp8 ? "/fp8" : "/bf16");
    if (model.config().residual == model::ResidualType::kFp32) {
        identity.numeric_class += "/residual-fp32";
    }
    identity.router = router;
    identity.row_dtype = dispatch_dtype;
    const model::QuantisationConfig& quantisation = model.config().quantisation;
    // Quantisation is a part of the class: "same bits" is promised within one only.
    if (quantisation != model::QuantisationConfig{}) {
        identity.numeric_class += " (" + model::describe(quantisation) + ")";
    }
    return identity;
}

}  // namespace afd::daemon

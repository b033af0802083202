// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/registry.h"

#include <algorithm>
#include <array>

#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/ffn_to_attention.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/ffn_worker_scheduler.h"
#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/operators/moe_finalize_routing.h"
#include "ops/operators/moe_gating_top_k.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {

std::span<const RegisteredOperator> operators() {
    static const std::array kOperators = {
        RegisteredOperator{&ops::kAttentionToFfnSpec, run_attention_to_ffn},
        RegisteredOperator{&ops::kAttentionWorkerCombineSpec, run_attention_worker_combine},
        RegisteredOperator{&ops::kAttentionWorkerSchedulerSpec, run_attention_worker_scheduler},
        RegisteredOperator{&ops::kFfnToAttentionSpec, run_ffn_to_attention},
        RegisteredOperator{&ops::kFfnWorkerBatchingSpec, run_ffn_worker_batching},
        RegisteredOperator{&ops::kFfnWorkerSchedulerSpec, run_ffn_worker_scheduler},
        RegisteredOperator{&ops::kGroupedMatmulSwigluSpec, run_grouped_matmul_swiglu},
        RegisteredOperator{&ops::kMlaAttentionV3Spec, run_mla_attention_v3},
        RegisteredOperator{&ops::kMlaPrologV3Spec, run_mla_prolog_v3},
        RegisteredOperator{&ops::kMoeFinalizeRoutingSpec, run_moe_finalize_routing},
        RegisteredOperator{&ops::kMoeGatingTopKSpec, run_moe_gating_top_k},
        RegisteredOperator{&ops::kMoeInitRoutingV3Spec, run_moe_init_routing_v3},
        RegisteredOperator{&ops::kTwoPhaseCombineSpec, run_two_phase_combine},
        RegisteredOperator{&ops::kTwoPhaseLayoutSpec, run_two_phase_layout},
        RegisteredOperator{&ops::kTwoPhaseOffsetsSpec, run_two_phase_offsets},
        RegisteredOperator{&ops::kTwoPhasePayloadSpec, run_two_phase_payload},
    };
    return kOperators;
}

const RegisteredOperator* find_operator(std::string_view name) {
    const auto all = operators();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const auto& entry) { return entry.spec->name == name; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace afd::tools

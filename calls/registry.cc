// SPDX-License-Identifier: Apache-2.0
#include "calls/registry.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "calls/name_list.h"
#include "calls/prepare_operators.h"
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
#include "ops/record/operator_check.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"

namespace afd::calls {

std::span<const RegisteredOperator> operators() {
    static const std::array kOperators = {
        RegisteredOperator{&ops::kAttentionToFfnSpec, prepare_attention_to_ffn},
        RegisteredOperator{&ops::kAttentionWorkerCombineSpec, prepare_attention_worker_combine},
        RegisteredOperator{&ops::kAttentionWorkerSchedulerSpec, prepare_attention_worker_scheduler},
        RegisteredOperator{&ops::kFfnToAttentionSpec, prepare_ffn_to_attention},
        RegisteredOperator{&ops::kFfnWorkerBatchingSpec, prepare_ffn_worker_batching},
        RegisteredOperator{&ops::kFfnWorkerSchedulerSpec, prepare_ffn_worker_scheduler},
        RegisteredOperator{&ops::kGroupedMatmulSwigluSpec, prepare_grouped_matmul_swiglu},
        RegisteredOperator{&ops::kMlaAttentionV3Spec, prepare_mla_attention_v3},
        RegisteredOperator{&ops::kMlaPrologV3Spec, prepare_mla_prolog_v3},
        RegisteredOperator{&ops::kMoeFinalizeRoutingSpec, prepare_moe_finalize_routing},
        RegisteredOperator{&ops::kMoeGatingTopKSpec, prepare_moe_gating_top_k},
        RegisteredOperator{&ops::kMoeInitRoutingV3Spec, prepare_moe_init_routing_v3},
        RegisteredOperator{&ops::kTwoPhaseCombineSpec, prepare_two_phase_combine},
        RegisteredOperator{&ops::kTwoPhaseLayoutSpec, prepare_two_phase_layout},
        RegisteredOperator{&ops::kTwoPhaseOffsetsSpec, prepare_two_phase_offsets},
        RegisteredOperator{&ops::kTwoPhasePayloadSpec, prepare_two_phase_payload},
    };
    return kOperators;
}

const RegisteredOperator* find_operator(std::string_view name) {
    const auto all = operators();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const auto& entry) { return entry.spec->name == name; });
    return found == all.end() ? nullptr : &*found;
}

Error no_such_operator(std::string_view name) {
    std::vector<ops::OperatorSpec> specs;
    for (const RegisteredOperator& entry : operators()) specs.push_back(*entry.spec);
    return {Code::kNotFound,
            "there is no operator " + ops::excerpt(name) + suggestion(name, specs) +
                "; see: afd-op list"};
}

Result<ops::NumericClass> numeric_class_of(std::string_view name) {
    const auto known = ops::parse_numeric_class(name);
    if (known && ops::supported(*known)) return *known;
    std::string allowed;
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(numeric_class));
    }
    return Error{Code::kInvalidArgument,
                 "numeric_class is " + ops::excerpt(name) +
                     (known ? ", which this processor cannot run" : "") + "; allowed are " +
                     allowed};
}

Result<> set_numeric_class(std::string_view name, CallOptions& options) {
    AFD_ASSIGN(options.numeric_class, numeric_class_of(name));
    options.subnormals = ops::takes_subnormals_as_zero(options.numeric_class)
                             ? ops::reference::Subnormals::kZero
                             : ops::reference::Subnormals::kKept;
    return {};
}

}  // namespace afd::calls

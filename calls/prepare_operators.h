// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a call by name to an operator's request, one function an operator: each says the shapes of
// the outputs that inputs and attributes ask for, has the request judged, and makes the call ready.

#include "calls/operator_call.h"

namespace afd::calls {

Result<> prepare_attention_to_ffn(OperatorCall& call);
Result<> prepare_ffn_to_attention(OperatorCall& call);
Result<> prepare_ffn_worker_batching(OperatorCall& call);
Result<> prepare_attention_worker_combine(OperatorCall& call);
Result<> prepare_ffn_worker_scheduler(OperatorCall& call);
Result<> prepare_attention_worker_scheduler(OperatorCall& call);
Result<> prepare_moe_gating_top_k(OperatorCall& call);
Result<> prepare_moe_init_routing_v3(OperatorCall& call);
Result<> prepare_moe_finalize_routing(OperatorCall& call);
Result<> prepare_grouped_matmul_swiglu(OperatorCall& call);
Result<> prepare_mla_attention_v3(OperatorCall& call);
Result<> prepare_mla_prolog_v3(OperatorCall& call);
Result<> prepare_two_phase_layout(OperatorCall& call);
Result<> prepare_two_phase_offsets(OperatorCall& call);
Result<> prepare_two_phase_payload(OperatorCall& call);
Result<> prepare_two_phase_combine(OperatorCall& call);

}  // namespace afd::calls

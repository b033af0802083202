// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a call by name to an operator's request, one function an operator. Each allocates the
// outputs that the inputs and attributes ask for and runs the fast path or the reference.

#include "proto/status.h"
#include "tools/afd-op/operator_call.h"

namespace afd::tools {

Result<> run_attention_to_ffn(OperatorCall& call);
Result<> run_ffn_to_attention(OperatorCall& call);
Result<> run_ffn_worker_batching(OperatorCall& call);
Result<> run_attention_worker_combine(OperatorCall& call);
Result<> run_ffn_worker_scheduler(OperatorCall& call);
Result<> run_attention_worker_scheduler(OperatorCall& call);
Result<> run_moe_gating_top_k(OperatorCall& call);
Result<> run_moe_init_routing_v3(OperatorCall& call);
Result<> run_moe_finalize_routing(OperatorCall& call);
Result<> run_grouped_matmul_swiglu(OperatorCall& call);
Result<> run_mla_attention_v3(OperatorCall& call);
Result<> run_mla_prolog_v3(OperatorCall& call);
Result<> run_two_phase_layout(OperatorCall& call);
Result<> run_two_phase_offsets(OperatorCall& call);
Result<> run_two_phase_payload(OperatorCall& call);
Result<> run_two_phase_combine(OperatorCall& call);

}  // namespace afd::tools

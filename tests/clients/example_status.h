// SPDX-License-Identifier: Apache-2.0
#pragma once

// An instance of two workers, one of which is to be started again.

#include "proto/client.pb.h"

namespace afd::test {

inline client::Status example_status() {
    client::Status status;
    status.set_instance("default");
    status.set_model("/models/demo");
    status.set_topology("disaggregated");
    status.set_router("ffn");
    status.set_shared_experts("attention");
    status.set_dispatch_dtype("int8");
    status.set_ffn_policy("gather");
    status.set_expert_placement("round_robin");
    status.set_state("ready");
    status.set_uptime_ms(192'000);
    status.set_pid(4100);
    status.set_num_queued(3);
    status.set_num_running(2);
    status.set_num_finished(120);
    status.set_num_failed(1);
    status.set_num_output_tokens(8123);
    status.set_output_tokens_per_s(412.04);
    status.set_version("0.1.0");
    status.set_context_length(512);
    status.set_numeric_class("avx2");
    status.add_waits("attention 0 (pid 4101) waits for ffn 0, micro-batch 1, layer 3");
    client::Worker& attention = *status.add_workers();
    attention.set_role("attention");
    attention.set_pid(4101);
    attention.set_state("ready");
    attention.set_num_sequences(2);
    attention.set_kv_tokens_used(128);
    attention.set_kv_tokens_total(8192);
    attention.set_num_tokens(8123);
    attention.set_num_rounds(33000);
    attention.set_num_two_phase_rounds(24);
    attention.set_num_two_phase_fallbacks(1);
    attention.set_heartbeat_age_ms(4);
    attention.set_uptime_ms(190'000);
    client::Worker& ffn = *status.add_workers();
    ffn.set_role("ffn");
    ffn.set_state("back-off");
    ffn.set_num_restarts(3);
    return status;
}

}  // namespace afd::test

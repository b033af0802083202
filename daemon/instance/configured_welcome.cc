// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/configured_welcome.h"

#include <algorithm>

#include "daemon/config/wire_choices.h"

namespace afd::daemon {

namespace {

// Two micro-batches keep both sides at work. Where the experts are local, or cores are short, there
// is nothing to overlap, and one larger micro-batch costs less.
uint32_t num_micro_batches(const Config& config, const CpuPlan& cpus) {
    if (config.micro_batches != 0) return static_cast<uint32_t>(config.micro_batches);
    return config.num_ffn_workers() == 0 || cpus.oversubscribed ? 1 : 2;
}

// How long a waiting thread stays awake. With more threads than cores it yields its core while it
// waits, so staying awake is free; it does so for as long as a peer on its core usually computes.
// Workers that were started by hand may be in other sessions, where a yield does not reach the
// peer: they sleep at once.
uint32_t spin_us(const Config& config, const CpuPlan& cpus) {
    constexpr uint64_t kYieldFactor = 100;
    if (!cpus.oversubscribed) return static_cast<uint32_t>(config.spin_us);
    if (!config.spawn) return 0;
    return static_cast<uint32_t>(std::min<uint64_t>(config.spin_us * kYieldFactor, UINT32_MAX));
}

// With dispatch = two_phase every prompt goes so, however short.
void set_two_phase(const Config& config, control::Welcome& welcome) {
    const uint64_t window = config.micro_batch_size;
    const uint64_t wanted = config.prefill_tokens_max;
    const uint64_t tokens_max = std::min(wanted == 0 ? 8 * window : wanted, config.kv_tokens);
    const uint64_t threshold = config.two_phase_threshold;
    welcome.set_prefill_tokens_max(static_cast<uint32_t>(tokens_max));
    welcome.set_two_phase_threshold(static_cast<uint32_t>(config.dispatch == Dispatch::kTwoPhase ? 0
                                                          : threshold == 0 ? window
                                                                           : threshold));
    welcome.set_two_phase_block(static_cast<uint32_t>(config.two_phase_block));
}

}  // namespace

control::Geometry instance_geometry(const Config& config,
                                    const CpuPlan& cpus,
                                    schedule::RowDtype dispatch_dtype) {
    control::Geometry geometry;
    geometry.set_num_sessions(config.num_attention_workers());
    geometry.set_num_micro_batches(num_micro_batches(config, cpus));
    geometry.set_micro_batch_size(static_cast<uint32_t>(config.micro_batch_size));
    geometry.set_num_ffn_workers(config.num_ffn_workers());
    geometry.set_router(to_wire(config.router));
    geometry.set_shared_experts(to_wire(config.shared_experts));
    geometry.set_row_dtype(to_wire(dispatch_dtype));
    geometry.set_row_checksums(config.row_checksums);
    return geometry;
}

control::Welcome configured_welcome(const Config& config, const CpuPlan& cpus) {
    control::Welcome welcome;
    welcome.set_instance(config.instance);
    welcome.set_kv_tokens(config.kv_tokens);
    welcome.set_residual_fp32(config.residual == model::ResidualType::kFp32);
    welcome.set_int4_with_int8_rows(config.int4_rows == ops::Int4Rows::kInt8);
    welcome.set_max_sequences(static_cast<uint32_t>(config.max_sequences));
    welcome.set_prefix_cache(config.prefix_cache);
    welcome.set_kv_dtype(to_wire(config.kv_dtype));
    welcome.set_seccomp(config.seccomp);
    welcome.set_spin_us(spin_us(config, cpus));
    welcome.set_wait_report_ms(config.wait_report_ms);
    welcome.set_round_timeout_ms(config.round_timeout_ms);
    welcome.set_dispatch_sync(config.dispatch_mode == schedule::DispatchMode::kSync);
    welcome.set_ffn_policy(to_wire(config.ffn_policy));
    welcome.set_ffn_sync_group_size(static_cast<uint32_t>(config.ffn_sync_group_size));
    welcome.set_ffn_scheduler(config.ffn_scheduler);
    welcome.set_gather_us(static_cast<uint32_t>(config.gather_us));
    welcome.set_oversubscribed(cpus.oversubscribed);
    if (config.two_phase()) set_two_phase(config, welcome);
    if (config.transport == Transport::kUcx) {
        control::Ucx& ucx = *welcome.mutable_ucx();
        ucx.set_transports(config.ucx_transports);
        ucx.set_near_by_memory(config.ucx_neighbours == Neighbours::kMemory);
    }
    return welcome;
}

}  // namespace afd::daemon

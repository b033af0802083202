// SPDX-License-Identifier: Apache-2.0
#pragma once

// Config: every option of afdd, by its value. Where values come from is resolved_config.h, and what
// an option is called and takes config_options.h. Workers have no configuration of their own; they
// get what concerns them in the Welcome.

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/config/choices.h"
#include "model/checkpoint/residual_type.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/row_dtype.h"

namespace afd::daemon {

// Most that ffn_workers may be. The layout allows more (schedule::kFfnWorkersMax), but the status
// of the largest instance has to fit into a frame, with a link from each attention worker to each
// FFN worker.
inline constexpr uint32_t kMostFfnWorkers = 256;
static_assert(kMostFfnWorkers <= schedule::kFfnWorkersMax);

// Defaults and meanings: option_topics.h.
struct Config {
    std::string model;
    std::string instance;
    Topology topology = Topology::kDisaggregated;
    uint64_t attention_workers = 0;  // A
    uint64_t ffn_workers = 0;        // F; ignored when colocated
    uint64_t micro_batches = 0;      // M
    uint64_t micro_batch_size = 0;   // BS
    Transport transport = Transport::kSharedMemory;
    std::string ucx_transports;
    std::string ucx_devices;
    std::string ucx_host;
    std::string host_ports;
    Neighbours ucx_neighbours = Neighbours::kMemory;
    std::string attention_hosts;
    std::string ffn_hosts;
    std::string cluster_listen;
    std::string join;
    std::string cluster_dir;
    std::string host_name;
    bool leave_with_leader = false;
    Dispatch dispatch = Dispatch::kAuto;
    uint64_t prefill_tokens_max = 0;
    uint64_t two_phase_threshold = 0;
    uint64_t two_phase_block = 0;
    uint64_t two_phase_memory_max = 0;
    uint64_t kv_tokens = 0;
    KvReserve kv_reserve = KvReserve::kGrow;
    bool prefix_cache = true;
    ops::KvDtype kv_dtype = ops::KvDtype::kBf16;
    bool seccomp = true;
    uint64_t max_sequences = 0;
    uint64_t max_queue = 0;
    uint64_t attention_threads = 0;
    uint64_t ffn_threads = 0;
    std::string numeric_class;
    model::ResidualType residual = model::kServingResidual;
    ops::Int4Rows int4_rows = ops::Int4Rows::kBf16;
    uint64_t spin_us = 0;
    schedule::RouterPlacement router = schedule::RouterPlacement::kAttention;
    SharedExperts shared_experts = SharedExperts::kFfn;
    schedule::DispatchMode dispatch_mode = schedule::DispatchMode::kAsync;
    std::optional<schedule::RowDtype> dispatch_dtype;  // Nothing: auto.
    bool row_checksums = false;
    schedule::FfnPolicy ffn_policy = schedule::FfnPolicy::kGather;
    uint64_t ffn_sync_group_size = 0;
    std::string ffn_scheduler;
    std::string expert_placement;
    std::string replica_choice;
    uint64_t gather_us = 0;
    uint64_t wait_report_ms = 0;
    uint64_t round_timeout_ms = 0;
    uint64_t request_timeout_ms = 0;
    uint64_t hang_timeout_ms = 0;
    uint64_t stop_timeout_ms = 0;
    uint64_t restart_first_ms = 0;
    uint64_t restart_max_ms = 0;
    uint64_t restart_reset_ms = 0;
    uint64_t start_attempts = 0;
    uint64_t start_timeout_ms = 0;
    uint64_t drain_timeout_ms = 0;
    uint64_t connections_max = 0;
    uint64_t connection_requests_max = 0;
    uint64_t idle_timeout_ms = 0;
    uint64_t input_buffer_kib = 0;
    uint64_t input_timeout_ms = 0;
    uint64_t output_buffer_kib = 0;
    uint64_t resume_grace_ms = 0;
    uint64_t resume_buffer_kib = 0;
    uint64_t detached_requests_max = 0;
    std::string http;
    std::string http_keys;
    bool http_open = false;
    std::string http_model;
    std::string http_origins;
    uint64_t http_body_kib = 0;
    std::string pin;
    std::string weight_cache;
    std::string socket;
    std::string log_level;
    std::string log_format;
    MetricsCompat metrics_compat = MetricsCompat::kNone;
    bool spawn = true;

    bool colocated() const { return topology == Topology::kColocated; }
    // F as the windows count it: 0 when colocated.
    uint32_t num_ffn_workers() const {
        return colocated() ? 0 : static_cast<uint32_t>(ffn_workers);
    }
    // Whether workers may run on other hosts (host_plan.h).
    bool has_hosts() const { return !attention_hosts.empty() || !ffn_hosts.empty(); }
    // Whether prompts may be dispatched in two phases. Over UCX only if somebody asked for it:
    // windows, of which several are on their way at a time, were faster there
    // (docs/host_figures.md).
    bool two_phase() const {
        const bool is_asked_for = dispatch == Dispatch::kTwoPhase || two_phase_threshold != 0 ||
                                  transport == Transport::kSharedMemory;
        return !colocated() && dispatch != Dispatch::kWindow && is_asked_for;
    }
    uint32_t num_attention_workers() const { return static_cast<uint32_t>(attention_workers); }
};

}  // namespace afd::daemon

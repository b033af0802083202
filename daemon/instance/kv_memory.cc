// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/kv_memory.h"

#include "daemon/placement/host_plan.h"
#include "model/attention/attention_config.h"
#include "model/attention/layer_windows.h"
#include "model/decoder/attention_half.h"
#include "proto/failure.h"
#include "schedule/shared_memory/memory_room.h"

namespace afd::daemon {

uint64_t kv_bytes_per_worker(const Config& config, const model::ModelConfig& model) {
    const model::KvShape shape = model::kv_shape(model);
    const uint64_t bytes_per_token = shape.bytes_per_token();
    const auto windows = model::LayerWindows::of(model);
    if (windows.window == 0) return config.kv_tokens * bytes_per_token;
    const uint64_t windowed = windows.num_windowed() * shape.layer_bytes_per_token;
    const uint64_t num_windowed_tokens =
        windows.room(model, config.kv_tokens, static_cast<uint32_t>(config.max_sequences))
            .num_tokens;
    return config.kv_tokens * (bytes_per_token - windowed) + num_windowed_tokens * windowed;
}

uint64_t kv_bytes_here(const Config& config, const model::ModelConfig& model) {
    const uint64_t num_workers = HostPlan(config).num_workers(control::ATTENTION, "");
    return num_workers * kv_bytes_per_worker(config, model);
}

Result<> check_kv_room(const Config& config, const model::ModelConfig& model) {
    const uint64_t num_bytes = kv_bytes_here(config, model);
    const uint64_t num_available = schedule::available_memory_bytes();
    if (num_bytes <= num_available) return {};
    return resource_exhausted(
        "the KV caches of {} attention workers take {} MiB (kv_tokens = {} each), and {} MiB of "
        "memory are available: lower kv_tokens or attention_workers, or choose a smaller kv_dtype",
        with(HostPlan(config).num_workers(control::ATTENTION, ""),
             num_bytes >> 20,
             config.kv_tokens,
             num_available >> 20));
}

}  // namespace afd::daemon

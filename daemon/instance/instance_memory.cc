// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "daemon/attention/micro_batch.h"
#include "daemon/config/instance_geometry.h"
#include "daemon/ffn/ffn_loop.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/instance/weight_cache_choice.h"
#include "daemon/instance/window_memory.h"
#include "daemon/placement/host_plan.h"
#include "model/attention/attention_config.h"
#include "model/attention/layer_windows.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/attention_half.h"
#include "model/decoder/expert_weights.h"
#include "model/decoder/serving_memory.h"
#include "proto/failure.h"
#include "schedule/shared_memory/instance_segments.h"
#include "schedule/shared_memory/memory_room.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::daemon {
namespace {

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

uint64_t attention_bytes_per_worker(const MemorySources& sources) {
    if (sources.files == nullptr) return 0;
    const model::ServingMemory memory =
        model::serving_memory(*sources.files, sources.model.quantisation);
    return memory.attention - memory.routers;
}

uint64_t pass_bytes_on(const HostPlan& plan,
                       const std::string& host,
                       const Config& config,
                       const MemorySources& sources) {
    const schedule::Geometry& geometry = sources.layout.geometry;
    // Of the windows, and of the lane of long prompts, which cores have no say in.
    const uint64_t num_rows = uint64_t{geometry.num_micro_batches} * geometry.micro_batch_size +
                              configured_welcome(config, CpuPlan{}).prefill_tokens_max();
    uint64_t bytes = plan.num_workers(control::ATTENTION, host) * num_rows *
                     MicroBatch::row_bytes(sources.model);
    const uint32_t num_ffn = plan.num_workers(control::FFN, host);
    // Who made the sources has chosen it already.
    const auto dtype = choose_dispatch_dtype(config.dispatch_dtype, sources.model);
    if (num_ffn > 0 && dtype.ok()) {
        bytes += num_ffn * pass_bytes(geometry, dtype.value(), sources.model.hidden);
    }
    return bytes;
}

// Adds up the experts of workers: each worker's own, and each expert once.
class ExpertSum {
  public:
    ExpertSum(const model::ModelConfig& model, ops::NumericClass numeric_class)
        : model_(model),
          numeric_class_(numeric_class),
          per_layer_(std::max<size_t>(1, model::experts_per_layer(model))),
          bytes_of_(model.num_layers * per_layer_) {}

    // One more worker has the expert; logical.
    void add(uint32_t layer, uint32_t expert) {
        uint64_t& bytes = bytes_of_[layer * per_layer_ + expert];
        if (bytes == 0) {
            bytes = model::packed_expert_bytes(model_, layer, expert, numeric_class_);
            of_each_once_ += bytes;
        }
        of_workers_ += bytes;
    }
    uint64_t of_workers() const { return of_workers_; }
    uint64_t of_each_once() const { return of_each_once_; }

  private:
    const model::ModelConfig& model_;
    ops::NumericClass numeric_class_;
    size_t per_layer_;
    std::vector<uint64_t> bytes_of_;  // 0: nobody has it.
    uint64_t of_workers_ = 0;
    uint64_t of_each_once_ = 0;
};

void add_experts_of_attention(const Config& config,
                              const model::ModelConfig& model,
                              ExpertSum& experts) {
    const bool has_shared_stage =
        config.shared_experts == SharedExperts::kAttention && model.num_shared_slots() > 0;
    for (uint32_t layer = 0; layer < model.num_layers; ++layer) {
        if (config.colocated()) {
            const uint32_t num_experts = model::num_layer_experts(model, layer);
            for (uint32_t expert = 0; expert < num_experts; ++expert) experts.add(layer, expert);
        } else if (has_shared_stage && model.is_moe_layer(layer)) {
            experts.add(layer, model.num_experts);
        }
    }
}

ExpertSum experts_on(const std::string& host, const Config& config, const MemorySources& sources) {
    const HostPlan plan(config);
    ExpertSum experts(sources.model, sources.numeric_class);
    for (uint32_t i = 0; i < plan.num_workers(control::ATTENTION, host); ++i) {
        add_experts_of_attention(config, sources.model, experts);
    }
    for (uint32_t rank = 0; rank < config.num_ffn_workers(); ++rank) {
        if (sources.placement == nullptr || plan.host_of(control::FFN, rank) != host) continue;
        for (const schedule::HeldExpert& held : sources.placement->held_experts(rank)) {
            experts.add(held.layer_id, held.expert);
        }
    }
    return experts;
}

// The leader has those of all workers, since it looks at them; another host those of its own.
uint64_t segment_bytes_on(const std::string& host,
                          const Config& config,
                          const schedule::WindowLayout& layout) {
    using schedule::Role;
    const schedule::Windows windows = windows_of(config.transport);
    if (host.empty()) return schedule::InstanceSegments::total_bytes(layout, windows);
    const HostPlan plan(config);
    const auto of_workers = [&](control::Role role, Role own_role) {
        return plan.num_workers(role, host) *
               schedule::WorkerSegments::total_bytes(layout, own_role, windows);
    };
    return of_workers(control::ATTENTION, Role::kAttention) + of_workers(control::FFN, Role::kFfn);
}

// A layer's file has all of its experts, whichever of them workers of this host use.
CacheRoom cache_room_of(const Config& config, const MemorySources& sources) {
    if (sources.cache_room) return *sources.cache_room;
    if (sources.files == nullptr) return {};
    return room_for_experts(
        choose_weight_cache(config).directory, *sources.files, sources.numeric_class);
}

// Which layers find no room is not known, so workers lack that part of the experts that they have.
// `of_workers`: what these would take if each worker had its own.
InstanceMemory fit_into_cache(InstanceMemory memory, uint64_t of_workers) {
    const CacheRoom& room = memory.cache_room;
    if (room.lacking_bytes() > 0) {
        const double part =
            static_cast<double>(room.lacking_bytes()) / static_cast<double>(room.all_bytes);
        const auto lacking = [part](uint64_t bytes) {
            return static_cast<uint64_t>(part * static_cast<double>(bytes));
        };
        memory.private_expert_bytes = lacking(of_workers);
        memory.mapped_expert_bytes -= lacking(memory.mapped_expert_bytes);
    }
    if (room.is_memory) {
        // Those that are there already are no longer available.
        memory.cached_expert_bytes = room.missing_bytes - room.lacking_bytes();
        memory.mapped_expert_bytes = 0;
    }
    return memory;
}

}  // namespace

std::string InstanceMemory::private_text() const {
    const std::string workers = fmt::format(
        "{} attention worker{}", num_attention_workers, num_attention_workers == 1 ? "" : "s");
    std::string text;
    const auto add = [&](const std::string& what, uint64_t bytes) {
        if (bytes == 0) return;
        text += fmt::format("{}{} {} MiB", text.empty() ? "" : ", ", what, bytes >> 20);
    };
    add("weights of " + workers, attention_bytes);
    add("KV caches of " + workers, kv_bytes);
    add("rows of passes", pass_bytes);
    add("segments", segment_bytes);
    add("windows", window_bytes);
    add(cache_room.lacking_bytes() > 0 ? "experts without room in the weight cache"
                                       : "experts without a weight cache",
        private_expert_bytes);
    add("experts in a weight cache of memory", cached_expert_bytes);
    return text;
}

std::string InstanceMemory::remedy() const {
    std::string text;
    // Where rows are most of it, the rest hardly matters.
    const uint64_t exchanged_bytes = pass_bytes + segment_bytes + window_bytes;
    const uint64_t expert_bytes = private_expert_bytes + cached_expert_bytes;
    if (exchanged_bytes > attention_bytes + kv_bytes + expert_bytes) {
        text = "lower micro_batches or micro_batch_size, ";
    }
    if (cache_room.lacking_bytes() > 0 || cached_expert_bytes > 0) {
        text += "make room for the weight cache, or name one on a disk (weight_cache), ";
    } else if (private_expert_bytes > 0) {
        text += "let workers share their experts (weight_cache), ";
    }
    if (num_attention_workers > 0) {
        text += "lower attention_workers or kv_tokens, choose a smaller kv_dtype, ";
    }
    return text + "take a smaller or quantised model (afd-quantize), or run workers on more hosts";
}

InstanceMemory memory_on(const std::string& host,
                         bool has_weight_cache,
                         const Config& config,
                         const MemorySources& sources) {
    InstanceMemory memory;
    const HostPlan plan(config);
    memory.num_attention_workers = plan.num_workers(control::ATTENTION, host);
    if (memory.num_attention_workers > 0) {
        memory.attention_bytes = memory.num_attention_workers * attention_bytes_per_worker(sources);
        memory.kv_bytes = memory.num_attention_workers * kv_bytes_per_worker(config, sources.model);
    }
    memory.pass_bytes = pass_bytes_on(plan, host, config, sources);
    memory.segment_bytes = segment_bytes_on(host, config, sources.layout);
    memory.window_bytes = window_bytes_on(host, config, sources.layout);
    const ExpertSum experts = experts_on(host, config, sources);
    if (has_weight_cache) {
        memory.mapped_expert_bytes = experts.of_each_once();
    } else {
        memory.private_expert_bytes = experts.of_workers();
    }
    return memory;
}

InstanceMemory memory_here(const Config& config, const MemorySources& sources) {
    InstanceMemory memory = memory_on("", shares_experts(config), config, sources);
    if (memory.mapped_expert_bytes == 0) return memory;
    memory.cache_room = cache_room_of(config, sources);
    return fit_into_cache(memory, experts_on("", config, sources).of_workers());
}

Result<> check_room_for(const InstanceMemory& memory,
                        const std::string& others,
                        const std::string& remedy) {
    const uint64_t num_bytes = memory.private_bytes();
    const uint64_t num_available = schedule::available_memory_bytes();
    if (num_bytes <= num_available) return {};
    return resource_exhausted(
        "the workers of this host need {} MiB of memory{} ({}), and {} MiB are available{}: {}",
        with(num_bytes >> 20,
             others,
             memory.private_text(),
             num_available >> 20,
             schedule::available_where(),
             remedy.empty() ? memory.remedy() : remedy));
}

Result<> check_room_on(const std::string& host,
                       const InstanceMemory& memory,
                       uint64_t num_available) {
    const uint64_t num_bytes = memory.private_bytes();
    if (num_bytes <= num_available) return {};
    return resource_exhausted(
        "host '{}' has no room for its workers: they need {} MiB of memory ({}), and {} MiB are "
        "available there: {}",
        with(host, num_bytes >> 20, memory.private_text(), num_available >> 20, memory.remedy()));
}

}  // namespace afd::daemon

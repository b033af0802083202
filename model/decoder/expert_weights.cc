// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/expert_weights.h"

#include <poll.h>

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/expert_cache.h"
#include "model/decoder/private_expert.h"

namespace afd::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 10;

// The slots of one layer, by logical expert.
struct LayerSlots {
    std::vector<uint32_t> experts;
    std::vector<size_t> keys;
};
using SlotsByLayer = std::map<uint32_t, LayerSlots>;

SlotsByLayer by_layer(std::span<const ExpertSlot> slots) {
    SlotsByLayer layers;
    for (const ExpertSlot& slot : slots) {
        layers[slot.layer].experts.push_back(slot.expert);
        layers[slot.layer].keys.push_back(slot.key);
    }
    return layers;
}

Result<> check_slots(const ModelConfig& config, std::span<const ExpertSlot> slots) {
    for (const ExpertSlot& slot : slots) {
        const uint32_t num_experts =
            slot.layer < config.num_layers ? num_layer_experts(config, slot.layer) : 0;
        if (slot.expert < num_experts) continue;
        return no_such_expert(config, slot.layer, slot.expert);
    }
    return {};
}

// One load through the cache: maps what is there, packs what is missing.
class CachedLoad {
  public:
    CachedLoad(const ExpertCache& cache,
               const SlotsByLayer& layers,
               ops::Parallel& parallel,
               LoadedExperts& out)
        : cache_(cache), layers_(layers), parallel_(parallel), out_(out) {}

    // Layers that are to be packed into private memory remain in left().
    Result<> run(uint64_t wait_ms) {
        for (const auto& [layer, slots] : layers_) {
            checks_all_ = checks_all_ || cache_.is_condemned(layer);
        }
        auto outcome = Outcome::kBusy;
        for (const auto& [layer, slots] : layers_) {
            const Outcome mapped = map(layer, slots, out_.report.num_mapped);
            if (mapped == Outcome::kGiveUp) outcome = mapped;
            if (mapped != Outcome::kMapped) left_.emplace(layer, slots);
        }
        auto deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
        while (!left_.empty() && outcome != Outcome::kGiveUp) {
            AFD_ASSIGN(outcome, sweep());
            // The deadline is one for standing still. Another process that packs may take as long
            // as it needs; only one that is stopped, or a disk that hangs, is waited for in vain.
            if (outcome == Outcome::kMapped || others_move()) {
                deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
            } else if (Clock::now() >= deadline) {
                warn("another process has packed layer " + std::to_string(left_.begin()->first) +
                     " of the weight cache for " + std::to_string(wait_ms) +
                     " ms without getting on");
                break;
            }
            if (outcome == Outcome::kBusy) ::poll(nullptr, 0, kPollMs);
        }
        return {};
    }

    const SlotsByLayer& left() const { return left_; }

  private:
    enum class Outcome {
        kMapped,
        kPack,    // There is no good file.
        kBusy,    // Another process is packing.
        kGiveUp,  // The cache is of no use to this process; the report says why.
    };

    // A layer's file, if there is a good one: else kPack or kGiveUp.
    Outcome map(uint32_t layer, const LayerSlots& slots, size_t& counter) {
        auto file = cache_.map(layer);
        if (!file.ok()) return without_file(file.error());
        if (checks_all_) {
            const Result<> checked = ExpertCache::verify(file.value(), slots.experts, parallel_);
            if (!checked.ok()) return without_file(checked.error());
        }
        std::vector<MappedExperts::Place> places;
        for (size_t i = 0; i < slots.experts.size(); ++i) {
            ops::PackedExpert expert = cache_.view(file.value(), layer, slots.experts[i]);
            out_.report.mapped_bytes += expert.gate_up.size_bytes() + expert.down.size_bytes();
            out_.table.set(slots.keys[i], std::move(expert));
            places.push_back({slots.keys[i], ExpertCache::blocks(slots.experts[i])});
        }
        out_.mapped->add(std::move(file).value(), places);
        ++counter;
        return Outcome::kMapped;
    }

    Outcome without_file(const Error& error) {
        if (error.code == Code::kNotFound) return Outcome::kPack;
        if (error.code != Code::kDataLoss && error.code != Code::kFailedPrecondition) {
            // Of this process and not of the file, which serves others, and may serve it next time.
            return give_up(error);
        }
        warn(error.message + "; packing again");
        return Outcome::kPack;
    }

    // A step for each layer that is left. kMapped: one or more have come; kBusy: others have all.
    Result<Outcome> sweep() {
        auto sum = Outcome::kBusy;
        for (auto at = left_.begin(); at != left_.end();) {
            AFD_ASSIGN(const Outcome outcome, step(at->first, at->second));
            if (outcome == Outcome::kGiveUp) return outcome;
            if (outcome == Outcome::kMapped) sum = outcome;
            at = outcome == Outcome::kMapped ? left_.erase(at) : std::next(at);
        }
        return sum;
    }

    // Packs the layer, if nobody else is at it, and maps it.
    Result<Outcome> step(uint32_t layer, const LayerSlots& slots) {
        auto lock = cache_.try_lock(layer);
        if (!lock.ok()) return give_up(lock.error());
        // The sweep goes on with the next layer, so that workers which start together share the
        // work.
        if (!lock.value()) return Outcome::kBusy;
        // Under the lock: another process may have finished it since the last look.
        const Outcome found = map(layer, slots, out_.report.num_mapped);
        if (found != Outcome::kPack) return found;
        std::optional<Error> problem;
        AFD_TRY(cache_.write(layer, parallel_, problem));
        if (problem) return give_up(*problem);
        // What was written and reads back wrong would do so again; the reason is in the warning.
        const Outcome written = map(layer, slots, out_.report.num_written);
        return written == Outcome::kPack ? Outcome::kGiveUp : written;
    }

    bool others_move() {
        // Unsigned: the times of a few layers are beyond 64 bits, and only a change counts.
        uint64_t sum = 0;
        for (const auto& [layer, slots] : left_) sum += cache_.progress(layer);
        return std::exchange(progress_, sum) != sum;
    }

    Outcome give_up(const Error& error) {
        warn(error.message);
        return Outcome::kGiveUp;
    }

    void warn(const std::string& text) {
        if (out_.report.warning.empty()) out_.report.warning = text;
    }

    const ExpertCache& cache_;
    const SlotsByLayer& layers_;
    ops::Parallel& parallel_;
    LoadedExperts& out_;
    SlotsByLayer left_;
    uint64_t progress_ = 0;
    bool checks_all_ = false;  // Before they are used: one was found damaged.
};

// Through the cache; what could not be taken from it remains. An error is one of the model.
Result<SlotsByLayer> load_cached(const WeightCache& cache,
                                 const ModelFiles& files,
                                 ops::NumericClass numeric_class,
                                 const SlotsByLayer& layers,
                                 uint64_t wait_ms,
                                 ops::Parallel& parallel,
                                 LoadedExperts& out) {
    const auto experts = ExpertCache::open(cache, files, numeric_class);
    if (!experts.ok()) {
        out.report.warning = experts.error().message;
        return layers;
    }
    out.mapped = std::make_unique<MappedExperts>(out.table.num_keys());
    out.table.set_first_use(out.mapped.get());
    CachedLoad load(experts.value(), layers, parallel, out);
    AFD_TRY(load.run(wait_ms));
    return load.left();
}

Result<> load_private(const ModelFiles& files,
                      const SlotsByLayer& layers,
                      ops::NumericClass numeric_class,
                      ops::Parallel& parallel,
                      LoadedExperts& out) {
    std::vector<ExpertSlot> slots;
    for (const auto& [layer, experts] : layers) {
        for (size_t i = 0; i < experts.experts.size(); ++i) {
            slots.push_back({layer, experts.experts[i], experts.keys[i]});
        }
    }
    std::vector<ops::PackedExpert> packed(slots.size());
    // The first in order and not the first in time, so that the message does not depend on the
    // threads.
    std::vector<std::optional<Error>> problems(slots.size());
    parallel.run(slots.size(), [&](size_t task, unsigned) {
        auto expert = load_expert(files, slots[task].layer, slots[task].expert, numeric_class);
        if (expert.ok()) {
            packed[task] = std::move(expert).value();
        } else {
            problems[task] = expert.error();
        }
    });
    for (size_t i = 0; i < slots.size(); ++i) {
        if (problems[i]) return *problems[i];
        out.table.set(slots[i].key, std::move(packed[i]));
    }
    out.report.num_private = layers.size();
    return {};
}

// They are not part of what is packed: the cache's files stay as they are.
Result<> load_smooth(const ModelFiles& files,
                     std::span<const ExpertSlot> slots,
                     ops::ExpertTable& table) {
    if (!files.config().quantisation.smooth) return {};
    for (const ExpertSlot& slot : slots) {
        AFD_ASSIGN(std::vector<float> smooth,
                   read_smooth_scale(files.tensors(), files.config(), slot.layer, slot.expert));
        table.set_smooth(slot.key, std::move(smooth));
    }
    return {};
}

// Nor are these.
Result<> load_output_gates(const ModelFiles& files,
                           std::span<const ExpertSlot> slots,
                           ops::ExpertTable& table) {
    for (const ExpertSlot& slot : slots) {
        AFD_ASSIGN(std::vector<float> gate,
                   read_output_gate(files.tensors(), files.config(), slot.layer, slot.expert));
        if (!gate.empty()) table.set_output_gate(slot.key, std::move(gate));
    }
    return {};
}

// Nor are these.
Result<> load_biases(const ModelFiles& files,
                     std::span<const ExpertSlot> slots,
                     ops::ExpertTable& table) {
    if (!files.config().has_expert_bias) return {};
    for (const ExpertSlot& slot : slots) {
        AFD_ASSIGN(const ExpertBiases bias,
                   read_expert_biases(files.tensors(), files.config(), slot.layer, slot.expert));
        table.set_bias(slot.key, {.gate = bias.gate, .up = bias.up, .down = bias.down});
    }
    return {};
}

}  // namespace

Result<LoadedExperts> load_experts(const ModelFiles& files,
                                   std::span<const ExpertSlot> slots,
                                   size_t num_keys,
                                   ops::NumericClass numeric_class,
                                   ops::Parallel& parallel,
                                   const WeightCache& cache,
                                   uint64_t wait_ms) {
    AFD_TRY(check_slots(files.config(), slots));
    LoadedExperts loaded;
    loaded.table = ops::ExpertTable(num_keys, files.config().hidden, files.config().activation);
    loaded.table.set_int4_rows(files.config().quantisation.int4_rows);
    SlotsByLayer layers = by_layer(slots);
    if (cache.is_on()) {
        AFD_ASSIGN(layers,
                   load_cached(cache, files, numeric_class, layers, wait_ms, parallel, loaded));
    }
    AFD_TRY(load_private(files, layers, numeric_class, parallel, loaded));
    AFD_TRY(load_smooth(files, slots, loaded.table));
    AFD_TRY(load_output_gates(files, slots, loaded.table));
    AFD_TRY(load_biases(files, slots, loaded.table));
    return loaded;
}

std::vector<ExpertSlot> all_expert_slots(const ModelConfig& config) {
    std::vector<ExpertSlot> slots;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (uint32_t expert = 0; expert < num_layer_experts(config, layer); ++expert) {
            slots.push_back({layer, expert, layer * experts_per_layer(config) + expert});
        }
    }
    return slots;
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "model/expert_weights.h"

#include <optional>
#include <utility>

#include "model/expert_tensors.h"

namespace afd::model {

Result<ops::ExpertTable> load_experts(const ModelFiles& files,
                                      std::span<const ExpertSlot> slots,
                                      size_t num_keys,
                                      ops::NumericClass numeric_class,
                                      ops::Parallel& parallel) {
    std::vector<ops::PackedExpert> experts(slots.size());
    std::vector<std::optional<Error>> problems(slots.size());
    parallel.run(slots.size(), [&](size_t task, unsigned) {
        const ExpertSlot& slot = slots[task];
        const auto tensors =
            read_expert_tensors(files.tensors(), files.config(), slot.layer, slot.expert);
        if (!tensors.ok()) {
            problems[task] = tensors.error();
            return;
        }
        const ExpertTensors& mlp = tensors.value();
        experts[task] =
            ops::pack_expert(mlp.gate_rows(), mlp.up_rows(), mlp.down_rows(), numeric_class);
    });
    ops::ExpertTable table(num_keys, files.config().hidden);
    for (size_t i = 0; i < slots.size(); ++i) {
        if (problems[i]) return *problems[i];
        table.set(slots[i].key, std::move(experts[i]));
    }
    return table;
}

std::vector<ExpertSlot> all_expert_slots(const ModelConfig& config) {
    std::vector<ExpertSlot> slots;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const size_t num_experts = config.is_moe_layer(layer) ? experts_per_layer(config) : 1;
        for (uint32_t expert = 0; expert < num_experts; ++expert) {
            slots.push_back({layer, expert, layer * experts_per_layer(config) + expert});
        }
    }
    return slots;
}

}  // namespace afd::model

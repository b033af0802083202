// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/smooth_scales.h"

#include <algorithm>

#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/expert_weights.h"

namespace afd::model {

Result<SmoothScales> SmoothScales::load(const ModelFiles& files) {
    const ModelConfig& config = files.config();
    SmoothScales scales;
    if (!config.quantisation.smooth) return scales;
    scales.hidden_ = config.hidden;
    scales.experts_per_layer_ = std::max<size_t>(1, model::experts_per_layer(config));
    // 1 where there is no expert, so that a look needs no test.
    scales.values_.resize(config.num_layers * scales.experts_per_layer_ * scales.hidden_, 1.0f);
    for (const ExpertSlot& slot : all_expert_slots(config)) {
        AFD_ASSIGN(const std::vector<float> values,
                   read_smooth_scale(files.tensors(), config, slot.layer, slot.expert));
        const size_t place = slot.layer * scales.experts_per_layer_ + slot.expert;
        std::copy(values.begin(),
                  values.end(),
                  scales.values_.begin() + static_cast<std::ptrdiff_t>(place * scales.hidden_));
    }
    return scales;
}

}  // namespace afd::model

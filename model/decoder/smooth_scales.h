// SPDX-License-Identifier: Apache-2.0
#pragma once

// SmoothScales: by what the input of each expert is multiplied before it is quantised to int8, for
// those who quantise rows that they send to experts which they do not hold. Whoever holds an
// expert has its scales in the expert table.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/family/model_files.h"
#include "proto/status.h"

namespace afd::model {

class SmoothScales {
  public:
    SmoothScales() = default;

    // Empty for a model that has none. Errors: those of read_smooth_scale().
    static Result<SmoothScales> load(const ModelFiles& files);

    bool empty() const { return values_.empty(); }

    // [hidden], of a logical expert of the layer; null if empty().
    const float* of(uint32_t layer, uint32_t expert) const {
        if (empty()) return nullptr;
        return &values_[(layer * experts_per_layer_ + expert) * hidden_];
    }

  private:
    size_t experts_per_layer_ = 0;
    size_t hidden_ = 0;
    std::vector<float> values_;  // [layers, experts_per_layer, hidden]
};

}  // namespace afd::model

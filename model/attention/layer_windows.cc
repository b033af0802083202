// SPDX-License-Identifier: Apache-2.0
#include "model/attention/layer_windows.h"

#include <algorithm>

#include "model/attention/attention_config.h"

namespace afd::model {

LayerWindows LayerWindows::of(const ModelConfig& config) {
    LayerWindows layers;
    if (config.attention->window() != 0) return layers;
    layers.is_windowed.resize(config.num_layers);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const uint32_t window = config.attention->layer_window(layer);
        layers.is_windowed[layer] = window != 0;
        layers.window = std::max(layers.window, window);
    }
    if (layers.window == 0) layers.is_windowed.clear();
    return layers;
}

uint32_t LayerWindows::num_windowed() const {
    return static_cast<uint32_t>(std::ranges::count(is_windowed, true));
}

WindowedLayers LayerWindows::room(const ModelConfig& config,
                                  uint64_t kv_tokens,
                                  uint32_t sequences) const {
    const uint64_t blocks = held_blocks(config.context_length, window) * sequences;
    return {.is_windowed = is_windowed, .num_tokens = std::min(kv_tokens, blocks * kKvBlockTokens)};
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerWindows: the layers of a model that have a window beside others that see all positions
// (gpt-oss). They keep a cache of their own, in which a sequence holds only what its window needs,
// whatever it holds in the others. Where every layer has a window, or none, there is no second
// cache, and AttentionConfig::window() says it all.

#include <cstdint>
#include <vector>

#include "model/attention/kv_cache.h"
#include "model/checkpoint/config.h"

namespace afd::model {

struct LayerWindows {
    uint32_t window = 0;            // The longest of them; 0: no such layers.
    std::vector<bool> is_windowed;  // [num_layers], or empty.

    static LayerWindows of(const ModelConfig& config);

    uint32_t num_windowed() const;

    // The layers and the room that they need for as many sequences, of the longest context, or as
    // many as fit into `kv_tokens` of the other layers.
    WindowedLayers room(const ModelConfig& config, uint64_t kv_tokens, uint32_t sequences) const;
};

}  // namespace afd::model

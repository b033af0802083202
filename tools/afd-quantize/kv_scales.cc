// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "model/family/model_files.h"
#include "model/mla/mla_block.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_tensors.h"
#include "model/safetensors/safetensors_writer.h"
#include "proto/failure.h"
#include "tools/afd-quantize/perplexity.h"

namespace afd::tools {
namespace {

// The largest magnitude of each channel, of all layers.
struct CacheRanges {
    CacheRanges(const ops::MlaShape& shape, size_t num_layers)
        : latent(num_layers, std::vector<float>(shape.kv_lora_rank)),
          key(num_layers, std::vector<float>(shape.qk_rope_head_dim)) {}

    void widen(const ops::MlaShape& shape,
               uint32_t layer,
               const model::KvLayer& cache,
               size_t num_tokens) {
        const ops::LatentCache rows = model::latent_cache(cache, shape);
        widen_columns({rows.ckv, num_tokens * shape.kv_lora_rank}, latent[layer]);
        widen_columns({rows.kr, num_tokens * shape.qk_rope_head_dim}, key[layer]);
    }

    ChannelRanges latent;
    ChannelRanges key;
};

// The largest becomes 127. Errors: kInternal: a value that is no number.
Result<> to_factors(std::vector<float>& ranges) {
    for (float& value : ranges) {
        value = value > 0 ? 127.0f / value : 1.0f;
        if (value > 0 && std::isfinite(value)) continue;
        return internal("the cache holds values that are no numbers, or are too small: {}",
                        with(value));
    }
    return {};
}

}  // namespace

Result<> write_kv_scales(const std::string& model_directory,
                         const TextSample& text,
                         model::WholeFile file,
                         const std::string& scratch,
                         ops::Parallel& parallel,
                         const std::function<void(double)>& progress) {
    AFD_ASSIGN(const model::ModelConfig config, model::load_model_config(model_directory));
    AFD_ASSIGN(const ops::MlaShape shape, model::mla_shape_of(config));
    CacheRanges ranges(shape, config.num_layers);
    PerplexityOptions options;
    options.on_cache = [&](uint32_t layer, const model::KvLayer& cache, size_t num_tokens) {
        ranges.widen(shape, layer, cache, num_tokens);
    };
    AFD_TRY(measure_perplexity(model_directory, text, scratch, parallel, progress, options));
    std::vector<model::TensorToWrite> tensors;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const auto add = [&](const std::string& name, std::vector<float>& values) -> Result<> {
            AFD_TRY(to_factors(values));
            tensors.push_back({.name = name,
                               .dtype = model::StorageType::kF32,
                               .shape = {values.size()},
                               .data = std::as_bytes(std::span(values))});
            return {};
        };
        AFD_TRY(add(model::latent_scale_name(layer), ranges.latent[layer]));
        AFD_TRY(add(model::key_scale_name(layer), ranges.key[layer]));
    }
    return model::write_safetensors(std::move(file), tensors);
}

}  // namespace afd::tools

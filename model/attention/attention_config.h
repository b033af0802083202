// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionConfig: the part of a ModelConfig that is particular to one kind of attention: its
// dimensions, and everything that follows from them: what it keeps in the cache, which tensors it
// reads, and the block that computes it. One kind serves many families (model/family/family.h).
//
// Implementations: MlaConfig (model/mla/mla_config.h), GqaConfig (model/gqa/gqa_config.h); a third,
// outside model/, in tests/model/toy_family/.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/format/kv_dtype.h"
#include "ops/format/numeric_class.h"
#include "ops/format/weight_format.h"
#include "proto/status.h"

namespace afd::model {

class AttentionBlock;

// A matrix that a checkpoint may store in another format than bf16.
struct AttentionMatrix {
    std::string prefix;  // "model.layers.3.self_attn.o_proj": what stands before ".weight".
    uint64_t num_outputs = 0;
    uint64_t depth = 0;
};

// Immutable, shared by the copies of a ModelConfig. `config` is always one that holds this object.
class AttentionConfig {
  public:
    virtual ~AttentionConfig() = default;

    // What a token leaves in the cache of one layer, the same in every layer; the block that
    // load() makes is the only one who knows what these bytes mean. REQUIRES: one of kv_dtypes().
    virtual uint64_t cache_bytes_per_token(ops::KvDtype dtype) const = 0;

    // How its cache can be kept (config.quantisation.kv); bf16 is one of them.
    virtual std::span<const ops::KvDtype> kv_dtypes() const = 0;

    // Positions that a token sees in the layer with the longest view, its own included; 0: all.
    // What lies behind may leave the cache.
    virtual uint32_t window() const { return 0; }

    // Positions that a token sees in this layer, its own included; 0: all.
    virtual uint32_t layer_window(uint32_t /*layer*/) const { return window(); }

    // The formats that matrices() may have; bf16 is one of them.
    virtual std::span<const ops::WeightFormat> formats() const = 0;

    // The matrices that are stored in config.quantisation.attention, for whoever rewrites them.
    virtual std::vector<AttentionMatrix> matrices(const ModelConfig& config,
                                                  uint32_t layer) const = 0;

    // Loads and packs the weights of these layers; the block serves no others.
    // Errors: those of TensorStore; each names the file, the tensor and both shapes.
    virtual Result<std::unique_ptr<AttentionBlock>> load(const ModelConfig& config,
                                                         const TensorStore& tensors,
                                                         ops::NumericClass numeric_class,
                                                         LayerRange layers) const = 0;
};

}  // namespace afd::model

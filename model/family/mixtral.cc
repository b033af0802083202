// SPDX-License-Identifier: Apache-2.0
#include "model/family/mixtral.h"

#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_mixtral(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    // What these mean where a file leaves them out.
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 1e6;
    read_dimensions(keys, config);
    config.attention = std::make_shared<const GqaConfig>(read_gqa_traits(keys, config.hidden));
    config.moe_intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.num_experts = keys.count("num_local_experts", 1, kExpertsMax, {});
    read_softmax_router(keys, config, true);
    config.names.router = "block_sparse_moe.gate";
    config.names.experts = "block_sparse_moe.experts";
    config.names.gate = "w1";
    config.names.up = "w3";
    config.names.down = "w2";
    read_rope(keys, config);
}

constexpr std::array kMixtralFamilies = {
    Family{"mixtral", "MixtralForCausalLM", &read_mixtral},
};

}  // namespace

std::span<const Family> mixtral_families() {
    return kMixtralFamilies;
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "model/family/mixtral.h"

#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_mixtral(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    // What these mean where a file leaves them out.
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 1e6;
    read_dimensions(keys, config);
    read_rope(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.windows = read_windows(keys, config);
    config.attention = std::make_shared<const GqaConfig>(traits);
    read_block_sparse_moe(keys, config);
}

constexpr std::array kMixtralFamilies = {
    Family{"mixtral", "MixtralForCausalLM", &read_mixtral},
};

}  // namespace

std::span<const Family> mixtral_families() {
    return kMixtralFamilies;
}

}  // namespace afd::model

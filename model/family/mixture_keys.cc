// SPDX-License-Identifier: Apache-2.0
#include "model/family/mixture_keys.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/family/decoder_keys.h"

namespace afd::model {

void refuse_other_decoders(KeyReader& keys) {
    keys.choice("hidden_act", "silu", {"silu"});
    const nlohmann::json* use = keys.find("use_sliding_window");
    keys.refuse_unless("use_sliding_window", false);
    if (use == nullptr) keys.refuse_if_given("sliding_window", "null");
    const nlohmann::json* types = keys.find("layer_types");
    if (types == nullptr) return;
    for (const nlohmann::json& type :
         types->is_array() ? *types : nlohmann::json::array({*types})) {
        if (type == "full_attention") continue;
        return keys.refuse(
            Code::kUnimplemented, "layer_types", "\"full_attention\" for each layer");
    }
}

void read_softmax_router(KeyReader& keys, ModelConfig& config, bool norm_topk_prob) {
    config.scoring_func = ScoringFunc::kSoftmax;
    config.topk_method = TopkMethod::kGreedy;
    config.norm_topk_prob = norm_topk_prob;
    config.top_k = keys.count("num_experts_per_tok", 1, kTopKMax, {});
    if (config.top_k > config.num_experts) {
        keys.refuse(Code::kInvalidArgument,
                    "num_experts_per_tok",
                    fmt::format("at most the {} experts of a layer", config.num_experts));
    }
}

}  // namespace afd::model

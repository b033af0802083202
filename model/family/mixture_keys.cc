// SPDX-License-Identifier: Apache-2.0
#include "model/family/mixture_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/checkpoint/tensor_names.h"
#include "model/family/decoder_keys.h"

namespace afd::model {
namespace {

constexpr const char* kFullAttention = "full_attention";
constexpr std::string_view kBlockSparseMoe = "block_sparse_moe.";

// Whether each layer has a window.
std::vector<bool> read_sliding_layers(KeyReader& keys, uint32_t num_layers, bool usual) {
    const nlohmann::json* types = keys.find("layer_types");
    const bool is_used = keys.flag("use_sliding_window", usual);
    if (types == nullptr) {
        if (is_used && keys.find("use_sliding_window") != nullptr) {
            // Which layers then have it differs between programs.
            keys.refuse(
                Code::kUnimplemented, "use_sliding_window", "false, or true with layer_types");
        }
        return std::vector<bool>(num_layers, is_used && keys.find("sliding_window") != nullptr);
    }
    std::vector<bool> is_sliding(num_layers, false);
    if (!types->is_array() || types->size() != num_layers) {
        keys.refuse(
            Code::kInvalidArgument, "layer_types", fmt::format("a list of {} types", num_layers));
        return is_sliding;
    }
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        if (types->at(layer) == kFullAttention) continue;
        if (types->at(layer) != "sliding_attention") {
            keys.refuse(Code::kUnimplemented,
                        "layer_types",
                        "\"sliding_attention\" or \"full_attention\" for each layer");
        }
        is_sliding[layer] = is_used;
    }
    return is_sliding;
}

}  // namespace

void refuse_other_decoders(KeyReader& keys) {
    keys.choice("hidden_act", "silu", {"silu"});
}

void refuse_windows(KeyReader& keys) {
    const nlohmann::json* types = keys.find("layer_types");
    if (types == nullptr || types->empty()) {
        keys.refuse_unless("use_sliding_window", false);
        const bool is_off = keys.find("use_sliding_window") != nullptr;
        if (!is_off) keys.refuse_if_given("sliding_window", "null");
        return;
    }
    for (const nlohmann::json& type :
         types->is_array() ? *types : nlohmann::json::array({*types})) {
        if (type == kFullAttention) continue;
        return keys.refuse(
            Code::kUnimplemented, "layer_types", "\"full_attention\" for each layer");
    }
}

std::vector<uint32_t> read_windows(KeyReader& keys, const ModelConfig& config, bool usual) {
    const std::vector<bool> is_sliding = read_sliding_layers(keys, config.num_layers, usual);
    std::vector<uint32_t> windows(config.num_layers, 0);
    if (std::ranges::find(is_sliding, true) == is_sliding.end()) return windows;
    const uint32_t window = keys.count("sliding_window", 1, 1u << 24, {});
    // One as long as the context sees everything.
    if (window >= config.context_length) return windows;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        if (is_sliding[layer]) windows[layer] = window;
    }
    return windows;
}

uint32_t read_num_experts(KeyReader& keys, const std::string& usual) {
    const std::string other = usual == "num_experts" ? "num_local_experts" : "num_experts";
    if (keys.find(other) == nullptr) return keys.count(usual.c_str(), 1, kExpertsMax, {});
    const uint32_t count = keys.count(other.c_str(), 1, kExpertsMax, {});
    if (keys.count(usual.c_str(), 1, kExpertsMax, count) != count) {
        keys.refuse(Code::kInvalidArgument, usual, fmt::format("{}, as {} has it", count, other));
    }
    return count;
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

void read_block_sparse_moe(KeyReader& keys, ModelConfig& config) {
    config.moe_intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.num_experts = read_num_experts(keys, "num_local_experts");
    read_softmax_router(keys, config, true);
    config.names.router = std::string(kBlockSparseMoe) + "gate";
    config.names.experts = std::string(kBlockSparseMoe) + "experts";
    config.names.gate = "w1";
    config.names.up = "w3";
    config.names.down = "w2";
}

void settle_mixture_names(const TensorStore& tensors, ModelConfig& config) {
    TensorNames& names = config.names;
    const std::string usual = TensorNames().router + ".weight";
    // Families of this kind have experts in every layer.
    if (!names.router.starts_with(kBlockSparseMoe) ||
        tensors.holds(layer_tensor(0, names.router + ".weight")) ||
        !tensors.holds(layer_tensor(0, usual))) {
        return;
    }
    for (std::string* name : {&names.router, &names.experts, &names.router_bias}) {
        if (name->starts_with(kBlockSparseMoe)) name->replace(0, kBlockSparseMoe.size(), "mlp.");
    }
}

}  // namespace afd::model

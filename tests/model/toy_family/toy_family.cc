// SPDX-License-Identifier: Apache-2.0
#include "tests/model/toy_family/toy_family.h"

#include <memory>
#include <string>

#include "model/family/decoder_keys.h"
#include "model/family/rope_keys.h"
#include "tests/model/toy_family/toy_attention.h"

namespace afd::model {
namespace {

std::shared_ptr<const ToyAttention> read_attention(KeyReader& keys, uint32_t hidden) {
    const uint32_t num_heads = keys.count("num_attention_heads", 1, kHeadsMax, {});
    const uint32_t num_kv_heads = keys.count("num_key_value_heads", 1, num_heads, {});
    if (num_heads % num_kv_heads != 0) {
        keys.refuse(Code::kInvalidArgument,
                    "num_key_value_heads",
                    "a divisor of num_attention_heads, " + std::to_string(num_heads));
    }
    const uint32_t head_dim = keys.count("head_dim", 2, kDimensionMax, {});
    if (head_dim % 2 != 0) keys.refuse(Code::kInvalidArgument, "head_dim", "an even number");
    return std::make_shared<const ToyAttention>(ToyShape{.hidden = hidden,
                                                         .num_heads = num_heads,
                                                         .num_kv_heads = num_kv_heads,
                                                         .head_dim = head_dim});
}

void read_toy(KeyReader& keys, ModelConfig& config) {
    keys.refuse_if_given("sliding_window", "null");
    keys.refuse_if_given("rope_scaling", "null");
    read_dimensions(keys, config);
    read_rope(keys, config);
    config.attention = read_attention(keys, config.hidden);
    config.moe_intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.num_experts = keys.count("num_local_experts", 1, kExpertsMax, {});
    config.top_k = keys.count("num_experts_per_tok", 1, kTopKMax, {});
    if (config.top_k > config.num_experts) {
        keys.refuse(Code::kInvalidArgument,
                    "num_experts_per_tok",
                    "at most num_local_experts, " + std::to_string(config.num_experts));
    }
    config.scoring_func = ScoringFunc::kSoftmax;
    config.topk_method = TopkMethod::kGreedy;
    config.norm_topk_prob = true;
    config.names.router = "block_sparse_moe.gate";
    config.names.experts = "block_sparse_moe.experts";
    config.names.gate = "w1";
    config.names.up = "w3";
    config.names.down = "w2";
}

}  // namespace

Family toy_family() {
    return {.model_type = "toy_gqa", .architecture = "ToyGqaForCausalLM", .read = &read_toy};
}

}  // namespace afd::model

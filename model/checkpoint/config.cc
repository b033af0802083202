// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/config.h"

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "model/checkpoint/json_document.h"
#include "model/checkpoint/token_ids.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kTopKMax = 64;
constexpr uint32_t kContextMax = 1u << 24;

std::string shown(const Json* value) {
    return value == nullptr ? std::string("missing")
                            : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Reads keys of one JSON object and keeps the first problem. A key that is absent or null takes its
// default, if it has one.
class KeyReader {
  public:
    KeyReader(const Json& object, std::string origin)
        : object_(object), origin_(std::move(origin)) {}

    const Json* find(const char* key) const {
        const auto at = object_.find(key);
        return at == object_.end() || at->is_null() ? nullptr : &*at;
    }

    uint32_t count(const char* key, uint32_t low, uint32_t high, std::optional<uint32_t> fallback) {
        const Json* value = find(key);
        if (value == nullptr && fallback) return *fallback;
        if (value != nullptr && value->is_number_unsigned()) {
            const uint64_t number = value->get<uint64_t>();
            if (number >= low && number <= high) return static_cast<uint32_t>(number);
        }
        refuse(Code::kInvalidArgument,
               key,
               value,
               "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
        return low;
    }

    double positive(const char* key, std::optional<double> fallback) {
        const Json* value = find(key);
        if (value == nullptr && fallback) return *fallback;
        if (value != nullptr && value->is_number()) {
            const double number = value->get<double>();
            if (number > 0 && std::isfinite(number)) return number;
        }
        refuse(Code::kInvalidArgument, key, value, "a finite number above 0");
        return 1;
    }

    double not_negative(const char* key, double fallback) {
        const Json* value = find(key);
        if (value == nullptr) return fallback;
        if (value->is_number() && value->get<double>() == 0) return 0;
        return positive(key, std::nullopt);
    }

    bool flag(const char* key, bool fallback) {
        const Json* value = find(key);
        if (value == nullptr) return fallback;
        if (value->is_boolean()) return value->get<bool>();
        refuse(Code::kInvalidArgument, key, value, "true or false");
        return fallback;
    }

    // The text of a key that selects a behaviour; anything but `supported` is refused.
    std::string choice(const char* key,
                       std::string fallback,
                       std::initializer_list<const char*> supported) {
        const Json* value = find(key);
        if (value == nullptr) return fallback;
        std::string list;
        for (const char* name : supported) {
            if (value->is_string() && value->get_ref<const std::string&>() == name) return name;
            list += std::string(list.empty() ? "" : ", ") + '"' + name + '"';
        }
        refuse(Code::kUnimplemented, key, value, list);
        return fallback;
    }

    void refuse(Code code, const std::string& key, const Json* value, const std::string& allowed) {
        if (problem_) return;
        problem_ =
            Error{code, origin_ + ": " + key + " is " + shown(value) + "; supported: " + allowed};
    }

    // Takes over the problem of the reader of an inner object.
    void adopt(const KeyReader& inner) {
        if (!problem_) problem_ = inner.problem_;
    }

    bool failed() const { return problem_.has_value(); }
    const Error& problem() const { return *problem_; }
    const std::string& origin() const { return origin_; }

  private:
    const Json& object_;
    std::string origin_;
    std::optional<Error> problem_;
};

// The object that afd-quantize writes; that of other programs is refused.
void read_quantisation(KeyReader& keys, ModelConfig& config) {
    const Json* object = keys.find("quantization_config");
    if (object == nullptr) return;
    const auto text = [object](const char* key) -> std::string {
        const auto at = object->is_object() ? object->find(key) : object->end();
        return object->is_object() && at != object->end() && at->is_string()
                   ? at->get<std::string>()
                   : std::string();
    };
    const auto experts = ops::parse_weight_format(text("experts"));
    const auto attention = ops::parse_weight_format(text("attention"));
    const Json* smooth =
        object->is_object() && object->contains("smooth") ? &object->at("smooth") : nullptr;
    const bool is_smooth = smooth != nullptr && *smooth == true;
    const bool smooth_is_wrong = (smooth != nullptr && !smooth->is_boolean()) ||
                                 (is_smooth && (!experts || *experts != ops::WeightFormat::kInt8));
    if (text("quant_method") != "afd" || !experts || !attention || ops::is_int4(*attention) ||
        smooth_is_wrong) {
        return keys.refuse(
            Code::kUnimplemented,
            "quantization_config",
            object,
            "none, or what afd-quantize writes: {\"quant_method\": \"afd\", \"experts\": bf16, "
            "int8, int4-g32, int4-g64, int4-g32-fp16 or int4-g64-fp16, \"attention\": bf16 or "
            "int8} and, with int8 experts, \"smooth\": true or false; for a model that another "
            "program has quantised, run afd-quantize on the bf16 original");
    }
    config.quantisation = {.experts = *experts, .attention = *attention, .smooth = is_smooth};
}

// Settings that would change the computation and that this decoder does not have.
void refuse_unserved(KeyReader& keys) {
    for (const char* key : {"attention_bias", "mlp_bias"}) {
        if (keys.flag(key, false)) keys.refuse(Code::kUnimplemented, key, keys.find(key), "false");
    }
    keys.choice("hidden_act", "silu", {"silu"});
    if (!keys.flag("rope_interleave", true)) {
        keys.refuse(Code::kUnimplemented, "rope_interleave", keys.find("rope_interleave"), "true");
    }
    if (const Json* value = keys.find("sliding_window")) {
        keys.refuse(Code::kUnimplemented, "sliding_window", value, "null");
    }
}

void read_attention(KeyReader& keys, ModelConfig& config) {
    config.num_heads = keys.count("num_attention_heads", 1, 4096, {});
    const uint32_t kv_heads = keys.count("num_key_value_heads", 1, 4096, config.num_heads);
    if (kv_heads != config.num_heads) {
        keys.refuse(Code::kUnimplemented,
                    "num_key_value_heads",
                    keys.find("num_key_value_heads"),
                    "num_attention_heads, " + std::to_string(config.num_heads));
    }
    config.q_lora_rank = keys.count("q_lora_rank", 0, kDimensionMax, 0);
    config.kv_lora_rank = keys.count("kv_lora_rank", 1, kDimensionMax, {});
    config.qk_nope_head_dim = keys.count("qk_nope_head_dim", 1, kDimensionMax, {});
    config.qk_rope_head_dim = keys.count("qk_rope_head_dim", 2, kDimensionMax, {});
    if (config.qk_rope_head_dim % 2 != 0) {
        keys.refuse(Code::kInvalidArgument,
                    "qk_rope_head_dim",
                    keys.find("qk_rope_head_dim"),
                    "an even number");
    }
    config.v_head_dim = keys.count("v_head_dim", 1, kDimensionMax, {});
}

void read_scoring(KeyReader& keys, ModelConfig& config) {
    const bool is_v3 = config.model_type == "deepseek_v3";
    const std::string scoring = keys.choice(
        "scoring_func", is_v3 ? "sigmoid" : "softmax", {"sigmoid", "softmax", "sqrtsoftplus"});
    config.scoring_func = scoring == "sigmoid"   ? ScoringFunc::kSigmoid
                          : scoring == "softmax" ? ScoringFunc::kSoftmax
                                                 : ScoringFunc::kSqrtSoftplus;
    const std::string method = keys.choice("topk_method",
                                           is_v3 ? "noaux_tc" : "greedy",
                                           {"noaux_tc", "group_limited_greedy", "greedy"});
    config.topk_method = method == "noaux_tc" ? TopkMethod::kNoauxTc
                         : method == "greedy" ? TopkMethod::kGreedy
                                              : TopkMethod::kGroupLimitedGreedy;
    config.norm_topk_prob = keys.flag("norm_topk_prob", is_v3);
    config.routed_scaling_factor = keys.positive("routed_scaling_factor", 1.0);
    if (config.topk_method == TopkMethod::kGreedy) return;
    config.num_groups = keys.count("n_group", 1, config.num_experts, 1);
    config.topk_group = keys.count("topk_group", 1, config.num_groups, 1);
}

void read_experts(KeyReader& keys, ModelConfig& config) {
    config.intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.moe_intermediate = keys.count("moe_intermediate_size", 1, kDimensionMax, {});
    config.num_experts = keys.count("n_routed_experts", 1, 65536, {});
    config.num_shared_experts = keys.count("n_shared_experts", 0, 64, 0);
    config.top_k = keys.count("num_experts_per_tok", 1, kTopKMax, {});
    config.first_k_dense_replace = keys.count("first_k_dense_replace", 0, kLayersMax, 0);
    config.moe_layer_freq = keys.count("moe_layer_freq", 1, kLayersMax, 1);
    config.num_hash_layers = keys.count("num_hash_layers", 0, config.num_layers, 0);
    read_scoring(keys, config);
    if (keys.failed()) return;
    if (config.num_experts % config.num_groups != 0) {
        keys.refuse(Code::kInvalidArgument,
                    "n_group",
                    keys.find("n_group"),
                    "a divisor of n_routed_experts, " + std::to_string(config.num_experts));
    }
    const uint32_t eligible = config.num_experts / config.num_groups * config.topk_group;
    if (config.top_k > eligible) {
        keys.refuse(Code::kInvalidArgument,
                    "num_experts_per_tok",
                    keys.find("num_experts_per_tok"),
                    "at most the " + std::to_string(eligible) + " experts of topk_group groups");
    }
}

ops::YarnScaling read_yarn(KeyReader& keys, const ModelConfig& config) {
    ops::YarnScaling yarn;
    yarn.factor = keys.positive("factor", {});
    yarn.beta_fast = keys.positive("beta_fast", 32.0);
    yarn.beta_slow = keys.positive("beta_slow", 1.0);
    yarn.mscale = keys.not_negative("mscale", 1.0);
    yarn.mscale_all_dim = keys.not_negative("mscale_all_dim", 0.0);
    yarn.original_max_positions =
        keys.count("original_max_position_embeddings", 1, kContextMax, config.context_length);
    if (const Json* value = keys.find("attention_factor")) {
        keys.refuse(Code::kUnimplemented, "attention_factor", value, "none (mscale is used)");
    }
    if (!keys.flag("truncate", true)) {
        keys.refuse(Code::kUnimplemented, "truncate", keys.find("truncate"), "true");
    }
    return yarn;
}

// rope_theta and rope_scaling, or (transformers 5) both inside rope_parameters.
void read_rope(KeyReader& keys, ModelConfig& config) {
    config.rope_theta = keys.positive("rope_theta", 10000.0);
    const bool is_new = keys.find("rope_parameters") != nullptr;
    const char* name = is_new ? "rope_parameters" : "rope_scaling";
    const Json* object = keys.find(name);
    if (object == nullptr) return;
    if (!object->is_object()) {
        return keys.refuse(Code::kInvalidArgument, name, object, "an object or null");
    }
    KeyReader inner(*object, keys.origin() + ": " + name);
    if (is_new) config.rope_theta = inner.positive("rope_theta", config.rope_theta);
    const char* type_key = inner.find("rope_type") != nullptr ? "rope_type" : "type";
    const std::string type = inner.choice(type_key, "default", {"default", "yarn"});
    if (type == "yarn") config.yarn = read_yarn(inner, config);
    keys.adopt(inner);
}

void read_dimensions(KeyReader& keys, ModelConfig& config) {
    config.vocab_size = keys.count("vocab_size", 1, 1u << 24, {});
    config.hidden = keys.count("hidden_size", 1, kDimensionMax, {});
    config.num_layers = keys.count("num_hidden_layers", 1, kLayersMax, {});
    config.context_length = keys.count("max_position_embeddings", 1, kContextMax, {});
    config.rms_norm_eps = keys.positive("rms_norm_eps", 1e-6);
    config.tie_word_embeddings = keys.flag("tie_word_embeddings", false);
}

// model_type, or the architecture where a derived model has a type of its own.
std::string read_family(KeyReader& keys) {
    const Json* architectures = keys.find("architectures");
    if (architectures != nullptr && architectures->is_array() && architectures->size() == 1) {
        if (architectures->front() == "DeepseekV2ForCausalLM") return "deepseek_v2";
        if (architectures->front() == "DeepseekV3ForCausalLM") return "deepseek_v3";
        keys.refuse(Code::kUnimplemented,
                    "architectures",
                    architectures,
                    "[\"DeepseekV2ForCausalLM\"], [\"DeepseekV3ForCausalLM\"]");
    } else if (keys.find("model_type") == nullptr) {
        keys.refuse(
            Code::kInvalidArgument, "model_type", nullptr, "\"deepseek_v2\", \"deepseek_v3\"");
    }
    return keys.choice("model_type", "deepseek_v3", {"deepseek_v2", "deepseek_v3"});
}

}  // namespace

double ModelConfig::softmax_scale() const {
    const double scale = 1.0 / std::sqrt(static_cast<double>(qk_head_dim()));
    if (!yarn || yarn->mscale_all_dim == 0) return scale;
    const double mscale = ops::yarn_mscale(yarn->factor, yarn->mscale_all_dim);
    return scale * mscale * mscale;
}

std::string describe(const QuantisationConfig& quantisation) {
    const auto part = [](const char* what, ops::WeightFormat format) {
        return format == ops::WeightFormat::kBf16
                   ? std::string()
                   : std::string(what) + " " + std::string(ops::name_of(format));
    };
    const std::string experts =
        part("experts", quantisation.experts) + (quantisation.smooth ? " smooth" : "");
    const std::string attention = part("attention", quantisation.attention);
    if (experts.empty() && attention.empty()) return "bf16";
    return experts + (experts.empty() || attention.empty() ? "" : ", ") + attention;
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& origin) {
    AFD_ASSIGN(const Json object, parse_json(text, origin));
    if (!object.is_object()) {
        return Error{Code::kDataLoss, origin + ": not a JSON object"};
    }
    KeyReader keys(object, origin);
    ModelConfig config;
    config.model_type = read_family(keys);
    refuse_unserved(keys);
    read_quantisation(keys, config);
    read_dimensions(keys, config);
    read_attention(keys, config);
    if (keys.failed()) return keys.problem();
    read_experts(keys, config);
    read_rope(keys, config);
    if (keys.failed()) return keys.problem();

    AFD_ASSIGN(config.eos_token_ids,
               read_token_ids(object, "eos_token_id", config.vocab_size, origin));
    AFD_ASSIGN(const auto bos, read_token_ids(object, "bos_token_id", config.vocab_size, origin));
    if (!bos.empty()) config.bos_token_id = bos.front();
    return config;
}

}  // namespace afd::model

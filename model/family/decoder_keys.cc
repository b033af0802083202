// SPDX-License-Identifier: Apache-2.0
#include "model/family/decoder_keys.h"

#include <nlohmann/json.hpp>
#include <string>

#include "model/family/foreign_keys.h"
#include "ops/format/weight_format.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// fp8 in blocks of 128 x 128, as DeepSeek-V3 is released: its tensors say where it is (what stayed
// in bf16 is listed by no key), and are read as they stand (model/foreign/fp8_blocks.h). How
// other programs quantise activations for it while they run, or round scales, changes nothing here.
// Experts stay in it; what else there is becomes bf16 while it is read.
void read_fp8_quantisation(KeyReader& keys, const Json& object, ModelConfig& config) {
    KeyReader inner(object, keys.origin() + ": quantization_config");
    inner.choice("fmt", "e4m3", {"e4m3", "float8_e4m3fn"}, kForeignRemedy);
    inner.choice("activation_scheme", "dynamic", {"dynamic"}, kForeignRemedy);
    inner.choice("scale_fmt", "float", {"float", "ue8m0"}, kForeignRemedy);
    const Json* block = inner.find("weight_block_size");
    if (block == nullptr || *block != Json{ops::kFp8BlockEdge, ops::kFp8BlockEdge}) {
        refuse_foreign(inner, "weight_block_size", "[128, 128]");
    }
    keys.adopt(inner);
    config.quantisation.experts = ops::WeightFormat::kFp8Block128;
}

}  // namespace

void read_dimensions(KeyReader& keys, ModelConfig& config) {
    config.vocab_size = keys.count("vocab_size", 1, 1u << 24, {});
    config.hidden = keys.count("hidden_size", 1, kDimensionMax, {});
    config.num_layers = keys.count("num_hidden_layers", 1, kLayersMax, {});
    config.context_length = keys.count("max_position_embeddings", 1, kContextMax, {});
    config.rms_norm_eps = keys.positive("rms_norm_eps", config.rms_norm_eps);
    config.tie_word_embeddings = keys.flag("tie_word_embeddings", false);
}

void read_quantisation(KeyReader& keys, ModelConfig& config) {
    const Json* object = keys.find("quantization_config");
    if (object == nullptr) {
        // As older releases of compressed-tensors called it, and what others say instead. Unseen,
        // the weights would be looked for in bf16.
        keys.refuse_if_given(
            "compression_config",
            "the same object as quantization_config: rename the key in config.json");
        if (keys.find("quantize") != nullptr) refuse_foreign(keys, "quantize", "none");
        return;
    }
    const auto text = [object](const char* key) -> std::string {
        const auto at = object->is_object() ? object->find(key) : object->end();
        return object->is_object() && at != object->end() && at->is_string()
                   ? at->get<std::string>()
                   : std::string();
    };
    const std::string method = text("quant_method");
    // Experts of gpt-oss (model/foreign/fused_experts.h); afd-quantize may have left them so.
    const bool may_be_mxfp4 = config.model_type == "gpt_oss";
    if (method == "mxfp4" && may_be_mxfp4) {
        config.quantisation.experts = ops::WeightFormat::kMxfp4;
        return;
    }
    if (method == "fp8") return read_fp8_quantisation(keys, *object, config);
    if (is_foreign_method(method)) return read_foreign_quantisation(keys, *object, config);
    const auto experts = ops::parse_weight_format(text("experts"));
    const auto attention = ops::parse_weight_format(text("attention"));
    const Json* smooth =
        object->is_object() && object->contains("smooth") ? &object->at("smooth") : nullptr;
    const bool is_smooth = smooth != nullptr && *smooth == true;
    const bool smooth_is_wrong = (smooth != nullptr && !smooth->is_boolean()) ||
                                 (is_smooth && (!experts || *experts != ops::WeightFormat::kInt8));
    const bool mxfp4_is_wrong = attention == ops::WeightFormat::kMxfp4 ||
                                (experts == ops::WeightFormat::kMxfp4 && !may_be_mxfp4);
    // Nothing here writes zero points.
    const bool has_zeros = experts && ops::has_zero_points(*experts);
    if (method != "afd" || !experts || !attention || ops::is_int4(*attention) || mxfp4_is_wrong ||
        smooth_is_wrong || has_zeros) {
        return refuse_foreign(
            keys,
            "quantization_config",
            "none, or what afd-quantize writes: {\"quant_method\": \"afd\", \"experts\": bf16, "
            "int8, int4-g32, int4-g64, int4-g32-fp16, int4-g64-fp16 or fp8-b128, \"attention\": "
            "bf16 or int8} and, with int8 experts, \"smooth\": true or false; or "
            "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}; or \"quant_method\": "
            "\"compressed-tensors\", \"gptq\" or \"awq\" with weights in fp8, int8 or int4");
    }
    config.quantisation = {.experts = *experts, .attention = *attention, .smooth = is_smooth};
}

}  // namespace afd::model

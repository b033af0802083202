// SPDX-License-Identifier: Apache-2.0
#include "model/family/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "model/checkpoint/generation_config.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_weights.h"
#include "model/sampling/sampling_params.h"
#include "proto/sampling.pb.h"
#include "tests/model/family/v3_config.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

json v2_lite_config() {
    json config = v3_config();
    config.update(json{{"architectures", {"DeepseekV2ForCausalLM"}},
                       {"model_type", "deepseek_v2"},
                       {"vocab_size", 102400},
                       {"hidden_size", 2048},
                       {"num_hidden_layers", 27},
                       {"num_attention_heads", 16},
                       {"num_key_value_heads", 16},
                       {"q_lora_rank", nullptr},
                       {"n_routed_experts", 64},
                       {"n_shared_experts", 2},
                       {"moe_intermediate_size", 1408},
                       {"num_experts_per_tok", 6},
                       {"n_group", 1},
                       {"topk_group", 1},
                       {"topk_method", "greedy"},
                       {"scoring_func", "softmax"},
                       {"norm_topk_prob", false},
                       {"routed_scaling_factor", 1.0},
                       {"first_k_dense_replace", 1},
                       {"bos_token_id", 100000},
                       {"eos_token_id", 100001}});
    config["rope_scaling"]["mscale"] = 0.707;
    config["rope_scaling"]["mscale_all_dim"] = 0.707;
    return config;
}

// compressed-tensors, symmetric int4 in groups of 32.
json packed_config() {
    json config = v3_config();
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups",
         {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}}}}}}}};
    return config;
}

ModelConfig parsed(const json& config) {
    auto result = parse_model_config(config.dump(), "config.json");
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? result.value() : ModelConfig();
}

double softmax_scale(const ModelConfig& config) {
    return mla_softmax_scale(config, mla_shape_of(config).value());
}

TEST(ModelConfig, ReadsEveryKeyOfV3) {
    const ModelConfig config = parsed(v3_config());
    EXPECT_EQ(config.vocab_size, 129280u);
    EXPECT_EQ(config.hidden, 7168u);
    EXPECT_EQ(config.num_layers, 61u);
    EXPECT_EQ(config.context_length, 163840u);
    const ops::MlaShape shape = mla_shape_of(config).value();
    EXPECT_EQ(shape.hidden, 7168u);
    EXPECT_EQ(shape.num_heads, 128u);
    EXPECT_EQ(shape.q_lora_rank, 1536u);
    EXPECT_EQ(shape.kv_lora_rank, 512u);
    EXPECT_EQ(shape.qk_nope_head_dim, 128u);
    EXPECT_EQ(shape.qk_rope_head_dim, 64u);
    EXPECT_EQ(shape.v_head_dim, 128u);
    EXPECT_EQ(config.attention->cache_bytes_per_token(ops::KvDtype::kBf16), 1152u);
    EXPECT_EQ(config.attention->cache_bytes_per_token(ops::KvDtype::kInt8), 656u);
    EXPECT_EQ(config.attention->cache_bytes_per_token(ops::KvDtype::kFp8), 656u);
    EXPECT_EQ(config.attention->cache_bytes_per_token(ops::KvDtype::kInt8Channel), 576u);
    EXPECT_EQ(config.intermediate, 18432u);
    EXPECT_EQ(config.shared_intermediate, 2048u);
    EXPECT_EQ(config.num_experts, 256u);
    EXPECT_EQ(config.top_k, 8u);
    EXPECT_EQ(config.num_groups, 8u);
    EXPECT_EQ(config.topk_group, 4u);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.routed_scaling_factor, 2.5);
    EXPECT_FALSE(config.is_moe_layer(2));
    EXPECT_TRUE(config.is_moe_layer(3));
    EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
    // The softmax scale grows by 1.8739, a figure known for V3.
    EXPECT_NEAR(softmax_scale(config) * std::sqrt(192.0), 1.8739, 1e-4);
}

// The keys of the text model of a model of text and images.
json wrapped(const json& text) {
    return {{"architectures", {"SomeForConditionalGeneration"}},
            {"model_type", "some_vl"},
            {"vision_config", {{"hidden_size", 48}}},
            {"text_config", text}};
}

TEST(ModelConfig, ReadsTheKeysOfATextModelWhereTheyAre) {
    json text = v3_config();
    // Its model_type alone says the family.
    text.erase("architectures");
    text.erase("eos_token_id");
    json config = wrapped(text);
    config["eos_token_id"] = {1, 7};
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    const ModelConfig read = parsed(config);
    EXPECT_EQ(read.model_type, "deepseek_v3");
    EXPECT_EQ(read.hidden, 7168u);
    EXPECT_THAT(read.eos_token_ids, ElementsAre(1, 7));
    EXPECT_EQ(read.quantisation.experts, ops::WeightFormat::kFp8Block128);
}

TEST(ModelConfig, SaysInWhichObjectAKeyIsWrong) {
    json config = wrapped(v3_config());
    config["text_config"].erase("hidden_size");
    EXPECT_THAT(refusal(config).message,
                StartsWith("config.json: text_config: hidden_size is missing"));
    config = wrapped(v3_config());
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}};
    EXPECT_THAT(refusal(config).message,
                StartsWith("config.json: quantization_config: weight_block_size is [64,64]"));
    config = wrapped(v3_config());
    config["compression_config"] = {{"quant_method", "compressed-tensors"}};
    EXPECT_THAT(refusal(config).message, StartsWith("config.json: compression_config is "));
    config["text_config"]["compression_config"] = config["compression_config"];
    EXPECT_THAT(refusal(config).message,
                StartsWith("config.json: text_config: compression_config is "));
    config = wrapped(v3_config());
    config["quantize"] = "w8a8";
    EXPECT_THAT(refusal(config).message, StartsWith("config.json: quantize is "));
    config = wrapped(v3_config());
    config["text_config"].erase("architectures");
    config["text_config"]["model_type"] = "other_text";
    EXPECT_THAT(refusal(config).message,
                StartsWith("config.json: text_config: model_type is \"other_text\""));
    // A file with layers of its own is not about a part.
    config = v3_config();
    config["text_config"] = {{"hidden_size", 1}};
    EXPECT_EQ(parsed(config).hidden, 7168u);
}

TEST(ModelConfig, ReadsV2LiteWithoutLowRankQuery) {
    const ModelConfig config = parsed(v2_lite_config());
    const ops::MlaShape shape = mla_shape_of(config).value();
    EXPECT_EQ(shape.q_lora_rank, 0u);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(config.topk_method, TopkMethod::kGreedy);
    EXPECT_EQ(config.shared_intermediate, 2816u);
    EXPECT_EQ(config.num_shared_slots(), 1u);
    EXPECT_NEAR(softmax_scale(config) * std::sqrt(192.0), 1.5896, 1e-4);
}

TEST(ModelConfig, TakesTheFamilysDefaultsForAbsentRoutingKeys) {
    json config = v3_config();
    config.erase("topk_method");
    config.erase("scoring_func");
    EXPECT_EQ(parsed(config).topk_method, TopkMethod::kNoauxTc);
    EXPECT_EQ(parsed(config).scoring_func, ScoringFunc::kSigmoid);
    config = v2_lite_config();
    config.erase("topk_method");
    config.erase("scoring_func");
    config["n_group"] = nullptr;
    EXPECT_EQ(parsed(config).topk_method, TopkMethod::kGreedy);
    EXPECT_EQ(parsed(config).scoring_func, ScoringFunc::kSoftmax);
}

TEST(ModelConfig, ReadsTheRouterOfDeepSeekV4) {
    json config = v3_config();
    EXPECT_EQ(parsed(config).num_hash_layers, 0u);
    EXPECT_FALSE(parsed(config).is_hash_layer(3));
    config["scoring_func"] = "sqrtsoftplus";
    config["num_hash_layers"] = 5;
    const ModelConfig read = parsed(config);
    EXPECT_EQ(read.scoring_func, ScoringFunc::kSqrtSoftplus);
    // Layers 0 to 2 are dense.
    EXPECT_FALSE(read.is_hash_layer(2));
    EXPECT_TRUE(read.is_hash_layer(3));
    EXPECT_TRUE(read.is_hash_layer(4));
    EXPECT_FALSE(read.is_hash_layer(5));
}

TEST(ModelConfig, ReadsRopeParametersLikeRopeScaling) {
    json config = v3_config();
    const ModelConfig old_form = parsed(config);
    json rope = config["rope_scaling"];
    rope["rope_type"] = rope["type"];
    rope.erase("type");
    rope["rope_theta"] = 50000;
    config["rope_parameters"] = rope;
    config.erase("rope_scaling");
    config.erase("rope_theta");
    const ModelConfig new_form = parsed(config);
    ASSERT_TRUE(new_form.yarn.has_value());
    EXPECT_EQ(new_form.rope_theta, 50000);
    EXPECT_EQ(new_form.yarn->factor, 40);
    EXPECT_EQ(new_form.yarn->original_max_positions, 4096);
    EXPECT_EQ(softmax_scale(new_form), softmax_scale(old_form));

    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 50000}};
    EXPECT_FALSE(parsed(config).yarn.has_value());
    EXPECT_EQ(softmax_scale(parsed(config)), 1.0 / std::sqrt(192.0));
}

TEST(ModelConfig, AlternatesDenseAndMoeLayersByFrequency) {
    json config = v3_config();
    config["moe_layer_freq"] = 2;
    config["first_k_dense_replace"] = 1;
    const ModelConfig parsed_config = parsed(config);
    EXPECT_FALSE(parsed_config.is_moe_layer(0));
    EXPECT_FALSE(parsed_config.is_moe_layer(1));
    EXPECT_TRUE(parsed_config.is_moe_layer(2));
    EXPECT_FALSE(parsed_config.is_moe_layer(3));
}

TEST(ModelConfig, TakesSeveralEosTokens) {
    json config = v3_config();
    config["eos_token_id"] = {7, 3, 7};
    EXPECT_THAT(parsed(config).eos_token_ids, ElementsAre(3, 7));
    config["eos_token_id"] = nullptr;
    EXPECT_THAT(parsed(config).eos_token_ids, IsEmpty());
    // What a prompt begins with is the tokenizer's matter.
    config["bos_token_id"] = -1;
    EXPECT_THAT(parsed(config).eos_token_ids, IsEmpty());
}

TEST(ModelConfig, ReadsHowTheWeightsAreQuantised) {
    json config = v3_config();
    EXPECT_EQ(describe(parsed(config).quantisation), "bf16");
    config["quantization_config"] = {
        {"quant_method", "afd"}, {"experts", "int4-g64"}, {"attention", "int8"}};
    const ModelConfig read = parsed(config);
    EXPECT_EQ(read.quantisation.experts, ops::WeightFormat::kInt4Group64);
    EXPECT_EQ(read.quantisation.attention, ops::WeightFormat::kInt8);
    EXPECT_EQ(describe(read.quantisation), "experts int4-g64, attention int8");
    config["quantization_config"]["experts"] = "int4-g32-fp16";
    EXPECT_EQ(parsed(config).quantisation.experts, ops::WeightFormat::kInt4Group32Fp16);
    // Formats that no kernel has are refused like those of other programs.
    for (const json& bad : {json{{"experts", "int8"}},
                            json{{"experts", "int3"}, {"attention", "bf16"}},
                            json{{"experts", "int4-g32-zero"}, {"attention", "bf16"}},
                            json{{"experts", "int8"}, {"attention", "int4-g32"}},
                            json{{"experts", 8}, {"attention", "bf16"}}}) {
        config["quantization_config"] = bad;
        config["quantization_config"]["quant_method"] = "afd";
        EXPECT_EQ(refusal(config).code, Code::kUnimplemented) << bad;
    }
    config["quantization_config"] = "int8";
    EXPECT_EQ(refusal(config).code, Code::kUnimplemented);
}

// As DeepSeek-V3 and V3.1 have it.
TEST(ModelConfig, TakesFp8InBlocks) {
    json config = v3_config();
    config["quantization_config"] = {{"activation_scheme", "dynamic"},
                                     {"fmt", "e4m3"},
                                     {"quant_method", "fp8"},
                                     {"weight_block_size", {128, 128}}};
    EXPECT_EQ(describe(parsed(config).quantisation), "experts fp8-b128");
    config["quantization_config"]["scale_fmt"] = "ue8m0";
    EXPECT_EQ(describe(parsed(config).quantisation), "experts fp8-b128");
}

// Files of programs that know transforms have the key, mostly empty.
TEST(ModelConfig, TakesCompressedTensorsWithoutTransforms) {
    json config = packed_config();
    for (const json& transforms : {json(), json::object()}) {
        config["quantization_config"]["transform_config"] = transforms;
        EXPECT_EQ(describe(parsed(config).quantisation), "experts int4-g32") << transforms;
    }
}

// Two orders of columns leave their groups as they are; two do not.
TEST(ModelConfig, ColumnsOutOfOrderMayStayInTheirGroups) {
    json config = packed_config();
    json& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
    const auto formats = [&](const json& order) {
        weights["actorder"] = order;
        return describe(parsed(config).quantisation);
    };
    for (const json& order : {json(), json(false), json("static"), json("weight")}) {
        EXPECT_EQ(formats(order), "experts int4-g32") << order;
    }
    for (const json& order : {json(true), json("group"), json("dynamic")}) {
        EXPECT_EQ(formats(order), "bf16") << order;
    }
    config["quantization_config"] = {
        {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", true}};
    EXPECT_EQ(describe(parsed(config).quantisation), "bf16");
    config["quantization_config"]["static_groups"] = true;
    EXPECT_EQ(describe(parsed(config).quantisation), "experts int4-g32");
}

// One group for each row has all columns, whatever their order.
TEST(ModelConfig, ColumnsOfOneGroupStayInIt) {
    json config = packed_config();
    json& quantisation = config["quantization_config"];
    json& weights = quantisation["config_groups"]["group_0"]["weights"];
    weights.update({{"strategy", "channel"}, {"group_size", nullptr}, {"actorder", "group"}});
    EXPECT_EQ(describe(parsed(config).quantisation), "experts int4-g64");
    quantisation = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}, {"desc_act", true}};
    EXPECT_EQ(describe(parsed(config).quantisation), "experts int4-g64");
}

// The types of scales are those of torch_dtype until the tensors are there.
TEST(ModelConfig, Int4WithZeroPointsStaysInt4) {
    json config = packed_config();
    const auto formats = [&] { return describe(parsed(config).quantisation); };
    json& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
    weights["symmetric"] = false;
    EXPECT_EQ(formats(), "experts int4-g32-zero");
    weights["group_size"] = 128;
    EXPECT_EQ(formats(), "experts int4-g64-zero");
    weights["group_size"] = 96;
    EXPECT_EQ(formats(), "bf16");
    config["torch_dtype"] = "float16";
    config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}};
    EXPECT_EQ(formats(), "experts int4-g64-fp16-zero");
    config["quantization_config"] = {
        {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", false}};
    EXPECT_EQ(formats(), "experts int4-g32-fp16-zero");
    config["quantization_config"]["sym"] = true;
    EXPECT_EQ(formats(), "experts int4-g32-fp16");
    config["quantization_config"].update({{"sym", false}, {"desc_act", true}});
    EXPECT_EQ(formats(), "bf16");
}

// As Kimi-K2-Thinking has it: routed experts alone are quantised.
TEST(ModelConfig, ForetellsWhichExpertsStayInt4) {
    json config = packed_config();
    json& quantisation = config["quantization_config"];
    json& group = quantisation["config_groups"]["group_0"];
    const auto formats = [&] { return describe(parsed(config).quantisation); };
    const auto ignored = [&](const json& list) {
        quantisation["ignore"] = list;
        return formats();
    };
    constexpr const char* kRoutedAlone = "experts int4-g32, shared and dense bf16";
    group["targets"] = json::array({"Linear"});
    EXPECT_EQ(ignored({"lm_head", "re:.*self_attn.*"}), "experts int4-g32");
    EXPECT_EQ(ignored({"lm_head",
                       "re:.*self_attn.*",
                       "re:.*shared_experts.*",
                       "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}),
              kRoutedAlone);
    EXPECT_EQ(ignored(json::array({"re:.*shared_experts.*"})), kRoutedAlone);
    EXPECT_EQ(ignored(json::array({"model.layers.0.mlp.down_proj"})), kRoutedAlone);
    EXPECT_EQ(ignored(json::array({"re:.*layers\\.7\\.mlp\\.experts\\."})), "bf16");
    EXPECT_EQ(ignored(json::array({"model.layers.60.mlp.experts.255.up_proj"})), "bf16");
    // An expression begins where the name does; what is none names nothing.
    EXPECT_EQ(ignored({"re:mlp", "re:(", 7, "mlp"}), "experts int4-g32");
    EXPECT_EQ(ignored(json::array({"re:((.*)*)*!"})), "experts int4-g32");
    EXPECT_EQ(ignored("lm_head"), "experts int4-g32");
    EXPECT_EQ(ignored(nullptr), "experts int4-g32");
    group["targets"] = json::array({"re:.*mlp\\.experts.*"});
    EXPECT_EQ(formats(), kRoutedAlone);
    group["targets"] = json::array({"re:.*self_attn.*"});
    EXPECT_EQ(formats(), "bf16");
    config["quantization_config"] = {{"quant_method", "gptq"},
                                     {"bits", 4},
                                     {"group_size", 32},
                                     {"dynamic", {{"-:.*shared_experts.*", json::object()}}}};
    EXPECT_EQ(formats(), "experts int4-g32, shared and dense bf16");
}

// By GPTQModel's list, or by AWQ's own, whose entries may be anywhere in a name.
TEST(ModelConfig, ForetellsWhichExpertsOfAwqStayInt4) {
    json config = v3_config();
    json& quantisation = config["quantization_config"];
    quantisation = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}};
    const auto formats = [&] { return describe(parsed(config).quantisation); };
    constexpr const char* kRoutedAlone = "experts int4-g32-zero, shared and dense bf16";
    EXPECT_EQ(formats(), "experts int4-g32-zero");
    quantisation["dynamic"] = {{"-:.*shared_experts.*", json::object()}};
    EXPECT_EQ(formats(), kRoutedAlone);
    quantisation.erase("dynamic");
    const auto ignored = [&](const json& list) {
        quantisation["modules_to_not_convert"] = list;
        return formats();
    };
    EXPECT_EQ(ignored(json::array({"shared_experts"})), kRoutedAlone);
    EXPECT_EQ(ignored(json::array({"layers.0."})), kRoutedAlone);
    EXPECT_EQ(ignored(json::array({"experts.7.up_proj"})), "bf16");
    for (const json& list : {json({"lm_head", "mlp.gate.", "share..experts", 7}), json("mlp")}) {
        EXPECT_EQ(ignored(list), "experts int4-g32-zero") << list;
    }
    EXPECT_EQ(ignored(nullptr), "experts int4-g32-zero");
}

// Lists of a wrapped release have the names that its files have.
TEST(ModelConfig, ForetellsWhichExpertsOfATextModelStayInt4) {
    json config = wrapped(packed_config());
    json& quantisation = config["text_config"]["quantization_config"];
    json& group = quantisation["config_groups"]["group_0"];
    const auto formats = [&] { return describe(parsed(config).quantisation); };
    constexpr const char* kRoutedAlone = "experts int4-g32, shared and dense bf16";
    group["targets"] = json::array({"Linear"});
    for (const char* ignored : {"model.layers.0.mlp.down_proj",
                                "language_model.model.layers.0.mlp.down_proj",
                                "model.language_model.layers.0.mlp.down_proj",
                                "re:language_model.*shared_experts.*",
                                "re:model\\.language_model.*shared_experts.*"}) {
        quantisation["ignore"] = json::array({ignored});
        EXPECT_EQ(formats(), kRoutedAlone) << ignored;
    }
    quantisation["ignore"] = json::array({"vision_tower.layers.0.mlp.down_proj"});
    EXPECT_EQ(formats(), "experts int4-g32");
    group["targets"] = json::array({"re:language_model.*mlp\\.experts.*"});
    EXPECT_EQ(formats(), kRoutedAlone);
    // Alone it has no other names than its own.
    config = packed_config();
    config["quantization_config"]["ignore"] =
        json::array({"language_model.model.layers.0.mlp.down_proj"});
    EXPECT_EQ(formats(), "experts int4-g32");
}

TEST(ModelConfig, RefusesAPartialRotationWhereverItStands) {
    json config = v3_config();
    config["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
    config.erase("rope_scaling");
    EXPECT_EQ(refusal(config).message,
              "config.json: rope_parameters: partial_rotary_factor is 0.5; supported: 1");
    config["rope_parameters"]["partial_rotary_factor"] = 1.0;
    EXPECT_FALSE(parsed(config).yarn.has_value());
}

// transformers 5 lists the layers that have experts.
TEST(ModelConfig, TakesAListOfDenseLayers) {
    json config = v3_config();
    config["num_hidden_layers"] = 4;
    config["mlp_layer_types"] = {"dense", "sparse", "dense", "sparse"};
    EXPECT_EQ(refusal(config).message,
              "config.json: first_k_dense_replace is 3; supported: what mlp_layer_types says, or "
              "null");
    config["first_k_dense_replace"] = 1;
    config["moe_layer_freq"] = 2;
    EXPECT_EQ(refusal(config).message,
              "config.json: first_k_dense_replace is 1; supported: what mlp_layer_types says, or "
              "null");
    config.erase("first_k_dense_replace");
    EXPECT_EQ(refusal(config).message,
              "config.json: moe_layer_freq is 2; supported: what mlp_layer_types says, or null");
    config["moe_layer_freq"] = 1;
    EXPECT_THAT(parsed(config).dense_layers, ElementsAre(0, 2));
    config["mlp_layer_types"] = {"dense", "dense", "sparse", "sparse"};
    config["first_k_dense_replace"] = 2;
    EXPECT_THAT(parsed(config).dense_layers, ElementsAre(0, 1));
    for (const json& bad : {json("dense"), json({"dense", "sparse"}), json(4, "full")}) {
        config["mlp_layer_types"] = bad;
        EXPECT_EQ(refusal(config).message,
                  "config.json: mlp_layer_types is " + bad.dump() +
                      "; supported: a list of 4 types, \"dense\" or \"sparse\"");
    }
}

TEST(GenerationConfig, TakesEosFromItsOwnFileFirst) {
    const ModelConfig config = parsed(v3_config());
    const auto own = parse_generation_config(
        R"({"eos_token_id": [5, 2], "temperature": 0.6, "top_p": 0.95, "top_k": 40})", config, "g");
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_THAT(own.value().eos_token_ids, ElementsAre(2, 5));
    EXPECT_EQ(own.value().temperature, 0.6f);
    EXPECT_EQ(own.value().top_p, 0.95f);
    EXPECT_EQ(own.value().top_k, 40u);

    const auto absent = parse_generation_config("", config, "g");
    ASSERT_TRUE(absent.ok());
    EXPECT_THAT(absent.value().eos_token_ids, ElementsAre(1));
    EXPECT_FALSE(absent.value().temperature.has_value());
}

TEST(GenerationConfig, TakesWhatARequestMaySay) {
    const ModelConfig config = parsed(v3_config());
    const auto all = parse_generation_config(
        R"({"min_p": 0.05, "repetition_penalty": 1.05, "presence_penalty": -2,
            "frequency_penalty": 0.5})",
        config,
        "g");
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_EQ(all.value().min_p, 0.05f);
    EXPECT_EQ(all.value().repetition_penalty, 1.05f);
    EXPECT_EQ(all.value().presence_penalty, -2.0f);
    EXPECT_EQ(all.value().frequency_penalty, 0.5f);
    const auto none = parse_generation_config(R"({"min_p": null})", config, "g");
    ASSERT_TRUE(none.ok()) << none.error().message;
    EXPECT_FALSE(none.value().min_p.has_value());
    EXPECT_FALSE(none.value().repetition_penalty.has_value());
}

// What would make every request fail is found at start. Oracle: the message, and that the checks of
// a request take the ends of each range and nothing beyond.
TEST(GenerationConfig, RefusesValuesOutOfRange) {
    const ModelConfig config = parsed(v3_config());
    struct Range {
        const char* key;
        double low;
        double high;
        const char* text;
        void (SamplingSettings::*set)(float);
    };
    for (const Range& range :
         {Range{"temperature", 0, 2, "[0.0, 2.0]", &SamplingSettings::set_temperature},
          Range{"min_p", 0, 1, "[0.0, 1.0]", &SamplingSettings::set_min_p},
          Range{"repetition_penalty",
                0.01,
                100,
                "[0.01, 100.0]",
                &SamplingSettings::set_repetition_penalty},
          Range{"presence_penalty", -2, 2, "[-2.0, 2.0]", &SamplingSettings::set_presence_penalty},
          Range{"frequency_penalty",
                -2,
                2,
                "[-2.0, 2.0]",
                &SamplingSettings::set_frequency_penalty}}) {
        SCOPED_TRACE(range.key);
        const auto read = [&](const json& value) {
            json file;
            file[range.key] = value;
            return parse_generation_config(file.dump(), config, "g");
        };
        const auto is_valid = [&](double value) {
            SamplingSettings settings;
            (settings.*range.set)(static_cast<float>(value));
            return validate(settings, config.vocab_size).ok();
        };
        for (const double end : {range.low, range.high}) {
            EXPECT_TRUE(read(end).ok() && is_valid(end)) << end;
        }
        for (const double beyond : {range.low - 0.005, range.high + 0.5}) {
            EXPECT_FALSE(is_valid(beyond)) << beyond;
            const auto result = read(beyond);
            ASSERT_FALSE(result.ok()) << beyond;
            EXPECT_EQ(result.error().message,
                      std::string("g: ") + range.key + " is " + json(beyond).dump() +
                          "; supported: a number in " + range.text);
        }
        EXPECT_FALSE(read("1").ok());
    }
}

}  // namespace
}  // namespace afd::model

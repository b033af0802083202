// SPDX-License-Identifier: Apache-2.0
#include "model/family/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/checkpoint/generation_config.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_weights.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json v3_config() {
    return {{"architectures", {"DeepseekV3ForCausalLM"}},
            {"model_type", "deepseek_v3"},
            {"vocab_size", 129280},
            {"hidden_size", 7168},
            {"num_hidden_layers", 61},
            {"max_position_embeddings", 163840},
            {"num_attention_heads", 128},
            {"num_key_value_heads", 128},
            {"q_lora_rank", 1536},
            {"kv_lora_rank", 512},
            {"qk_nope_head_dim", 128},
            {"qk_rope_head_dim", 64},
            {"v_head_dim", 128},
            {"intermediate_size", 18432},
            {"moe_intermediate_size", 2048},
            {"n_routed_experts", 256},
            {"n_shared_experts", 1},
            {"num_experts_per_tok", 8},
            {"n_group", 8},
            {"topk_group", 4},
            {"topk_method", "noaux_tc"},
            {"scoring_func", "sigmoid"},
            {"norm_topk_prob", true},
            {"routed_scaling_factor", 2.5},
            {"first_k_dense_replace", 3},
            {"moe_layer_freq", 1},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000},
            {"rope_scaling",
             {{"type", "yarn"},
              {"factor", 40},
              {"beta_fast", 32},
              {"beta_slow", 1},
              {"mscale", 1.0},
              {"mscale_all_dim", 1.0},
              {"original_max_position_embeddings", 4096}}},
            {"attention_bias", false},
            {"tie_word_embeddings", false},
            {"num_nextn_predict_layers", 1},
            {"bos_token_id", 0},
            {"eos_token_id", 1}};
}

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

ModelConfig parsed(const json& config) {
    auto result = parse_model_config(config.dump(), "config.json");
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? result.value() : ModelConfig();
}

Error refusal(const json& config) {
    const auto result = parse_model_config(config.dump(), "config.json");
    EXPECT_FALSE(result.ok()) << config.dump();
    return result.ok() ? Error{Code::kOk, ""} : result.error();
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
    EXPECT_EQ(config.attention->cache_bytes_per_token(), 1152u);
    EXPECT_EQ(config.intermediate, 18432u);
    EXPECT_EQ(config.shared_intermediate(), 2048u);
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
    EXPECT_EQ(config.bos_token_id, 0u);
    EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
    // The softmax scale grows by 1.8739, a figure known for V3.
    EXPECT_NEAR(softmax_scale(config) * std::sqrt(192.0), 1.8739, 1e-4);
}

TEST(ModelConfig, ReadsV2LiteWithoutLowRankQuery) {
    const ModelConfig config = parsed(v2_lite_config());
    const ops::MlaShape shape = mla_shape_of(config).value();
    EXPECT_EQ(shape.q_lora_rank, 0u);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(config.topk_method, TopkMethod::kGreedy);
    EXPECT_EQ(config.shared_intermediate(), 2816u);
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
}

struct Refusal {
    const char* key;
    json value;
    Code code;
    const char* message;
};

class RefusedConfig : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, NamesTheKeyItsValueAndWhatIsSupported) {
    json config = v3_config();
    config[json::json_pointer(GetParam().key)] = GetParam().value;
    const Error error = refusal(config);
    EXPECT_EQ(error.code, GetParam().code);
    EXPECT_EQ(error.message, GetParam().message);
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
                            json{{"experts", "int8"}, {"attention", "int4-g32"}},
                            json{{"experts", 8}, {"attention", "bf16"}}}) {
        config["quantization_config"] = bad;
        config["quantization_config"]["quant_method"] = "afd";
        EXPECT_EQ(refusal(config).code, Code::kUnimplemented) << bad;
    }
    config["quantization_config"] = "int8";
    EXPECT_EQ(refusal(config).code, Code::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(
    ModelConfig,
    RefusedConfig,
    ::testing::Values(
        Refusal{
            "/quantization_config",
            {{"quant_method", "fp8"}},
            Code::kUnimplemented,
            "config.json: quantization_config is {\"quant_method\":\"fp8\"}; supported: none, or "
            "what afd-quantize writes: {\"quant_method\": \"afd\", \"experts\": bf16, int8, "
            "int4-g32, int4-g64, int4-g32-fp16 or int4-g64-fp16, \"attention\": bf16 or int8} and, "
            "with int8 experts, \"smooth\": true or false; for a model that another program has "
            "quantised, run afd-quantize on the bf16 original"},
        Refusal{"/attention_bias",
                true,
                Code::kUnimplemented,
                "config.json: attention_bias is true; supported: false"},
        Refusal{"/mlp_bias",
                true,
                Code::kUnimplemented,
                "config.json: mlp_bias is true; supported: false"},
        Refusal{"/hidden_act",
                "gelu",
                Code::kUnimplemented,
                "config.json: hidden_act is \"gelu\"; supported: \"silu\""},
        Refusal{"/rope_interleave",
                false,
                Code::kUnimplemented,
                "config.json: rope_interleave is false; supported: true"},
        Refusal{"/sliding_window",
                4096,
                Code::kUnimplemented,
                "config.json: sliding_window is 4096; supported: null"},
        Refusal{"/architectures",
                json::array({"LlamaForCausalLM"}),
                Code::kUnimplemented,
                "config.json: architectures is [\"LlamaForCausalLM\"]; supported: "
                "[\"DeepseekV2ForCausalLM\"], [\"DeepseekV3ForCausalLM\"]"},
        Refusal{"/num_key_value_heads",
                8,
                Code::kUnimplemented,
                "config.json: num_key_value_heads is 8; supported: num_attention_heads, 128"},
        Refusal{"/scoring_func",
                "tanh",
                Code::kUnimplemented,
                "config.json: scoring_func is \"tanh\"; supported: \"sigmoid\", \"softmax\", "
                "\"sqrtsoftplus\""},
        Refusal{"/num_hash_layers",
                62,
                Code::kInvalidArgument,
                "config.json: num_hash_layers is 62; supported: an integer in [0, 61]"},
        Refusal{"/topk_method",
                "random",
                Code::kUnimplemented,
                "config.json: topk_method is \"random\"; supported: \"noaux_tc\", "
                "\"group_limited_greedy\", \"greedy\""},
        Refusal{"/rope_scaling/type",
                "linear",
                Code::kUnimplemented,
                "config.json: rope_scaling: type is \"linear\"; supported: \"default\", \"yarn\""},
        Refusal{"/rope_scaling/factor",
                -1,
                Code::kInvalidArgument,
                "config.json: rope_scaling: factor is -1; supported: a finite number above 0"},
        Refusal{"/rope_scaling/attention_factor",
                1.5,
                Code::kUnimplemented,
                "config.json: rope_scaling: attention_factor is 1.5; supported: none (mscale is "
                "used)"},
        Refusal{"/rope_scaling/truncate",
                false,
                Code::kUnimplemented,
                "config.json: rope_scaling: truncate is false; supported: true"},
        Refusal{"/rope_scaling",
                "yarn",
                Code::kInvalidArgument,
                "config.json: rope_scaling is \"yarn\"; supported: an object or null"},
        Refusal{"/hidden_size",
                nullptr,
                Code::kInvalidArgument,
                "config.json: hidden_size is missing; supported: an integer in [1, 1048576]"},
        Refusal{"/hidden_size",
                -5,
                Code::kInvalidArgument,
                "config.json: hidden_size is -5; supported: an integer in [1, 1048576]"},
        Refusal{"/vocab_size",
                1.5,
                Code::kInvalidArgument,
                "config.json: vocab_size is 1.5; supported: an integer in [1, 16777216]"},
        Refusal{"/qk_rope_head_dim",
                63,
                Code::kInvalidArgument,
                "config.json: qk_rope_head_dim is 63; supported: an even number"},
        Refusal{"/n_group",
                7,
                Code::kInvalidArgument,
                "config.json: n_group is 7; supported: a divisor of n_routed_experts, 256"},
        Refusal{"/topk_group",
                9,
                Code::kInvalidArgument,
                "config.json: topk_group is 9; supported: an integer in [1, 8]"},
        Refusal{"/num_experts_per_tok",
                65,
                Code::kInvalidArgument,
                "config.json: num_experts_per_tok is 65; supported: an integer in [1, 64]"},
        Refusal{"/norm_topk_prob",
                "yes",
                Code::kInvalidArgument,
                "config.json: norm_topk_prob is \"yes\"; supported: true or false"},
        Refusal{"/rms_norm_eps",
                0,
                Code::kInvalidArgument,
                "config.json: rms_norm_eps is 0; supported: a finite number above 0"},
        Refusal{"/eos_token_id",
                129280,
                Code::kInvalidArgument,
                "config.json: eos_token_id is 129280; supported: one integer or a list of them, "
                "each in [0, 129280) (vocab_size)"}));

TEST(ModelConfig, RefusesMoreExpertsPerTokenThanTheGroupsHold) {
    json config = v3_config();
    config["n_group"] = 64;
    config["topk_group"] = 1;
    EXPECT_EQ(refusal(config).message,
              "config.json: num_experts_per_tok is 8; supported: at most the 4 experts of "
              "topk_group groups");
}

TEST(ModelConfig, RefusesAConfigWithoutAFamily) {
    json config = v3_config();
    config.erase("architectures");
    config["model_type"] = "mixtral";
    EXPECT_EQ(refusal(config).message,
              "config.json: model_type is \"mixtral\"; supported: \"deepseek_v2\", "
              "\"deepseek_v3\"");
    config.erase("model_type");
    EXPECT_THAT(refusal(config).message, HasSubstr("model_type is missing"));
}

TEST(ModelConfig, RefusesTextThatIsNotAJsonObject) {
    for (const char* text : {"", "[1]", "{\"a\": 1", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}"}) {
        const auto result = parse_model_config(text, "config.json");
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_EQ(result.error().code, Code::kDataLoss) << text;
        EXPECT_THAT(result.error().message, HasSubstr("config.json: "));
    }
    EXPECT_THAT(parse_model_config("{\"a\": 1, \"a\": 2}", "c").error().message,
                HasSubstr("the key \"a\" stands twice"));
}

TEST(ModelConfig, RefusesTooDeepNesting) {
    const std::string text(100000, '[');
    EXPECT_THAT(parse_model_config(text, "c").error().message, HasSubstr("nested deeper than 64"));
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

TEST(GenerationConfig, RefusesValuesOutOfRange) {
    const ModelConfig config = parsed(v3_config());
    const auto result = parse_generation_config(R"({"temperature": 3})", config, "g");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "g: temperature is 3; supported: a number in [0.0, 2.0]");
}

}  // namespace
}  // namespace afd::model

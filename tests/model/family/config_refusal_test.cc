// SPDX-License-Identifier: Apache-2.0
//
// What a config.json may not say: each message names the key, its value and what is supported.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/family/config_file.h"
#include "tests/model/family/v3_config.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

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

INSTANTIATE_TEST_SUITE_P(
    ModelConfig,
    RefusedConfig,
    ::testing::Values(
        Refusal{
            "/quantization_config",
            {{"quant_method", "hqq"}},
            Code::kUnimplemented,
            "config.json: quantization_config is {\"quant_method\":\"hqq\"}; supported: none, or "
            "what afd-quantize writes: {\"quant_method\": \"afd\", \"experts\": bf16, int8, "
            "int4-g32, int4-g64, int4-g32-fp16, int4-g64-fp16 or fp8-b128, \"attention\": bf16 or "
            "int8} and, "
            "with int8 experts, \"smooth\": true or false; or {\"quant_method\": \"fp8\", "
            "\"weight_block_size\": [128, 128]}; or \"quant_method\": \"compressed-tensors\", "
            "\"gptq\" or \"awq\" with weights in fp8, int8 or int4; for another one run "
            "afd-quantize "
            "on the original model or convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "gptq"}, {"bits", 3}},
                Code::kUnimplemented,
                "config.json: quantization_config: bits is 3; supported: 4; for another one run "
                "afd-quantize on the original model or convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "gptq"}, {"bits", 4}, {"dynamic", {{"+:.*gate.*", 8}}}},
                Code::kUnimplemented,
                "config.json: quantization_config: dynamic is {\"+:.*gate.*\":8}; supported: none, "
                "or exceptions that begin with -:; for another one run afd-quantize on the "
                "original model or convert this one to bf16"},
        Refusal{
            "/quantization_config",
            {{"quant_method", "awq"}, {"bits", 4}, {"dynamic", {{"+:.*down_proj", {{"bits", 8}}}}}},
            Code::kUnimplemented,
            "config.json: quantization_config: dynamic is {\"+:.*down_proj\":{\"bits\":8}}; "
            "supported: none, or exceptions that begin with -:; for another one run "
            "afd-quantize on the original model or convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}},
                Code::kUnimplemented,
                "config.json: quantization_config: version is \"gemv\"; supported: \"gemm\", "
                "\"GEMM\"; for another one run afd-quantize on the original model or convert this "
                "one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "compressed-tensors"}, {"format", "naive-quantized"}},
                Code::kUnimplemented,
                "config.json: quantization_config: format is \"naive-quantized\"; supported: "
                "\"float-quantized\", \"int-quantized\", \"pack-quantized\", "
                "\"mxfp4-pack-quantized\"; for another one run afd-quantize on the original model "
                "or convert this one to bf16"},
        Refusal{"/compression_config",
                {{"quant_method", "compressed-tensors"}},
                Code::kUnimplemented,
                "config.json: compression_config is {\"quant_method\":\"compressed-tensors\"}; "
                "supported: the same object as quantization_config: rename the key in config.json"},
        Refusal{"/quantize",
                "w8a8_dynamic",
                Code::kUnimplemented,
                "config.json: quantize is \"w8a8_dynamic\"; supported: none; for another one run "
                "afd-quantize on the original model or convert this one to bf16"},
        Refusal{
            "/quantization_config",
            {{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}},
            Code::kUnimplemented,
            "config.json: quantization_config: config_groups is missing; supported: an object; for "
            "another one run afd-quantize on the original model or convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "compressed-tensors"},
                 {"format", "pack-quantized"},
                 {"config_groups",
                  {{"group_0", {{"weights", {{"num_bits", 8}, {"group_size", 128}}}}}}}},
                Code::kUnimplemented,
                "config.json: quantization_config: config_groups: weights: num_bits is 8; "
                "supported: 4; for another one run afd-quantize on the original model or convert "
                "this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "compressed-tensors"},
                 {"format", "pack-quantized"},
                 {"transform_config",
                  {{"config_groups", {{"R4", {{"type", "hadamard"}, {"head_dim", 128}}}}}}}},
                Code::kUnimplemented,
                "config.json: quantization_config: transform_config is "
                "{\"config_groups\":{\"R4\":{\"head_dim\":128,\"type\":\"hadamard\"}}}; "
                "supported: none (activations are multiplied as they are); for another one run "
                "afd-quantize on the original model or convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "fp8"}},
                Code::kUnimplemented,
                "config.json: quantization_config: weight_block_size is missing; supported: [128, "
                "128]; for another one run afd-quantize on the original model or convert this one "
                "to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}},
                Code::kUnimplemented,
                "config.json: quantization_config: weight_block_size is [64,128]; supported: [128, "
                "128]; for another one run afd-quantize on the original model or convert this one "
                "to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "fp8"}, {"fmt", "e5m2"}, {"weight_block_size", {128, 128}}},
                Code::kUnimplemented,
                "config.json: quantization_config: fmt is \"e5m2\"; supported: \"e4m3\", "
                "\"float8_e4m3fn\"; for another one run afd-quantize on the original model or "
                "convert this one to bf16"},
        Refusal{"/quantization_config",
                {{"quant_method", "fp8"},
                 {"activation_scheme", "static"},
                 {"weight_block_size", {128, 128}}},
                Code::kUnimplemented,
                "config.json: quantization_config: activation_scheme is \"static\"; supported: "
                "\"dynamic\"; for another one run afd-quantize on the original model or convert "
                "this one to bf16"},
        Refusal{
            "/quantization_config",
            {{"quant_method", "fp8"}, {"scale_fmt", "e8m23"}, {"weight_block_size", {128, 128}}},
            Code::kUnimplemented,
            "config.json: quantization_config: scale_fmt is \"e8m23\"; supported: \"float\", "
            "\"ue8m0\"; for another one run afd-quantize on the original model or convert this one "
            "to bf16"},
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
                "[\"DeepseekV2ForCausalLM\"], [\"DeepseekV3ForCausalLM\"], "
                "[\"Glm4MoeLiteForCausalLM\"], [\"Glm4MoeForCausalLM\"], [\"GptOssForCausalLM\"], "
                "[\"DeepseekForCausalLM\"], [\"Dots1ForCausalLM\"], [\"MiniMaxM2ForCausalLM\"], "
                "[\"MixtralForCausalLM\"], "
                "[\"OlmoeForCausalLM\"], [\"PhiMoEForCausalLM\"], [\"PhimoeForCausalLM\"], "
                "[\"Qwen2MoeForCausalLM\"], [\"Qwen3MoeForCausalLM\"]"},
        Refusal{"/num_key_value_heads",
                8,
                Code::kUnimplemented,
                "config.json: num_key_value_heads is 8; supported: num_attention_heads, 128"},
        Refusal{"/scoring_func",
                "tanh",
                Code::kUnimplemented,
                "config.json: scoring_func is \"tanh\"; supported: \"sigmoid\", \"softmax\", "
                "\"sqrtsoftplus\", \"noaux_tc\""},
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
                "config.json: rope_scaling: attention_factor is 1.5; supported: none, or 1 "
                "(mscale is used)"},
        Refusal{"/rope_scaling/truncate",
                1,
                Code::kInvalidArgument,
                "config.json: rope_scaling: truncate is 1; supported: true or false"},
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

// The second one has the limit within a character.
TEST(ModelConfig, ShowsTheBeginningOfALongValue) {
    for (const auto& [value, end] :
         {std::pair(std::string(5000, 'x'), std::string(399, 'x')),
          std::pair(std::string(398, 'x') + "\u00e9\u00e9", std::string(398, 'x'))}) {
        json config = v3_config();
        config["hidden_act"] = value;
        EXPECT_EQ(refusal(config).message,
                  "config.json: hidden_act is \"" + end + "...; supported: \"silu\"");
    }
}

TEST(ModelConfig, RefusesMoreExpertsPerTokenThanTheGroupsHold) {
    json config = v3_config();
    config["n_group"] = 64;
    config["topk_group"] = 1;
    EXPECT_EQ(refusal(config).message,
              "config.json: num_experts_per_tok is 8; supported: at most the 4 experts of "
              "topk_group groups");
}

// Some look at each: in a small file two large counts would keep them busy for minutes.
TEST(ModelConfig, RefusesMoreExpertsThanAProgramLooksAt) {
    json config = v3_config();
    config["n_routed_experts"] = 65536;
    config["num_hidden_layers"] = 16;
    EXPECT_TRUE(parse_model_config(config.dump(), "config.json").ok());
    config["num_hidden_layers"] = 17;
    EXPECT_EQ(refusal(config).message,
              "config.json: num_hidden_layers is 17; supported: at most 16 layers of 65536 "
              "experts");
}

TEST(ModelConfig, RefusesAConfigWithoutAFamily) {
    json config = v3_config();
    config.erase("architectures");
    config["model_type"] = "jamba";
    EXPECT_EQ(refusal(config).message,
              "config.json: model_type is \"jamba\"; supported: \"deepseek_v2\", \"deepseek_v3\", "
              "\"kimi_k2\", \"glm4_moe_lite\", \"glm4_moe\", \"gpt_oss\", \"deepseek\", "
              "\"dots1\", \"minimax_m2\", \"mixtral\", \"olmoe\", \"phimoe\", \"qwen2_moe\", "
              "\"qwen3_moe\"");
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

TEST(ModelConfig, NamesWhatIsFetchedInPlaceOfTheFile) {
    EXPECT_EQ(
        parse_model_config("version https://git-lfs.github.com/spec/v1\n", "c").error().message,
        "c: this is a pointer of Git LFS, no JSON; fetch the file itself with git lfs pull");
    EXPECT_EQ(parse_model_config("<!DOCTYPE html><html>", "c").error().message,
              "c: this is an HTML page, no JSON: a server gave it in place of the file. Fetch the "
              "file again");
}

TEST(ModelConfig, RefusesTooDeepNesting) {
    const std::string text(100000, '[');
    EXPECT_THAT(parse_model_config(text, "c").error().message, HasSubstr("nested deeper than 64"));
}

}  // namespace
}  // namespace afd::model

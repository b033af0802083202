// SPDX-License-Identifier: Apache-2.0
//
// int-quantized of compressed-tensors: what a config.json may say, and which matrices stay int8, as
// it foretells and as the tensors say. Those have one element each: names, types and numbers of
// dimensions are all that is looked at.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "model/attention/attention_config.h"
#include "model/family/config_file.h"
#include "model/family/expert_formats.h"
#include "model/foreign/foreign_form.h"
#include "tests/model/family/settled_formats.h"

namespace afd::model {
namespace {

using nlohmann::json;

// As llm-compressor writes it: two layers, the first of them dense, two routed experts and a shared
// one.
json int8_config() {
    json config = two_layer_config();
    const json weights = {{"num_bits", 8},
                          {"type", "int"},
                          {"symmetric", true},
                          {"group_size", nullptr},
                          {"strategy", "channel"},
                          {"dynamic", false},
                          {"actorder", nullptr}};
    const json rows = {{"num_bits", 8},
                       {"type", "int"},
                       {"symmetric", true},
                       {"group_size", nullptr},
                       {"strategy", "token"},
                       {"dynamic", true}};
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "int-quantized"},
                                     {"ignore", {"lm_head", "re:.*mlp.gate$"}},
                                     {"kv_cache_scheme", nullptr},
                                     {"config_groups",
                                      {{"group_0",
                                        {{"targets", {"Linear"}},
                                         {"weights", weights},
                                         {"input_activations", rows},
                                         {"output_activations", nullptr}}}}}};
    return config;
}

json& first_group(json& config) {
    return config["quantization_config"]["config_groups"]["group_0"];
}

ModelConfig int8_parsed(const json& config) {
    auto read = parse_model_config(config.dump(), "config.json");
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read.value() : ModelConfig();
}

std::string foretold(const json& config) {
    return describe(int8_parsed(config).quantisation);
}

TEST(Int8Form, IsOurInt8) {
    json config = int8_config();
    EXPECT_EQ(int8_parsed(config).form, (ForeignForm{.kind = ForeignKind::kInt8Rows}));
    EXPECT_EQ(foretold(config), "experts int8, attention int8");
    // What the library takes for granted.
    for (const char* part : {"weights", "input_activations"}) {
        for (const char* key : {"type", "symmetric", "group_size"}) {
            first_group(config)[part].erase(key);
        }
    }
    first_group(config)["weights"].erase("dynamic");
    EXPECT_EQ(foretold(config), "experts int8, attention int8");
    config["quantization_config"]["config_groups"]["group_1"] = first_group(config);
    EXPECT_EQ(foretold(config), "experts int8, attention int8");
}

TEST(Int8Form, ForetellsWhatStaysInt8) {
    json config = int8_config();
    const auto ignored = [&](const char* modules) {
        config["quantization_config"]["ignore"] = json::array({modules});
        return foretold(config);
    };
    EXPECT_EQ(ignored("re:.*shared_experts.*"),
              "experts int8, shared and dense bf16, attention int8");
    EXPECT_EQ(ignored("model.layers.0.mlp.up_proj"),
              "experts int8, shared and dense bf16, attention int8");
    EXPECT_EQ(ignored("re:.*self_attn.*"), "experts int8");
    EXPECT_EQ(ignored("model.layers.1.self_attn.o_proj"), "experts int8");
    EXPECT_EQ(ignored("re:.*kv_b_proj"), "experts int8, attention int8") << "bf16 in any case";
    EXPECT_EQ(ignored("model.layers.1.mlp.experts.1.down_proj"), "attention int8");
    EXPECT_EQ(ignored("re:.*"), "bf16");
}

struct RefusedKey {
    const char* name;
    const char* key;  // Within a group.
    json value;
    const char* message;
};

class RefusedInt8Form : public ::testing::TestWithParam<RefusedKey> {};

// Goal: whatever would have other values than our int8 is refused, and the message says what to do.
TEST_P(RefusedInt8Form, NamesTheKeyAndTheMend) {
    json config = int8_config();
    // Behind another group that is as it should be; "weights" are the same in all of them.
    json& groups = config["quantization_config"]["config_groups"];
    const bool is_of_weights = std::string(GetParam().key).starts_with("/weights");
    if (!is_of_weights) groups["a"] = first_group(config);
    first_group(config)[json::json_pointer(GetParam().key)] = GetParam().value;
    const Error error = refusal(config);
    EXPECT_EQ(error.code, Code::kUnimplemented);
    EXPECT_EQ(error.message,
              "config.json: quantization_config: config_groups: " +
                  std::string(GetParam().message) + kForeignRemedy);
}

INSTANTIATE_TEST_SUITE_P(
    Keys,
    RefusedInt8Form,
    ::testing::Values(
        RefusedKey{"bits", "/weights/num_bits", 4, "weights: num_bits is 4; supported: 8"},
        RefusedKey{
            "floats", "/weights/type", "float", "weights: type is \"float\"; supported: \"int\""},
        RefusedKey{"asymmetric",
                   "/weights/symmetric",
                   false,
                   "weights: symmetric is false; supported: true"},
        RefusedKey{"group",
                   "/weights/strategy",
                   "group",
                   "weights: strategy is \"group\"; supported: \"channel\""},
        RefusedKey{"no_strategy",
                   "/weights/strategy",
                   nullptr,
                   "weights: strategy is missing; supported: \"channel\""},
        RefusedKey{"dynamic_weights",
                   "/weights/dynamic",
                   true,
                   "weights: dynamic is true; supported: false"},
        RefusedKey{"weights_alone",
                   "/input_activations",
                   nullptr,
                   "input_activations is missing; supported: an object (int8 weights multiply int8 "
                   "activations)"},
        RefusedKey{"four_bit_rows",
                   "/input_activations/num_bits",
                   4,
                   "input_activations: num_bits is 4; supported: 8"},
        RefusedKey{"fp8_rows",
                   "/input_activations/type",
                   "float",
                   "input_activations: type is \"float\"; supported: \"int\""},
        RefusedKey{"asymmetric_rows",
                   "/input_activations/symmetric",
                   false,
                   "input_activations: symmetric is false; supported: true"},
        RefusedKey{"static_rows",
                   "/input_activations/dynamic",
                   false,
                   "input_activations: dynamic is false; supported: true"},
        RefusedKey{"locally_dynamic_rows",
                   "/input_activations/dynamic",
                   "local",
                   "input_activations: dynamic is \"local\"; supported: true"},
        RefusedKey{"rows_of_a_tensor",
                   "/input_activations/strategy",
                   "tensor",
                   "input_activations: strategy is \"tensor\"; supported: \"token\""},
        RefusedKey{"outputs",
                   "/output_activations",
                   {{"num_bits", 8}},
                   "output_activations is {\"num_bits\":8}; supported: none"}),
    [](const auto& param_info) { return param_info.param.name; });

class Int8Formats : public SettledFormats {
  protected:
    Int8Formats() : SettledFormats(int8_parsed(int8_config())) {
        for_each_expert_module(
            [this](const std::string& module) { add(module + ".weight", StorageType::kI8); });
        for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
            for (const AttentionMatrix& matrix : config_.attention->matrices(config_, layer)) {
                add(matrix.prefix + ".weight", StorageType::kI8);
            }
        }
    }

    const std::string attention_ = "model.layers.1.self_attn.o_proj";
};

TEST_F(Int8Formats, AreWhatTheTensorsSayWhateverWasForetold) {
    json config = int8_config();
    config["quantization_config"]["ignore"] = json::array({"re:.*"});
    config_ = int8_parsed(config);
    EXPECT_EQ(describe(config_.quantisation), "bf16");
    EXPECT_EQ(settled(), "experts int8, attention int8");
    store_bf16(shared_);
    EXPECT_EQ(settled(), "experts int8, shared and dense bf16, attention int8");
    store_bf16(attention_);
    EXPECT_EQ(settled(), "experts int8, shared and dense bf16");
    store_bf16(routed_);
    EXPECT_EQ(settled(), "bf16");
}

// It is named when it is read.
TEST_F(Int8Formats, DoNotDependOnWhatIsMissing) {
    remove(routed_);
    remove(shared_);
    remove(attention_);
    EXPECT_EQ(settled(), "experts int8, attention int8");
}

}  // namespace
}  // namespace afd::model

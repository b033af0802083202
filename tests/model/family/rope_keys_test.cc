// SPDX-License-Identifier: Apache-2.0
//
// Goal: how positions are rotated is read from files of either age, or refused by name. Method:
// released configurations with these keys changed. Oracle: what the configuration classes of
// transformers 5 make of such a file.

#include "model/family/rope_keys.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/family/released_config.h"

namespace afd::model {
namespace {

using nlohmann::json;

// A released configuration as transformers 5 writes it again, with more in its rope_parameters.
json rewritten(const std::string& name, const json& more) {
    json config = released(name);
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
    config["rope_parameters"].update(more);
    config.erase("rope_theta");
    config.erase("rope_scaling");
    return config;
}

json yarn() {
    return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
}

// As a reader of Qwen's page adds it to a file of transformers 5.
TEST(RopeKeys, RopeScalingCountsBeforeRopeParameters) {
    json config = rewritten("qwen3_30b_a3b", json::object());
    EXPECT_FALSE(accepted(config).yarn.has_value());
    EXPECT_EQ(accepted(config).rope_theta, 1e6);
    config["rope_scaling"] = yarn();
    const ModelConfig read = accepted(config);
    EXPECT_EQ(read.yarn.value().factor, 4.0);
    EXPECT_EQ(read.yarn->original_max_positions, 32768);
    EXPECT_EQ(read.rope_theta, 1e6) << "of the other object";

    config["rope_parameters"].update(yarn());
    config["rope_scaling"] = {{"rope_type", "default"}};
    EXPECT_FALSE(accepted(config).yarn.has_value());
    config["rope_scaling"] = json::object();
    EXPECT_TRUE(accepted(config).yarn.has_value()) << "an empty one says nothing";
    config["rope_scaling"] = nullptr;
    EXPECT_TRUE(accepted(config).yarn.has_value());
    config["rope_scaling"] = {{"rope_type", "linear"}};
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_scaling: rope_type is \"linear\"; supported: \"default\", "
              "\"yarn\"");
    config["rope_scaling"] = 4;
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_scaling is 4; supported: an object or null");
}

TEST(RopeKeys, RopeThetaIsOneNumberWhereverItStands) {
    json config = rewritten("qwen3_30b_a3b", json::object());
    EXPECT_EQ(refused(config, {{"rope_theta", 1000000}}), "accepted");
    EXPECT_EQ(refused(config, {{"rope_theta", 10000}}),
              "config.json: rope_parameters: rope_theta is 1000000.0; supported: 10000, as another "
              "part of the file has it");
    config["rope_scaling"] = yarn();
    config["rope_scaling"]["rope_theta"] = 5e6;
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_parameters: rope_theta is 1000000.0; supported: 5000000, as "
              "another part of the file has it");
    config["rope_parameters"].erase("rope_theta");
    EXPECT_EQ(accepted(config).rope_theta, 5e6);
    config["rope_scaling"]["rope_theta"] = 0;
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_scaling: rope_theta is 0; supported: a finite number above 0");
}

// Read as "default" it would answer in a context four times as long with a rotation that it was not
// told to use.
TEST(RopeKeys, AScalingWithoutATypeIsRefused) {
    json config = released("qwen3_30b_a3b");
    json scaling = yarn();
    scaling.erase("rope_type");
    EXPECT_EQ(refused(config, {{"rope_scaling", scaling}}),
              "config.json: rope_scaling: rope_type is missing; supported: \"default\", \"yarn\"; "
              "without it nothing says what factor is for");
    scaling["rope_typ"] = "yarn";
    scaling["type"] = nullptr;
    scaling.erase("factor");
    scaling.erase("original_max_position_embeddings");
    EXPECT_EQ(refused(config, {{"rope_scaling", scaling}}),
              "config.json: rope_scaling: rope_type is missing; supported: \"default\", \"yarn\"; "
              "without it nothing says what rope_typ is for");
    const json of_layers = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
    EXPECT_EQ(refused(config, {{"rope_parameters", of_layers}}),
              "config.json: rope_parameters: rope_type is missing; supported: \"default\", "
              "\"yarn\"; without it nothing says what full_attention is for");
    json phi = released("phi_3_5_moe");
    phi["rope_scaling"].erase("type");
    EXPECT_EQ(refused(phi, json::object()),
              "config.json: rope_scaling: rope_type is missing; supported: \"default\", "
              "\"longrope\"; without it nothing says what long_factor is for");

    config["rope_scaling"] = {{"rope_theta", 1000000}, {"partial_rotary_factor", 1.0}};
    config["rope_scaling"]["factor"] = nullptr;
    EXPECT_EQ(refused(config, json::object()), "accepted") << "these need no type";
    EXPECT_FALSE(accepted(config).yarn.has_value());
}

// What another program reads of it would change the computation.
TEST(RopeKeys, AKeyOfAScalingThatNobodyReadsIsRefused) {
    json config = released("qwen3_30b_a3b");
    for (const char* key : {"attn_factor", "extrapolation_factor"}) {
        config["rope_scaling"] = yarn();
        config["rope_scaling"][key] = 2.0;
        EXPECT_EQ(refused(config, json::object()),
                  std::string("config.json: rope_scaling: ") + key +
                      " is 2.0; supported: none (no setting of \"yarn\" that is known here)");
        config["rope_scaling"]["rope_type"] = "default";
        EXPECT_EQ(refused(config, json::object()), "accepted") << "nothing is scaled";
    }
}

// As Qwen documents it: max_position_embeddings stays as it was.
TEST(RopeKeys, YarnMakesTheContextAsLongAsItSays) {
    json config = released("qwen3_30b_a3b");
    EXPECT_EQ(accepted(config).context_length, 40960u);
    config["rope_scaling"] = yarn();
    EXPECT_EQ(accepted(config).context_length, 131072u);
    config["max_position_embeddings"] = 262144;
    EXPECT_EQ(accepted(config).context_length, 262144u) << "never shorter";
    config["max_position_embeddings"] = 40960;
    config["rope_scaling"]["factor"] = 1e9;
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_scaling: factor is 1000000000.0; supported: at most 512, for "
              "16777216 tokens");
    config["rope_scaling"] = yarn();
    config["rope_scaling"].erase("original_max_position_embeddings");
    EXPECT_EQ(accepted(config).context_length, 40960u) << "without the length that is multiplied";
    EXPECT_EQ(accepted(config).yarn.value().original_max_positions, 40960);
}

// A file that says the factor of cos and sin itself, as the formula has it or not.
TEST(RopeKeys, AnAttentionFactorMaySayWhatMscaleSays) {
    json config = released("qwen3_30b_a3b");
    config["rope_scaling"] = yarn();
    const auto said = [&](const json& factor) {
        config["rope_scaling"]["attention_factor"] = factor;
        return refused(config, json::object());
    };
    EXPECT_EQ(said(1.1386294361119891), "accepted") << "0.1 ln 4 + 1";
    EXPECT_EQ(said(1.1386), "accepted");
    EXPECT_EQ(said(1.138),
              "config.json: rope_scaling: attention_factor is 1.138; supported: none, or 1.13863 "
              "(mscale is used)");
    EXPECT_EQ(said(1.0),
              "config.json: rope_scaling: attention_factor is 1.0; supported: none, or 1.13863 "
              "(mscale is used)");
    EXPECT_EQ(said(-1.13863),
              "config.json: rope_scaling: attention_factor is -1.13863; supported: a finite number "
              "above 0");
    config = released("deepseek_v3");
    EXPECT_EQ(said(1.0), "accepted") << "mscale and mscale_all_dim are equal";
    config["rope_scaling"]["mscale_all_dim"] = 0.5;
    EXPECT_EQ(said(1.155720), "accepted") << "(0.1 ln 40 + 1) / (0.05 ln 40 + 1)";
}

// Of these the published length is the product.
TEST(RopeKeys, ReleasesWithYarnKeepTheirContext) {
    for (const char* name : {"deepseek_v2",
                             "deepseek_v2_lite",
                             "deepseek_v3",
                             "deepseek_r1",
                             "deepseek_v3_1",
                             "gigachat3_10b_a1_8b",
                             "gpt_oss_20b",
                             "gpt_oss_120b",
                             "kimi_k2"}) {
        SCOPED_TRACE(name);
        const ModelConfig config = accepted(released(name));
        EXPECT_TRUE(config.yarn.has_value());
        EXPECT_EQ(config.context_length, released(name)["max_position_embeddings"]);
    }
}

// A window as long as the context sees everything; one as long as the original context does not.
TEST(RopeKeys, AWindowIsComparedWithTheContextOfYarn) {
    json config = released("mixtral_8x7b");
    config["sliding_window"] = 32768;
    config["num_hidden_layers"] = 2;
    EXPECT_EQ(traits_of(accepted(config)).windows, std::vector<uint32_t>(2, 0));
    config["rope_scaling"] = yarn();
    EXPECT_EQ(accepted(config).context_length, 131072u);
    EXPECT_EQ(traits_of(accepted(config)).windows, std::vector<uint32_t>(2, 32768));
}

// What its configuration class fills in, which is also what both releases say.
TEST(RopeKeys, AGptOssThatSaysNothingHasYarn) {
    json config = released("gpt_oss_20b");
    const ops::YarnScaling said = accepted(config).yarn.value();
    config.erase("rope_scaling");
    const ModelConfig silent = accepted(config);
    ASSERT_TRUE(silent.yarn.has_value());
    EXPECT_EQ(silent.yarn->factor, said.factor);
    EXPECT_EQ(silent.yarn->original_max_positions, said.original_max_positions);
    EXPECT_EQ(silent.yarn->beta_fast, said.beta_fast);
    EXPECT_EQ(silent.yarn->beta_slow, said.beta_slow);
    EXPECT_EQ(silent.yarn->mscale, said.mscale);
    EXPECT_EQ(silent.yarn->mscale_all_dim, said.mscale_all_dim);
    EXPECT_EQ(silent.yarn->truncate, said.truncate);
    EXPECT_EQ(silent.rope_theta, 150000);
    config["max_position_embeddings"] = 8192;
    EXPECT_EQ(accepted(config).context_length, 8192u) << "the file does not say how long it was";
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 150000}};
    EXPECT_FALSE(accepted(config).yarn.has_value());
    config.erase("rope_parameters");
    config["rope_scaling"] = yarn();
    EXPECT_EQ(accepted(config).yarn.value().factor, 4.0);
    EXPECT_TRUE(accepted(config).yarn->truncate);
}

TEST(RopeKeys, MiniMaxRotatesThePartThatEitherKeySays) {
    EXPECT_EQ(traits_of(accepted(released("minimax_m2"))).rotary_dim, 64u);
    json config = rewritten("minimax_m2", {{"partial_rotary_factor", 0.5}});
    EXPECT_EQ(refused(config, json::object()), "accepted") << "both keys say 64";
    config.erase("rotary_dim");
    EXPECT_EQ(traits_of(accepted(config)).rotary_dim, 64u);
    config["rope_parameters"]["partial_rotary_factor"] = 0.25;
    EXPECT_EQ(traits_of(accepted(config)).rotary_dim, 32u);
    EXPECT_EQ(refused(config, {{"rotary_dim", 64}}),
              "config.json: rotary_dim is 64; supported: 32, as partial_rotary_factor has it");
    config["rope_parameters"].erase("partial_rotary_factor");
    EXPECT_EQ(traits_of(accepted(config)).rotary_dim, 64u) << "neither key is there: half";
    config["partial_rotary_factor"] = 0.75;
    EXPECT_EQ(traits_of(accepted(config)).rotary_dim, 96u);
    config["rope_parameters"]["partial_rotary_factor"] = 0.5;
    EXPECT_EQ(refused(config, json::object()),
              "config.json: rope_parameters: partial_rotary_factor is 0.5; supported: 0.75, as "
              "another part of the file has it");
    config["rope_parameters"]["partial_rotary_factor"] = 0.3;
    EXPECT_EQ(refused(config, {{"partial_rotary_factor", nullptr}}),
              "config.json: rope_parameters: partial_rotary_factor is 0.3; supported: a part of "
              "head_dim, 128, that is an even number");
    EXPECT_EQ(refused(released("minimax_m2"), {{"rotary_dim", 63}}),
              "config.json: rotary_dim is 63; supported: an even number");
}

TEST(RopeKeys, AFactorIsRefusedWhereAllOfAHeadIsRotated) {
    for (const char* name : {"qwen3_30b_a3b",
                             "qwen1_5_moe_a2_7b",
                             "mixtral_8x7b",
                             "olmoe_1b_7b",
                             "phi_3_5_moe",
                             "gpt_oss_20b",
                             "dots_llm1",
                             "deepseek_moe_16b"}) {
        SCOPED_TRACE(name);
        json config = released(name);
        EXPECT_EQ(refused(config, {{"partial_rotary_factor", 1.0}}), "accepted");
        EXPECT_EQ(refused(config, {{"partial_rotary_factor", 0.5}}),
                  "config.json: partial_rotary_factor is 0.5; supported: 1");
        config["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
        EXPECT_EQ(refused(config, json::object()),
                  "config.json: rope_parameters: partial_rotary_factor is 0.5; supported: 1");
    }
}

}  // namespace
}  // namespace afd::model

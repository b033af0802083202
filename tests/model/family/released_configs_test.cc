// SPDX-License-Identifier: Apache-2.0
//
// config.json of published releases (tests/model/family/released/ and refused/): what each says of
// the model. Which values were confirmed, and where, is said in tools/release_sources.py. What was
// written from memory shows that such a file is read as it says, not that the release has it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "model/attention/layer_windows.h"
#include "model/decoder/attention_half.h"
#include "model/gqa/gqa_config.h"
#include "model/mla/mla_config.h"
#include "tests/model/family/released_config.h"

namespace afd::model {
namespace {

using nlohmann::json;

TEST(ReleasedConfigs, Qwen3Moe) {
    const ModelConfig config = accepted(released("qwen3_30b_a3b"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(config.model_type, "qwen3_moe");
    EXPECT_EQ(traits.shape.num_heads, 32u);
    EXPECT_EQ(traits.shape.num_kv_heads, 4u);
    EXPECT_EQ(traits.shape.head_dim, 128u);
    EXPECT_EQ(traits.rotary_dim, 128u);
    EXPECT_EQ(traits.qk_norm, QkNorm::kHeads);
    EXPECT_FALSE(traits.has_qkv_bias);
    EXPECT_EQ(kv_shape(config).bytes_per_token(), 48u * 2 * 4 * 128 * 2);
    EXPECT_EQ(config.num_experts, 128u);
    EXPECT_EQ(config.top_k, 8u);
    EXPECT_EQ(config.moe_intermediate, 768u);
    EXPECT_EQ(config.num_shared_slots(), 0u);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.rope_theta, 1e6);
    EXPECT_TRUE(config.dense_layers.empty());
}

TEST(ReleasedConfigs, Qwen2Moe) {
    const ModelConfig config = accepted(released("qwen1_5_moe_a2_7b"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(traits.shape.head_dim, 128u);
    EXPECT_EQ(traits.qk_norm, QkNorm::kNone);
    EXPECT_TRUE(traits.has_qkv_bias);
    EXPECT_EQ(config.num_experts, 60u);
    EXPECT_EQ(config.shared_intermediate, 5632u);
    EXPECT_EQ(config.num_shared_slots(), 1u);
    EXPECT_EQ(config.names.shared_gate, "mlp.shared_expert_gate");
    EXPECT_FALSE(config.norm_topk_prob);
}

// The rule of the published configuration: a layer has experts if (index + 1) is a multiple of
// decoder_sparse_step and mlp_only_layers does not name it.
TEST(ReleasedConfigs, QwenNamesItsDenseLayers) {
    json config = released("qwen3_30b_a3b");
    config["num_hidden_layers"] = 7;
    config["decoder_sparse_step"] = 2;
    config["mlp_only_layers"] = {3};
    EXPECT_THAT(accepted(config).dense_layers, testing::ElementsAre(0, 2, 3, 4, 6));
    EXPECT_EQ(
        refused(config, {{"mlp_only_layers", {7}}}),
        "config.json: mlp_only_layers is [7]; supported: a list of at most 7 integers below 7");
    EXPECT_EQ(refused(config, {{"mlp_only_layers", 3}}),
              "config.json: mlp_only_layers is 3; supported: a list of at most 7 integers below 7");
    EXPECT_EQ(refused(config, {{"mlp_only_layers", json(8, 1)}}),
              "config.json: mlp_only_layers is [1,1,1,1,1,1,1,1]; supported: a list of at most 7 "
              "integers below 7");
}

// transformers 5 writes num_local_experts for the num_experts of Qwen3.
TEST(ReleasedConfigs, TheNumberOfExpertsHasTwoNames) {
    for (const auto& [name, usual, other] :
         {std::tuple("qwen3_30b_a3b", "num_experts", "num_local_experts"),
          std::tuple("qwen1_5_moe_a2_7b", "num_experts", "num_local_experts"),
          std::tuple("olmoe_1b_7b", "num_experts", "num_local_experts"),
          std::tuple("mixtral_8x7b", "num_local_experts", "num_experts"),
          std::tuple("phi_3_5_moe", "num_local_experts", "num_experts"),
          std::tuple("minimax_m2", "num_local_experts", "num_experts"),
          std::tuple("gpt_oss_20b", "num_local_experts", "num_experts")}) {
        SCOPED_TRACE(name);
        json config = released(name);
        const json count = config[usual];
        config.erase(usual);
        EXPECT_EQ(refused(config, json::object()),
                  std::string("config.json: ") + usual +
                      " is missing; supported: an integer in [1, 65536]");
        config[other] = count;
        EXPECT_EQ(accepted(config).num_experts, count);
        config[usual] = count;
        EXPECT_EQ(accepted(config).num_experts, count);
        config[usual] = 1000;
        EXPECT_EQ(refused(config, json::object()),
                  std::string("config.json: ") + usual + " is 1000; supported: " + count.dump() +
                      ", as " + other + " has it");
        config[other] = 0;
        EXPECT_EQ(
            refused(config, json::object()),
            std::string("config.json: ") + other + " is 0; supported: an integer in [1, 65536]");
    }
}

// Goal: the file for a million tokens, whose attention is another one, is not taken for the plain
// one. Method: the keys that it has beside those, in short. Oracle: the message says what to use.
TEST(ReleasedConfigs, QwenForAMillionTokensIsToldToUseThePlainFile) {
    const json chunks = {{"chunk_size", 262144}, {"local_size", 8192}};
    for (const char* name : {"qwen3_235b_a22b_2507", "qwen2_57b_a14b"}) {
        SCOPED_TRACE(name);
        EXPECT_EQ(refused(released(name), {{"dual_chunk_attention_config", chunks}}),
                  "config.json: dual_chunk_attention_config is {\"chunk_size\":262144,"
                  "\"local_size\":8192}; supported: none; use the config.json of the release, not "
                  "config_1m.json");
        EXPECT_EQ(
            refused(released(name), {{"sparse_attention_config", json::object()}}),
            "config.json: sparse_attention_config is {}; supported: none; use the config.json "
            "of the release, not config_1m.json");
        EXPECT_EQ(refused(released(name),
                          {{"dual_chunk_attention_config", nullptr},
                           {"sparse_attention_config", nullptr}}),
                  "accepted");
    }
}

TEST(ReleasedConfigs, Mixtral) {
    const ModelConfig config = accepted(released("mixtral_8x7b"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(traits.shape.num_kv_heads, 8u);
    EXPECT_EQ(traits.shape.head_dim, 128u);
    EXPECT_EQ(traits.qk_norm, QkNorm::kNone);
    EXPECT_EQ(config.num_experts, 8u);
    EXPECT_EQ(config.top_k, 2u);
    EXPECT_EQ(config.moe_intermediate, 14336u);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(config.rms_norm_eps, 1e-5);
}

TEST(ReleasedConfigs, Olmoe) {
    const ModelConfig config = accepted(released("olmoe_1b_7b"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(traits.shape.num_kv_heads, 16u);
    EXPECT_EQ(traits.qk_norm, QkNorm::kRow);
    EXPECT_FALSE(traits.clip.has_value());
    EXPECT_EQ(config.num_experts, 64u);
    EXPECT_FALSE(config.norm_topk_prob);
    json clipped = released("olmoe_1b_7b");
    clipped["clip_qkv"] = 8.0;
    EXPECT_EQ(traits_of(accepted(clipped)).clip, 8.0);
}

TEST(ReleasedConfigs, Glm4Moe) {
    const ModelConfig config = accepted(released("glm_4_5_air"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(traits.shape.num_heads, 96u);
    EXPECT_EQ(traits.shape.head_dim, 128u);
    EXPECT_EQ(traits.rotary_dim, 64u);
    EXPECT_TRUE(traits.has_qkv_bias);
    EXPECT_EQ(traits.qk_norm, QkNorm::kNone);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
    EXPECT_EQ(config.num_experts, 128u);
    EXPECT_EQ(config.shared_intermediate, 1408u);
    EXPECT_EQ(config.dense_layers.size(), 1u);
    const ModelConfig large = accepted(released("glm_4_5"));
    EXPECT_EQ(traits_of(large).qk_norm, QkNorm::kHeads);
    EXPECT_EQ(large.routed_scaling_factor, 2.5);
    EXPECT_EQ(large.dense_layers.size(), 3u);
    EXPECT_EQ(refused(released("glm_4_5"), {{"partial_rotary_factor", 0.3}}),
              "config.json: partial_rotary_factor is 0.3; supported: a part of head_dim, 128, that "
              "is an even number");
    EXPECT_EQ(refused(released("glm_4_5"), {{"partial_rotary_factor", 1e308}}),
              "config.json: partial_rotary_factor is 1e+308; supported: a part of head_dim, 128, "
              "that is an even number");
    json newer = released("glm_4_5");
    newer.erase("partial_rotary_factor");
    newer["rope_parameters"] = {
        {"rope_type", "default"}, {"rope_theta", 1000000}, {"partial_rotary_factor", 0.25}};
    EXPECT_EQ(traits_of(accepted(newer)).rotary_dim, 32u);
}

TEST(ReleasedConfigs, GptOss) {
    const ModelConfig config = accepted(released("gpt_oss_20b"));
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(traits.shape.num_heads, 64u);
    EXPECT_EQ(traits.shape.num_kv_heads, 8u);
    EXPECT_EQ(traits.shape.head_dim, 64u);
    EXPECT_TRUE(traits.has_qkv_bias);
    EXPECT_TRUE(traits.has_o_bias);
    EXPECT_TRUE(traits.has_sinks);
    EXPECT_EQ(traits.window(0), 128u);
    EXPECT_EQ(traits.window(1), 0u);
    EXPECT_EQ(config.form.kind, ForeignKind::kFusedExperts);
    EXPECT_EQ(describe(config.quantisation), "experts mxfp4");
    EXPECT_EQ(config.activation, ops::ExpertActivation::kSwigluOai);
    EXPECT_TRUE(config.has_expert_bias);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.names.router_logit_bias, "mlp.router.bias");
    EXPECT_FALSE(config.yarn.value().truncate);
    EXPECT_EQ(config.yarn.value().factor, 32.0);
    const LayerWindows windows = LayerWindows::of(config);
    EXPECT_EQ(windows.window, 128u);
    EXPECT_EQ(windows.num_windowed(), 12u);
    EXPECT_TRUE(windows.is_windowed[0]);
    EXPECT_FALSE(windows.is_windowed[1]);
    // 11 blocks a sequence: of the window, of 512 positions under way, and one more.
    EXPECT_EQ(windows.room(config, 131072, 64).num_tokens, 64u * 704);
    EXPECT_EQ(windows.room(config, 32768, 64).num_tokens, 32768u);
    EXPECT_EQ(accepted(released("gpt_oss_120b")).num_experts, 128u);
    json file = released("gpt_oss_20b");
    file.erase("layer_types");
    EXPECT_EQ(traits_of(accepted(file)).windows, traits.windows);
    EXPECT_EQ(refused(released("gpt_oss_20b"), {{"swiglu_limit", 10.0}}),
              "config.json: swiglu_limit is 10.0; supported: 7");
    EXPECT_EQ(refused(released("gpt_oss_20b"), {{"swiglu_alpha", 1.702}}), "accepted");
    EXPECT_EQ(refused(released("gpt_oss_20b"), {{"swiglu_alpha", 1.5}}),
              "config.json: swiglu_alpha is 1.5; supported: 1.702");
    EXPECT_EQ(refused(released("gpt_oss_20b"),
                      {{"quantization_config",
                        {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}}}),
              "config.json: quantization_config: quant_method is \"gptq\"; supported: \"mxfp4\", "
              "\"afd\"; for another one run afd-quantize on the original model or convert this one "
              "to bf16");
    // What afd-quantize --attention int8 writes.
    file = released("gpt_oss_20b");
    file["quantization_config"] = {
        {"quant_method", "afd"}, {"experts", "mxfp4"}, {"attention", "int8"}};
    EXPECT_EQ(describe(accepted(file).quantisation), "experts mxfp4, attention int8");
    EXPECT_EQ(accepted(file).form.kind, ForeignKind::kFusedExperts);
    file["quantization_config"]["experts"] = "int8";
    EXPECT_EQ(accepted(file).form.kind, ForeignKind::kNone);
    EXPECT_THAT(refused(released("mixtral_8x7b"),
                        {{"quantization_config",
                          {{"quant_method", "afd"}, {"experts", "mxfp4"}, {"attention", "int8"}}}}),
                testing::HasSubstr("supported: none, or what afd-quantize writes"));
    EXPECT_THAT(
        refused(released("mixtral_8x7b"), {{"quantization_config", {{"quant_method", "mxfp4"}}}}),
        testing::HasSubstr("run afd-quantize on the original model or convert this one to bf16"));
}

TEST(ReleasedConfigs, GroupedHeadsBeforeTheExpertsOfDeepSeek) {
    const ModelConfig first = accepted(released("deepseek_moe_16b"));
    EXPECT_EQ(traits_of(first).qk_norm, QkNorm::kNone);
    EXPECT_EQ(first.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(first.topk_method, TopkMethod::kGreedy);
    EXPECT_FALSE(first.norm_topk_prob);
    EXPECT_EQ(first.shared_intermediate, 2816u);

    const ModelConfig dots = accepted(released("dots_llm1"));
    EXPECT_EQ(traits_of(dots).qk_norm, QkNorm::kHeads);
    EXPECT_EQ(dots.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(dots.topk_method, TopkMethod::kNoauxTc);
    EXPECT_EQ(dots.routed_scaling_factor, 2.5);
    EXPECT_EQ(dots.dense_layers, std::vector<uint32_t>{0});

    const ModelConfig minimax = accepted(released("minimax_m2"));
    EXPECT_EQ(traits_of(minimax).qk_norm, QkNorm::kRow);
    EXPECT_EQ(traits_of(minimax).rotary_dim, 64u);
    EXPECT_EQ(minimax.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(minimax.topk_method, TopkMethod::kNoauxTc);
    EXPECT_TRUE(minimax.norm_topk_prob);
    EXPECT_EQ(minimax.quantisation.experts, ops::WeightFormat::kFp8Block128);
    EXPECT_EQ(refused(released("minimax_m2"), {{"attn_type_list", {1, 0}}}),
              "config.json: attn_type_list is [1,0]; supported: 1 for each layer");
    EXPECT_EQ(refused(released("minimax_m2"), {{"rotary_dim", 200}}),
              "config.json: rotary_dim is 200; supported: an integer in [2, 128]");
}

TEST(ReleasedConfigs, Phimoe) {
    const json file = released("phi_3_5_moe");
    const ModelConfig config = accepted(file);
    const GqaTraits traits = traits_of(config);
    EXPECT_EQ(config.model_type, "phimoe");
    EXPECT_EQ(traits.shape.num_heads, 32u);
    EXPECT_EQ(traits.shape.num_kv_heads, 8u);
    EXPECT_EQ(traits.shape.head_dim, 128u);
    EXPECT_TRUE(traits.has_qkv_bias);
    EXPECT_TRUE(traits.has_o_bias);
    EXPECT_EQ(traits.windows, std::vector<uint32_t>(32, 0)) << "as long as the context";
    EXPECT_TRUE(config.has_norm_bias);
    EXPECT_TRUE(config.has_head_bias);
    EXPECT_EQ(config.rms_norm_eps, 1e-5);
    EXPECT_EQ(config.num_experts, 16u);
    EXPECT_EQ(config.top_k, 2u);
    EXPECT_EQ(config.mixer_jitter, 0.01);
    EXPECT_FALSE(config.norm_topk_prob);
    EXPECT_EQ(config.names.router, "block_sparse_moe.gate");
    // The name of transformers.
    EXPECT_EQ(refused(file, {{"architectures", {"PhimoeForCausalLM"}}}), "accepted");
    EXPECT_EQ(refused(file, {{"num_experts_per_tok", 3}}),
              "config.json: num_experts_per_tok is 3; supported: 2, with sparsemixer routing");
    EXPECT_EQ(refused(file, {{"num_key_value_heads", nullptr}}),
              "config.json: num_key_value_heads is missing; supported: an integer in [1, 4096]");
    EXPECT_EQ(refused(file, {{"router_jitter_noise", -0.1}}),
              "config.json: router_jitter_noise is -0.1; supported: a finite number above 0");
    EXPECT_EQ(refused(file, {{"hidden_act", "gelu"}}),
              "config.json: hidden_act is \"gelu\"; supported: \"silu\"");
}

// Which of the two lists counts is said by the file, not by a request.
TEST(ReleasedConfigs, LongRopeGoesByTheContextOfTheFile) {
    json file = released("phi_3_5_moe");
    const ModelConfig whole = accepted(file);
    EXPECT_EQ(whole.long_rope.value().factors.size(), 64u);
    EXPECT_EQ(whole.long_rope->factors.back(), file["rope_scaling"]["long_factor"].back());
    EXPECT_EQ(whole.long_rope->scale, 1.243163121016122);
    file["rope_scaling"]["short_mscale"] = 1.5;
    file["max_position_embeddings"] = 4097;
    EXPECT_EQ(accepted(file).long_rope.value().factors, whole.long_rope->factors);
    file["max_position_embeddings"] = 4096;
    const ModelConfig cut = accepted(file);
    EXPECT_EQ(cut.long_rope.value().factors.back(), file["rope_scaling"]["short_factor"].back());
    EXPECT_EQ(cut.long_rope->scale, 1.5);
    // Newer files have it all in one object.
    json newer = file;
    newer["rope_parameters"] = file["rope_scaling"];
    newer["rope_parameters"]["rope_type"] = "longrope";
    newer["rope_parameters"]["rope_theta"] = 10000.0;
    newer.erase("rope_scaling");
    EXPECT_EQ(accepted(newer).long_rope.value().factors, cut.long_rope->factors);
    newer["rope_parameters"].erase("original_max_position_embeddings");
    EXPECT_EQ(accepted(newer).long_rope.value().factors, cut.long_rope->factors);
    newer.erase("original_max_position_embeddings");
    EXPECT_EQ(refused(newer, json::object()),
              "config.json: original_max_position_embeddings is missing; supported: an integer in "
              "[1, 16777216]");
    json plain = file;
    plain["rope_scaling"] = nullptr;
    EXPECT_FALSE(accepted(plain).long_rope.has_value());
    const auto refused_scaling = [&file](const char* key, const json& value) {
        json changed = file;
        changed["rope_scaling"][key] = value;
        return refused(changed, json::object());
    };
    EXPECT_EQ(refused_scaling("long_factor", {1.0, 2.0}),
              "config.json: rope_scaling: long_factor is [1.0,2.0]; supported: a list of 64 finite "
              "numbers above 0");
    EXPECT_THAT(refused_scaling("short_factor", json(64, 0)),
                testing::EndsWith("supported: a list of 64 finite numbers above 0"));
    EXPECT_EQ(refused_scaling("long_mscale", nullptr),
              "config.json: rope_scaling: long_mscale is missing; supported: a finite number above "
              "0");
    EXPECT_EQ(refused_scaling("type", "yarn"),
              "config.json: rope_scaling: type is \"yarn\"; supported: \"default\", "
              "\"longrope\"");
    EXPECT_EQ(refused(released("mixtral_8x7b"), {{"rope_scaling", {{"type", "longrope"}}}}),
              "config.json: rope_scaling: type is \"longrope\"; supported: \"default\", \"yarn\"");
}

TEST(ReleasedConfigs, KnownModelsOfOtherKindsAreToldWhatTheyNeed) {
    const auto message = [](const std::string& name) {
        return refused(config_file(AFD_REFUSED_CONFIGS, name), json::object());
    };
    EXPECT_EQ(message("ernie_4_5_21b_a3b"),
              "config.json: architectures is [\"Ernie4_5_MoeForCausalLM\"]; supported: a family of "
              "docs/models.md; this one needs interleaved rotation of grouped heads, and a router "
              "whose softmax scores have a bias that only chooses, which is not served: choose a "
              "model from that page");
    EXPECT_EQ(message("ling_lite_1_5"),
              "config.json: architectures is [\"BailingMoeForCausalLM\"]; supported: a family of "
              "docs/models.md; this one needs q, k and v in one tensor, under names of its own, "
              "which is not served: choose a model from that page");
    EXPECT_EQ(message("ling_mini_2_0"),
              "config.json: architectures is [\"BailingMoeV2ForCausalLM\"]; supported: a family of "
              "docs/models.md; this one needs q, k and v in one tensor, under names of its own, "
              "which is not served: choose a model from that page");
}

TEST(ReleasedConfigs, DeepSeekV2) {
    const ModelConfig config = accepted(released("deepseek_v2"));
    EXPECT_EQ(mla_shape_of(config).value().q_lora_rank, 1536u);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSoftmax);
    EXPECT_EQ(config.topk_method, TopkMethod::kGroupLimitedGreedy);
    EXPECT_EQ(config.num_groups, 8u);
    EXPECT_EQ(config.topk_group, 3u);
    EXPECT_EQ(config.routed_scaling_factor, 16.0);
    EXPECT_FALSE(config.norm_topk_prob);
    EXPECT_EQ(config.shared_intermediate, 3072u);
    EXPECT_EQ(config.yarn.value().mscale, 0.707);
    EXPECT_EQ(config.yarn->mscale_all_dim, 0.707);

    const ModelConfig lite = accepted(released("deepseek_v2_lite"));
    EXPECT_EQ(mla_shape_of(lite).value().q_lora_rank, 0u);
    EXPECT_EQ(lite.topk_method, TopkMethod::kGreedy);
    EXPECT_EQ(lite.dense_layers, std::vector<uint32_t>{0});
}

TEST(ReleasedConfigs, DeepSeekV3) {
    for (const char* name : {"deepseek_v3", "deepseek_r1", "deepseek_v3_1"}) {
        SCOPED_TRACE(name);
        const ModelConfig config = accepted(released(name));
        EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
        EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
        EXPECT_EQ(config.num_experts, 256u);
        EXPECT_EQ(config.num_groups, 8u);
        EXPECT_EQ(config.topk_group, 4u);
        EXPECT_EQ(config.routed_scaling_factor, 2.5);
        EXPECT_EQ(config.dense_layers, (std::vector<uint32_t>{0, 1, 2}));
        EXPECT_EQ(config.yarn.value().factor, 40.0);
        EXPECT_EQ(config.quantisation.experts, ops::WeightFormat::kFp8Block128);
        EXPECT_EQ(config.eos_token_ids, std::vector<uint32_t>{1});
    }
}

TEST(ReleasedConfigs, LargerOnesOfAFamily) {
    const ModelConfig mixtral = accepted(released("mixtral_8x22b"));
    EXPECT_EQ(mixtral.num_layers, 56u);
    EXPECT_EQ(traits_of(mixtral).shape.num_heads, 48u);
    const ModelConfig qwen2 = accepted(released("qwen2_57b_a14b"));
    EXPECT_EQ(qwen2.shared_intermediate, 20480u);
    EXPECT_EQ(traits_of(qwen2).windows, std::vector<uint32_t>(28, 0));
    EXPECT_EQ(accepted(released("qwen3_235b_a22b_2507")).rope_theta, 5e6);
    const ModelConfig coder = accepted(released("qwen3_coder_480b_a35b"));
    EXPECT_EQ(coder.num_experts, 160u);
    EXPECT_EQ(coder.num_shared_slots(), 0u);
    EXPECT_EQ(traits_of(coder).qk_norm, QkNorm::kHeads);
    EXPECT_EQ(accepted(released("glm_4_6")).context_length, 202752u);
}

TEST(ReleasedConfigs, TheDeepSeekArchitectureUnderOtherNames) {
    const ModelConfig moonlight = accepted(released("moonlight_16b_a3b"));
    EXPECT_EQ(mla_shape_of(moonlight).value().q_lora_rank, 0u);
    EXPECT_EQ(moonlight.shared_intermediate, 2816u);
    const ModelConfig kimi = accepted(released("kimi_k2"));
    EXPECT_EQ(kimi.model_type, "deepseek_v3");
    EXPECT_EQ(kimi.num_experts, 384u);
    EXPECT_EQ(kimi.dense_layers.size(), 1u);
    EXPECT_EQ(kimi.quantisation.experts, ops::WeightFormat::kFp8Block128);
    const ModelConfig giga = accepted(released("gigachat3_10b_a1_8b"));
    EXPECT_EQ(mla_shape_of(giga).value().v_head_dim, 192u);
    EXPECT_EQ(accepted(released("kanana_2_30b_a3b")).top_k, 6u);
}

// Its text_config within a larger model may name no architecture.
TEST(ReleasedConfigs, KimiK2IsKnownByItsModelTypeAlone) {
    json file = released("kimi_k2");
    const ModelConfig by_architecture = accepted(file);
    file.erase("architectures");
    for (const json& nameless : {file, json{{"text_config", file}}}) {
        const ModelConfig kimi = accepted(nameless);
        EXPECT_EQ(kimi.model_type, "kimi_k2");
        EXPECT_EQ(kimi.num_layers, by_architecture.num_layers);
        EXPECT_EQ(kimi.num_experts, by_architecture.num_experts);
        EXPECT_EQ(kimi.dense_layers, by_architecture.dense_layers);
        EXPECT_EQ(kimi.shared_intermediate, by_architecture.shared_intermediate);
        EXPECT_EQ(kimi.routed_scaling_factor, by_architecture.routed_scaling_factor);
        EXPECT_EQ(kimi.quantisation, by_architecture.quantisation);
        const auto shape = mla_shape_of(kimi).value();
        EXPECT_EQ(shape.num_heads, mla_shape_of(by_architecture).value().num_heads);
        EXPECT_EQ(shape.q_lora_rank, mla_shape_of(by_architecture).value().q_lora_rank);
    }
}

TEST(ReleasedConfigs, WhatWouldChangeTheComputationIsRefusedByName) {
    const json qwen = released("qwen3_30b_a3b");
    const json mixtral = released("mixtral_8x7b");
    EXPECT_EQ(refused(released("olmoe_1b_7b"), {{"sliding_window", 4096}}),
              "config.json: sliding_window is 4096; supported: null");
    // As transformers 5 writes it of a model in which no layer has the window.
    json dots = released("dots_llm1");
    dots.erase("use_sliding_window");
    json types(dots["num_hidden_layers"].get<size_t>(), "full_attention");
    const json written = {
        {"sliding_window", 4096}, {"max_window_layers", 62}, {"layer_types", types}};
    EXPECT_EQ(refused(dots, written), "accepted");
    types[5] = "sliding_attention";
    EXPECT_THAT(refused(dots, {{"sliding_window", 4096}, {"layer_types", types}}),
                testing::EndsWith("; supported: \"full_attention\" for each layer"));
    EXPECT_EQ(refused(dots, {{"sliding_window", 4096}, {"layer_types", json::array()}}),
              "config.json: sliding_window is 4096; supported: null");
    EXPECT_EQ(refused(qwen, {{"use_sliding_window", true}}),
              "config.json: use_sliding_window is true; supported: false, or true with "
              "layer_types");
    EXPECT_EQ(refused(qwen, {{"sliding_window", 4096}}), "accepted");
    EXPECT_EQ(refused(qwen, {{"layer_types", {"full_attention", "sliding_attention"}}}),
              "config.json: layer_types is [\"full_attention\",\"sliding_attention\"]; supported: "
              "a list of 48 types");
    EXPECT_EQ(refused(qwen, {{"attention_bias", true}}),
              "config.json: attention_bias is true; supported: false");
    EXPECT_EQ(refused(qwen, {{"num_key_value_heads", 5}}),
              "config.json: num_key_value_heads is 5; supported: a divisor of "
              "num_attention_heads, 32");
    EXPECT_EQ(refused(qwen, {{"head_dim", 127}}),
              "config.json: head_dim is 127; supported: an even number");
    EXPECT_EQ(refused(mixtral, {{"num_attention_heads", 3}, {"num_key_value_heads", 3}}),
              "config.json: num_attention_heads is 3; supported: a divisor of hidden_size, 4096, "
              "where head_dim is not given");
    EXPECT_EQ(refused(mixtral, {{"num_experts_per_tok", 9}}),
              "config.json: num_experts_per_tok is 9; supported: at most the 8 experts of a layer");
    EXPECT_EQ(refused(released("olmoe_1b_7b"), {{"clip_qkv", -1}}),
              "config.json: clip_qkv is -1; supported: a finite number above 0");
}

TEST(ReleasedConfigs, Glm47FlashIsTheDecoderOfDeepSeekV3) {
    const json file = released("glm_4_7_flash");
    const ModelConfig config = accepted(file);
    EXPECT_EQ(config.model_type, "glm4_moe_lite");
    const auto* mla = dynamic_cast<const MlaConfig*>(config.attention.get());
    ASSERT_NE(mla, nullptr);
    EXPECT_EQ(mla->shape().v_head_dim, 256u);
    EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
    EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
    EXPECT_TRUE(config.norm_topk_prob);
    EXPECT_EQ(config.dense_layers, std::vector<uint32_t>{0});
    EXPECT_EQ(refused(file, {{"partial_rotary_factor", 0.5}}),
              "config.json: partial_rotary_factor is 0.5; supported: 1");
}

// A file of transformers 5 lists the layers; one that says nothing means the usual first one.
TEST(ReleasedConfigs, TheFirstLayerOfGlmIsDenseUnlessTheFileSaysSo) {
    for (const char* name : {"glm_4_7_flash", "glm_4_5_air"}) {
        SCOPED_TRACE(name);
        json file = released(name);
        file.erase("first_k_dense_replace");
        EXPECT_EQ(accepted(file).dense_layers, std::vector<uint32_t>{0});
        json types(file["num_hidden_layers"].get<size_t>(), "sparse");
        types[0] = types[1] = "dense";
        file["mlp_layer_types"] = types;
        EXPECT_EQ(accepted(file).dense_layers, (std::vector<uint32_t>{0, 1}));
    }
}

// Which layers see a window only.
TEST(ReleasedConfigs, WindowsAreThoseThatTheFileStates) {
    const auto windows = [](json config, const json& changes) {
        config.update(changes);
        const ModelConfig model = accepted(config);
        const auto* gqa = dynamic_cast<const GqaConfig*>(model.attention.get());
        return gqa == nullptr ? std::vector<uint32_t>() : gqa->traits().windows;
    };
    json mixtral = released("mixtral_8x7b");
    mixtral["num_hidden_layers"] = 4;
    const std::vector<uint32_t> none(4, 0);
    EXPECT_EQ(windows(mixtral, json::object()), none);
    EXPECT_EQ(windows(mixtral, {{"sliding_window", 4096}}), std::vector<uint32_t>(4, 4096));
    mixtral["sliding_window"] = 4096;
    EXPECT_EQ(LayerWindows::of(accepted(mixtral)).window, 0u) << "every layer has one";
    mixtral["sliding_window"] = nullptr;
    EXPECT_TRUE(LayerWindows::of(accepted(mixtral)).is_windowed.empty()) << "no layer has one";
    // As long as the context.
    EXPECT_EQ(windows(mixtral, {{"sliding_window", 32768}}), none);
    EXPECT_EQ(windows(mixtral, {{"sliding_window", 4096}, {"use_sliding_window", false}}), none);
    const json types = {
        "sliding_attention", "full_attention", "full_attention", "sliding_attention"};
    EXPECT_EQ(windows(mixtral, {{"sliding_window", 128}, {"layer_types", types}}),
              (std::vector<uint32_t>{128, 0, 0, 128}));
    EXPECT_EQ(refused(mixtral, {{"layer_types", types}}),
              "config.json: sliding_window is missing; supported: an integer in [1, 16777216]");
    EXPECT_EQ(refused(mixtral,
                      {{"sliding_window", 128}, {"layer_types", json::array({"full_attention"})}}),
              "config.json: layer_types is [\"full_attention\"]; supported: a list of 4 types");
    EXPECT_EQ(
        refused(mixtral, {{"sliding_window", 128}, {"use_sliding_window", true}}),
        "config.json: use_sliding_window is true; supported: false, or true with layer_types");
    // Of Qwen the flag is off unless it is said.
    json qwen = released("qwen3_30b_a3b");
    qwen["num_hidden_layers"] = 4;
    qwen.erase("use_sliding_window");
    EXPECT_EQ(windows(qwen, {{"sliding_window", 4096}}), none);
    EXPECT_EQ(windows(qwen, {{"sliding_window", 4096}, {"layer_types", types}}), none);
    const json said = {
        {"sliding_window", 4096}, {"layer_types", types}, {"use_sliding_window", true}};
    EXPECT_EQ(windows(qwen, said), (std::vector<uint32_t>{4096, 0, 0, 4096}));
}

}  // namespace
}  // namespace afd::model

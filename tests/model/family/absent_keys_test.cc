// SPDX-License-Identifier: Apache-2.0
//
// Goal: a config.json that says less than the release's is read as transformers reads it, or
// refused. Oracle: the defaults of transformers' classes of configurations, written down here.

#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tests/model/family/released_config.h"

namespace afd::model {
namespace {

using nlohmann::json;

TEST(AbsentKeys, MeanWhatTheyDoInTransformers) {
    const auto without = [](const char* name, std::initializer_list<const char*> keys) {
        json file = released(name);
        for (const char* key : keys) EXPECT_EQ(file.erase(key), 1u) << name << ": " << key;
        return accepted(file);
    };
    const ModelConfig v3 = without("deepseek_v3",
                                   {"n_group",
                                    "topk_group",
                                    "routed_scaling_factor",
                                    "n_shared_experts",
                                    "norm_topk_prob",
                                    "first_k_dense_replace"});
    EXPECT_EQ(v3.num_groups, 8u);
    EXPECT_EQ(v3.topk_group, 4u);
    EXPECT_EQ(v3.routed_scaling_factor, 2.5);
    EXPECT_EQ(v3.shared_intermediate, v3.moe_intermediate);
    EXPECT_TRUE(v3.norm_topk_prob);
    EXPECT_EQ(v3.dense_layers.size(), 3u);
    json file = released("deepseek_v3");
    file.erase("topk_group");
    EXPECT_EQ(refused(file, {{"n_group", 2}}),
              "config.json: topk_group is missing; supported: at most n_group, 2");
    const ModelConfig v2 = without("deepseek_v2", {"n_shared_experts", "norm_topk_prob"});
    EXPECT_EQ(v2.shared_intermediate, 2 * v2.moe_intermediate);
    EXPECT_FALSE(v2.norm_topk_prob);
    const ModelConfig flash =
        without("glm_4_7_flash", {"routed_scaling_factor", "n_shared_experts", "rms_norm_eps"});
    EXPECT_EQ(flash.routed_scaling_factor, 1.8);
    EXPECT_EQ(flash.shared_intermediate, flash.moe_intermediate);
    EXPECT_EQ(flash.rms_norm_eps, 1e-5);
    const ModelConfig glm = without("glm_4_5_air", {"n_shared_experts", "routed_scaling_factor"});
    EXPECT_EQ(glm.shared_intermediate, glm.moe_intermediate);
    EXPECT_EQ(glm.routed_scaling_factor, 1.0);
    EXPECT_FALSE(without("dots_llm1", {"norm_topk_prob"}).norm_topk_prob);
    const ModelConfig minimax = without("minimax_m2", {"rotary_dim", "rope_theta"});
    EXPECT_EQ(traits_of(minimax).rotary_dim, traits_of(minimax).shape.head_dim / 2);
    EXPECT_EQ(minimax.rope_theta, 5e6);
    EXPECT_EQ(traits_of(without("gpt_oss_20b", {"head_dim"})).shape.head_dim, 64u);
}

// In DeepSeek's own code a null is no shared expert; where the key is absent it has a default.
TEST(AbsentKeys, NullSharedExpertsAreNone) {
    for (const char* name : {"deepseek_v2", "deepseek_v3", "kimi_k2", "glm_4_7_flash"}) {
        json file = released(name);
        file["n_shared_experts"] = nullptr;
        EXPECT_EQ(accepted(file).num_shared_slots(), 0u) << name;
        file.erase("n_shared_experts");
        EXPECT_EQ(accepted(file).num_shared_slots(), 1u) << name;
    }
}

// Programs differ in what these mean together, or alone.
TEST(DisputedKeys, AreRefused) {
    EXPECT_EQ(refused(released("deepseek_v2"), {{"norm_topk_prob", true}}),
              "config.json: norm_topk_prob is true; supported: false, or routed_scaling_factor 1");
    EXPECT_EQ(refused(released("deepseek_v2"),
                      {{"norm_topk_prob", true}, {"routed_scaling_factor", 1.0}}),
              "accepted");
    json file = released("deepseek_v2");
    file["rope_scaling"].erase("mscale_all_dim");
    EXPECT_EQ(refused(file, json::object()),
              "config.json: rope_scaling: mscale is 0.707; supported: none, or both mscale and "
              "mscale_all_dim, above 0");
    file["rope_scaling"]["mscale"] = 1.0;
    EXPECT_EQ(refused(file, json::object()), "accepted") << "what it means where it is left out";
    file["rope_scaling"].erase("mscale");
    file["rope_scaling"]["mscale_all_dim"] = 0.707;
    EXPECT_EQ(refused(file, json::object()),
              "config.json: rope_scaling: mscale_all_dim is 0.707; supported: none, or both mscale "
              "and mscale_all_dim, above 0");
}

}  // namespace
}  // namespace afd::model

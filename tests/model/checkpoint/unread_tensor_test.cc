// SPDX-License-Identifier: Apache-2.0
//
// Weights that hold more of a layer than config.json has: said, and not left out in silence.

#include "model/checkpoint/unread_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/family/model_files.h"
#include "model/gqa/gqa_tensors.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_tensors.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// One layer: two heads of 4, hidden 8; and another tensor, of eight values.
Result<GqaTensors> read_layer(const std::string& other, float value, const GqaTraits& traits) {
    const test::TemporaryDirectory directory;
    const std::vector<ops::Bf16> zeros(64);
    const std::vector<ops::Bf16> values(8, ops::from_float(value));
    std::vector<TensorToWrite> tensors;
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
        tensors.push_back({layer_tensor(0, "self_attn.") + name + ".weight",
                           StorageType::kBf16,
                           {8, 8},
                           std::as_bytes(std::span(zeros))});
    }
    const auto eight = [&](const std::string& name, const std::vector<ops::Bf16>& of) {
        tensors.push_back({layer_tensor(0, name),
                           StorageType::kBf16,
                           {8},
                           std::as_bytes(std::span(of).first(8))});
    };
    eight("input_layernorm.weight", zeros);
    eight(other, values);
    EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), tensors).ok());
    const TensorStore store = TensorStore::open(directory.path()).value();
    ModelConfig config;
    config.hidden = 8;
    return read_gqa_tensors(store, config, traits, 0);
}

TEST(UnreadTensor, OfGroupedHeadsIsNamedWithItsKeys) {
    GqaTraits traits;
    traits.shape = {.hidden = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
    EXPECT_EQ(read_layer("self_attn.k_proj.bias", 0.5f, traits).error().message,
              "tensor model.layers.0.self_attn.k_proj.bias: the weights hold it, and the model of "
              "config.json has no such part; if attention_bias or qkv_bias says so wrongly correct "
              "it there, else fetch the file again, or this model is not served");
    EXPECT_THAT(read_layer("self_attn.q_norm.weight", 0.0f, traits).error().message,
                HasSubstr("if use_qk_norm says so wrongly"));
    EXPECT_THAT(read_layer("self_attn.o_proj.bias", -1.0f, traits).error().message,
                HasSubstr("if attention_bias says so wrongly"));
    // As some programs write it with every matrix.
    for (const auto& [name, value] : {std::pair("self_attn.k_proj.bias", 0.0f),
                                      std::pair("self_attn.rotary_emb.inv_freq", 1.0f)}) {
        const auto layer = read_layer(name, value, traits);
        EXPECT_TRUE(layer.ok()) << layer.error().message;
    }
}

TEST(UnreadTensor, OfSharedExpertsIsNamedWithItsKey) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.config()["n_shared_experts"] = 0;
    builder.write(directory.path());
    const auto files = ModelFiles::open(directory.path());
    ASSERT_FALSE(files.ok());
    EXPECT_EQ(files.error().message,
              "tensor model.layers.1.mlp.shared_experts.down_proj.weight: the weights hold it, and "
              "the model of config.json has no such part; if n_shared_experts says so wrongly "
              "correct it there, else fetch the file again, or this model is not served");
}

TEST(UnreadTensor, OfLatentHeadsIsNamedWithItsKey) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.add("model.layers.1.self_attn.o_proj.bias", {64});
    builder.add("model.layers.2.self_attn.kv_b_proj.bias", {64});
    builder.write(directory.path());
    const auto files = ModelFiles::open(directory.path());
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto shape = mla_shape_of(files.value().config()).value();
    const auto said = [&](uint32_t layer) {
        return read_mla_tensors(files.value().tensors(), shape, ops::WeightFormat::kBf16, layer)
            .error()
            .message;
    };
    EXPECT_THAT(said(1),
                HasSubstr("tensor model.layers.1.self_attn.o_proj.bias: the weights hold it"));
    EXPECT_THAT(said(2),
                HasSubstr("tensor model.layers.2.self_attn.kv_b_proj.bias: the weights hold it"));
}

}  // namespace
}  // namespace afd::model

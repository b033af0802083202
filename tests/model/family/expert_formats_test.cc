// SPDX-License-Identifier: Apache-2.0
//
// Which format experts have in memory, by the tensors that there are. They have one element each:
// names, types and numbers of dimensions are all that is looked at.

#include "model/family/expert_formats.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/model/family/v3_config.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using nlohmann::json;

// Two layers, the first of them dense, two routed experts and a shared one.
class ExpertFormats : public ::testing::Test {
  protected:
    ExpertFormats() {
        for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
            for (uint32_t e = 0; e < num_layer_experts(config_, layer); ++e) {
                for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
                    add_int4(expert_prefix(config_, layer, e) + part);
                }
            }
        }
    }

    static ModelConfig packed_v3(const json& ignored = json::array()) {
        json config = v3_config();
        config.update(json{{"num_hidden_layers", 2},
                           {"first_k_dense_replace", 1},
                           {"n_routed_experts", 2},
                           {"num_experts_per_tok", 1},
                           {"n_group", 1},
                           {"topk_group", 1}});
        const json weights = {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}};
        config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                         {"format", "pack-quantized"},
                                         {"ignore", ignored},
                                         {"config_groups", {{"group_0", {{"weights", weights}}}}}};
        return parse_model_config(config.dump(), "config.json").value();
    }

    void add(const std::string& name, StorageType type) {
        const size_t num_bytes = storage_type_bits(type) / 8;
        tensors_.push_back({name, type, {1, 1}, std::as_bytes(std::span(zero_)).first(num_bytes)});
    }
    void add_int4(const std::string& module, StorageType scale = StorageType::kBf16) {
        add(module + ".weight_packed", StorageType::kI32);
        add(module + ".weight_scale", scale);
    }
    void remove(const std::string& module) {
        std::erase_if(tensors_, [&](const TensorToWrite& tensor) {
            return tensor.name.starts_with(module + ".");
        });
    }
    // Instead of int4.
    void store_bf16(const std::string& module) {
        remove(module);
        add(module + ".weight", StorageType::kBf16);
    }
    void store_int4(const std::string& module, StorageType scale) {
        remove(module);
        add_int4(module, scale);
    }

    std::string settled() {
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors_).ok());
        settle_expert_formats(TensorStore::open(directory_.path()).value(), config_);
        return describe(config_.quantisation);
    }

    const std::string routed_ = "model.layers.1.mlp.experts.1.up_proj";
    const std::string shared_ = "model.layers.1.mlp.shared_experts.down_proj";
    const std::string dense_ = "model.layers.0.mlp.gate_proj";
    ModelConfig config_ = packed_v3();

  private:
    const test::TemporaryDirectory directory_;
    const std::vector<uint64_t> zero_ = std::vector<uint64_t>(1);
    std::vector<TensorToWrite> tensors_;
};

TEST_F(ExpertFormats, StayInt4WhereAllAreWhateverWasForetold) {
    config_ = packed_v3(json::array({"re:.*shared_experts.*"}));
    EXPECT_EQ(describe(config_.quantisation), "experts int4-g32, shared and dense bf16");
    EXPECT_EQ(settled(), "experts int4-g32");
    config_ = packed_v3(json::array({"re:.*mlp.*"}));
    EXPECT_EQ(describe(config_.quantisation), "bf16");
    EXPECT_EQ(settled(), "experts int4-g32");
}

TEST_F(ExpertFormats, OfSharedExpertsMayDiffer) {
    store_bf16(shared_);
    EXPECT_EQ(settled(), "experts int4-g32, shared and dense bf16");
    store_bf16(dense_);
    EXPECT_EQ(settled(), "experts int4-g32, shared and dense bf16");
    store_int4(shared_, StorageType::kBf16);
    EXPECT_EQ(settled(), "experts int4-g32, shared and dense bf16");
    store_int4(dense_, StorageType::kF16);
    EXPECT_EQ(settled(), "experts int4-g32, shared and dense bf16") << "scales of another type";
}

TEST_F(ExpertFormats, AreBf16WhereOneRoutedMatrixIs) {
    store_bf16(routed_);
    EXPECT_EQ(settled(), "bf16");
    store_int4(routed_, StorageType::kF16);
    EXPECT_EQ(settled(), "bf16") << "two types of scales";
}

TEST_F(ExpertFormats, HaveTheScalesOfTheTensors) {
    for (uint32_t e = 0; e < 2; ++e) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
            store_int4(expert_prefix(config_, 1, e) + part, StorageType::kF16);
        }
    }
    EXPECT_EQ(settled(), "experts int4-g32-fp16, shared and dense bf16");
    for (uint32_t e = 0; e < 2; ++e) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
            store_int4(expert_prefix(config_, 1, e) + part, StorageType::kF32);
        }
    }
    EXPECT_EQ(settled(), "bf16");
}

// It is named when it is read.
TEST_F(ExpertFormats, DoNotDependOnWhatIsMissing) {
    remove(routed_);
    remove(shared_);
    EXPECT_EQ(settled(), "experts int4-g32");
}

}  // namespace
}  // namespace afd::model

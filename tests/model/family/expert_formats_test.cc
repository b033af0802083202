// SPDX-License-Identifier: Apache-2.0
//
// Which format experts have in memory, by the tensors that there are. They have one element each:
// names, types and numbers of dimensions are all that is looked at.

#include "model/family/expert_formats.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "model/checkpoint/expert_tensors.h"
#include "tests/model/family/settled_formats.h"

namespace afd::model {
namespace {

using nlohmann::json;

class ExpertFormats : public SettledFormats {
  protected:
    ExpertFormats() : SettledFormats(packed_v3()) {
        for_each_expert_module([this](const std::string& module) { add_int4(module); });
    }

    static ModelConfig packed_v3(const json& ignored = json::array()) {
        json config = two_layer_config();
        const json weights = {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}};
        config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                         {"format", "pack-quantized"},
                                         {"ignore", ignored},
                                         {"config_groups", {{"group_0", {{"weights", weights}}}}}};
        return parse_model_config(config.dump(), "config.json").value();
    }

    void add_int4(const std::string& module, StorageType scale = StorageType::kBf16) {
        add(module + ".weight_packed", StorageType::kI32);
        add(module + ".weight_scale", scale);
    }
    void store_int4(const std::string& module, StorageType scale) {
        remove(module);
        add_int4(module, scale);
    }
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

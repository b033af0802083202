// SPDX-License-Identifier: Apache-2.0
#pragma once

// SettledFormats: a checkpoint whose tensors have one element each, for tests of what
// settle_expert_formats() makes of their names, types and numbers of dimensions.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/tensor_store.h"
#include "model/family/expert_formats.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/model/family/v3_config.h"
#include "tests/temporary_directory.h"

namespace afd::model {

// Layer 0 is dense, and layer 1 has two routed experts and a shared one.
inline nlohmann::json two_layer_config() {
    nlohmann::json config = v3_config();
    config.update(nlohmann::json{{"num_hidden_layers", 2},
                                 {"first_k_dense_replace", 1},
                                 {"n_routed_experts", 2},
                                 {"num_experts_per_tok", 1},
                                 {"n_group", 1},
                                 {"topk_group", 1}});
    return config;
}

// REQUIRES: the config's layers are those of two_layer_config().
class SettledFormats : public ::testing::Test {
  protected:
    explicit SettledFormats(ModelConfig config) : config_(std::move(config)) {}

    void for_each_expert_module(const std::function<void(const std::string&)>& look) const {
        for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
            for (uint32_t e = 0; e < num_layer_experts(config_, layer); ++e) {
                for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
                    look(expert_prefix(config_, layer, e) + part);
                }
            }
        }
    }

    void add(const std::string& name, StorageType type) {
        const size_t num_bytes = storage_type_bits(type) / 8;
        tensors_.push_back({name, type, {1, 1}, std::as_bytes(std::span(zero_)).first(num_bytes)});
    }
    void remove(const std::string& module) {
        std::erase_if(tensors_, [&](const TensorToWrite& tensor) {
            return tensor.name.starts_with(module + ".");
        });
    }
    // Instead of what it was.
    void store_bf16(const std::string& module) {
        remove(module);
        add(module + ".weight", StorageType::kBf16);
    }

    std::string settled() {
        EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), tensors_).ok());
        settle_expert_formats(TensorStore::open(directory_.path()).value(), config_);
        return describe(config_.quantisation);
    }

    const std::string routed_ = "model.layers.1.mlp.experts.1.up_proj";
    const std::string shared_ = "model.layers.1.mlp.shared_experts.down_proj";
    const std::string dense_ = "model.layers.0.mlp.gate_proj";
    ModelConfig config_;

  private:
    const test::TemporaryDirectory directory_;
    const std::vector<uint64_t> zero_ = std::vector<uint64_t>(1);
    std::vector<TensorToWrite> tensors_;
};

}  // namespace afd::model

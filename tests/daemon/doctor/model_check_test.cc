// SPDX-License-Identifier: Apache-2.0
//
// Goal: what afdd --check-config says of a model is what the start says of it. Method: directories
// that differ from what their config.json says. Oracle: ModelFiles::open() of the same directory.
#include "daemon/doctor/model_check.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/family/model_files.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

Result<CheckedModel> checked(const test::TemporaryDirectory& directory) {
    return check_model(directory.path(), ops::KvDtype::kBf16, ops::Int4Rows::kBf16);
}

TEST(ModelCheck, RefusesTensorsThatTheStartRefuses) {
    const test::TemporaryDirectory directory;
    model::CheckpointBuilder builder(model::small_config());
    builder.config()["n_shared_experts"] = 0;
    builder.write(directory.path());
    const auto opened = model::ModelFiles::open(directory.path());
    ASSERT_FALSE(opened.ok());
    const auto said = checked(directory);
    ASSERT_FALSE(said.ok());
    EXPECT_EQ(said.error().code, opened.error().code);
    EXPECT_EQ(said.error().message, opened.error().message);
}

// A router that GPTQ has quantised says by which names the checkpoint has its experts.
TEST(ModelCheck, FindsTheTensorsOfAQuantisedModel) {
    const test::TemporaryDirectory directory;
    const nlohmann::json config = {
        {"architectures", {"MixtralForCausalLM"}},
        {"model_type", "mixtral"},
        {"hidden_size", 256},
        {"intermediate_size", 256},
        {"max_position_embeddings", 64},
        {"num_attention_heads", 4},
        {"num_key_value_heads", 2},
        {"num_experts_per_tok", 1},
        {"num_hidden_layers", 1},
        {"num_local_experts", 2},
        {"vocab_size", 320},
        {"eos_token_id", 2},
        {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}}};
    directory.write("config.json", config.dump());
    const std::vector<std::byte> zero(4);
    const std::vector<model::TensorToWrite> router = {
        {"model.layers.0.mlp.gate.qweight", model::StorageType::kI32, {1, 1}, zero}};
    ASSERT_TRUE(model::write_safetensors(directory.path("model.safetensors"), router).ok());
    const auto opened = model::ModelFiles::open(directory.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const auto said = checked(directory);
    ASSERT_TRUE(said.ok()) << said.error().message;
    EXPECT_EQ(opened.value().config().names.experts, "mlp.experts");
    EXPECT_EQ(said.value().config.names.experts, "mlp.experts");
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// What a directory says beside config.json: files of other programs, and by which names its tensors
// call the experts. Tensors have one element each, since nothing but their names is looked at.

#include "model/family/model_files.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/family/mixture_keys.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/model/family/released_config.h"
#include "tests/model/family/v3_config.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using nlohmann::json;

// Whatever config.json says: it may be that of the model before.
TEST(ModelFiles, AreRefusedWithTheQuantisationOfAnotherFile) {
    const test::TemporaryDirectory directory;
    json config = v3_config();
    for (const json& format : {json(), json{{"quant_method", "gptq"}, {"bits", 4}}}) {
        config["quantization_config"] = format;
        directory.write("config.json", config.dump());
        EXPECT_TRUE(load_model_config(directory.path()).ok());
        for (const char* name : {"hf_quant_config.json", "quant_model_description.json"}) {
            const std::string path = directory.write(name, "{}");
            const std::string expected =
                path +
                ": says how another program has quantised this model, which is not read; "
                "supported: what quantization_config of config.json says, without this file; for "
                "another one run afd-quantize on the original model or convert this one to bf16";
            const auto config_alone = load_model_config(directory.path());
            ASSERT_FALSE(config_alone.ok()) << name;
            EXPECT_EQ(config_alone.error().code, Code::kUnimplemented);
            EXPECT_EQ(config_alone.error().message, expected);
            const auto files = ModelFiles::open(directory.path());
            ASSERT_FALSE(files.ok()) << name;
            EXPECT_EQ(files.error().message, expected) << "before the weights are looked for";
            std::filesystem::remove(path);
        }
    }
}

// The router of layer 0 says which names a checkpoint has, also where GPTQ has quantised it.
TEST(ModelFiles, HaveTheNamesOfAQuantisedRouter) {
    const std::vector<std::byte> zero(4);
    const auto router_of = [&](const std::string& tensor) {
        ModelConfig config = accepted(released("mixtral_8x7b"));
        config.form.kind = ForeignKind::kGptq;
        const test::TemporaryDirectory directory;
        const std::vector<TensorToWrite> all = {{tensor, StorageType::kI32, {1, 1}, zero}};
        EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), all).ok());
        TensorStore tensors = TensorStore::open(directory.path()).value();
        tensors.set_form(config.form);
        settle_mixture_names(tensors, config);
        return config.names.router;
    };
    EXPECT_EQ(router_of("model.layers.0.mlp.gate.weight"), "mlp.gate");
    EXPECT_EQ(router_of("model.layers.0.mlp.gate.qweight"), "mlp.gate");
    EXPECT_EQ(router_of("model.layers.0.block_sparse_moe.gate.qweight"), "block_sparse_moe.gate");
}

}  // namespace
}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
//
// What a directory says beside config.json: files of other programs.

#include "model/family/model_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace
}  // namespace afd::model

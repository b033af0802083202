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

}  // namespace
}  // namespace afd::model

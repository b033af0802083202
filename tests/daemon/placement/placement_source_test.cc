// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/placement_source.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// A dense layer, and MoE layers of 16 routed experts and a shared one.
const std::vector<schedule::LayerExperts> kLayers = {{0, 1}, {16, 1}, {16, 1}};

Config config_of(uint32_t num_ffn_workers) {
    Config config;
    config.attention_workers = 1;
    config.ffn_workers = num_ffn_workers;
    config.expert_placement = "round_robin";
    config.replica_choice = "session";
    return config;
}

std::string refusal(const Config& config, const std::vector<schedule::LayerExperts>& layers) {
    const auto placement = plan_placement(config, layers);
    return placement.ok() ? "placed" : placement.error().message;
}

TEST(PlacementSource, MoreWorkersThanRoutedExpertsAreRefused) {
    EXPECT_EQ(refusal(config_of(16), kLayers), "placed");
    EXPECT_EQ(refusal(config_of(40), kLayers),
              "ffn_workers = 40: must be at most 16, the routed experts of a layer: "
              "expert_placement = 'round_robin' holds each once, so 24 workers would hold none; an "
              "expert_placement with replicas can use more workers");
}

// Its one expert of each layer is on every rank.
TEST(PlacementSource, ModelWithoutRoutedExpertsTakesAnyNumber) {
    EXPECT_EQ(refusal(config_of(40), {{0, 1}, {0, 1}}), "placed");
}

TEST(PlacementSource, MoreReplicasThanWorkersAreRefused) {
    Config config = config_of(2);
    config.expert_placement = "replicas:2";
    EXPECT_EQ(refusal(config, kLayers), "placed");
    config.expert_placement = "replicas:3";
    EXPECT_EQ(refusal(config, kLayers),
              "expert_placement = 'replicas:3': each expert is to be on 3 FFN workers, and there "
              "are 2: ffn_workers must be at least as many");
}

TEST(PlacementSource, OfReplicasTheirNumberIsRead) {
    EXPECT_EQ(replicas_of("replicas:2"), 2U);
    for (const char* other : {"round_robin", "replicas:", "replicas:0", "replicas:2x", "2"}) {
        EXPECT_EQ(replicas_of(other), 0U) << other;
    }
}

TEST(PlacementSource, KeysOfAFileThatNobodyReadsAreRefused) {
    const test::TemporaryDirectory directory;
    Config config = config_of(2);
    config.expert_placement =
        directory.write("placement.json", R"({"experts": [[0], [1]], "layer": {"0": [[1], [0]]}})");
    EXPECT_EQ(refusal(config, {{2, 0}}),
              "expert_placement '" + config.expert_placement +
                  "': unknown key 'layer' (did you mean 'layers'?); there are \"experts\" and "
                  "\"layers\"");
    config.expert_placement =
        directory.write("commented.json", R"({"experts": [[0], [1]], "# by": "hand"})");
    EXPECT_EQ(refusal(config, {{2, 0}}),
              "expert_placement '" + config.expert_placement +
                  "': unknown key '# by'; there are \"experts\" and \"layers\"");
}

// Oracle: what tests/schedule/plugin/rogue_plugin.c does with so many ranks; that this process is
// there to compare it.
TEST(PlacementSource, ALibraryThatCrashesOrAnswersNonsenseIsRefused) {
    const std::string path = AFD_MOODY_PLUGIN;
    const auto refusal_with = [&](uint32_t num_ranks) {
        Config config = config_of(num_ranks);
        config.expert_placement = path;
        return refusal(config, kLayers);
    };
    EXPECT_EQ(refusal_with(2), "placed");
    EXPECT_EQ(refusal_with(1),
              "the plugin '" + path + "' ended its process with status 3 instead of answering");
    EXPECT_EQ(refusal_with(3), "the plugin '" + path + "' crashed (signal 11)");
    EXPECT_EQ(
        refusal_with(5),
        "the plugin '" + path + "': place_expert returned 10 for layer 0, expert 0; at most 5");
}

TEST(PlacementSource, ALibraryWithoutThePartIsRefused) {
    Config config = config_of(2);
    config.expert_placement = AFD_HALF_PLUGIN;
    EXPECT_EQ(refusal(config, kLayers),
              "the plugin '" AFD_HALF_PLUGIN "' has no place_expert, which expert_placement needs");
    config.expert_placement = "replicas:2";
    config.replica_choice = AFD_HALF_PLUGIN;
    EXPECT_EQ(refusal(config, kLayers),
              "the plugin '" AFD_HALF_PLUGIN "' has no choose_replica, which replica_choice needs");
}

// Replicas make sense of more workers than experts.
TEST(PlacementSource, FileWithReplicasMayNameMoreWorkersThanExperts) {
    const test::TemporaryDirectory directory;
    Config config = config_of(3);
    config.expert_placement = directory.write("placement.json", R"({"experts": [[0, 1], [1, 2]]})");
    EXPECT_EQ(refusal(config, {{2, 0}}), "placed");
}

// Goal: an exception that is of no layer is not left out without a word. Oracle: the refusal names
// the key; one of a layer is taken.
TEST(PlacementSource, AnExceptionOfNoLayerIsRefused) {
    const test::TemporaryDirectory directory;
    const std::vector<schedule::LayerExperts> layers = {{0, 1}, {2, 0}};
    const auto refusal_of = [&](const std::string& exceptions) {
        Config config = config_of(2);
        config.expert_placement = directory.write(
            "placement.json", R"({"experts": [[0], [1]], "layers": )" + exceptions + "}");
        const std::string said = refusal(config, layers);
        const size_t at = said.find("\"layers\"");
        return at == std::string::npos ? said : said.substr(at);
    };
    EXPECT_EQ(refusal_of(R"({"1": [[1], [0]]})"), "placed");
    EXPECT_EQ(refusal_of("{}"), "placed");
    for (const char* key : {"layer3", "99", "0", "01", "-1", ""}) {
        EXPECT_EQ(refusal_of("{\"" + std::string(key) + "\": [[1], [0]]}"),
                  "\"layers\": '" + std::string(key) +
                      "' is no layer with routed experts; write its number, below 2");
    }
    EXPECT_EQ(refusal_of("[[[1], [0]]]"), "\"layers\": must be an object: {\"3\": [...]}");
}

}  // namespace
}  // namespace afd::daemon

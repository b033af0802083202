// SPDX-License-Identifier: Apache-2.0
//
// Goal: a user's own scheduler, placement and replica choice take part in a live instance and
// change no bit. Method: the example library of tests/schedule/plugin, and a table in a file with
// replicas. Oracle: the same request with the built-in ones, token ids and logprobs compared.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr int kExperts = 16;  // Of the demo model.
const std::vector<std::string> kTwoAndTwo = {"--attention-workers", "2", "--ffn-workers", "2"};

client::Generation generate(const std::vector<std::string>& more) {
    std::vector<std::string> flags = kTwoAndTwo;
    flags.insert(flags.end(), more.begin(), more.end());
    Instance instance(flags);
    instance.wait_ready();
    client::Generate request = long_request(40);
    request.set_return_logprobs(true);
    auto generated = instance.connect().generate(request);
    EXPECT_TRUE(generated.ok()) << generated.error().message;
    EXPECT_EQ(instance.stop(), 0);
    return generated.ok() ? std::move(generated).value() : client::Generation{};
}

void expect_same(const client::Generation& expected, const client::Generation& found) {
    EXPECT_FALSE(expected.token_ids.empty());
    EXPECT_EQ(expected.token_ids, found.token_ids);
    ASSERT_EQ(expected.logprobs.size(), found.logprobs.size());
    for (size_t i = 0; i < expected.logprobs.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(expected.logprobs[i]),
                  std::bit_cast<uint32_t>(found.logprobs[i]));
    }
}

TEST(Plugins, OwnSchedulerPlacementAndReplicasChangeNoBit) {
    const client::Generation expected = generate({});
    expect_same(expected,
                generate({"--ffn-scheduler",
                          AFD_EXAMPLE_PLUGIN,
                          "--expert-placement",
                          AFD_EXAMPLE_PLUGIN,
                          "--replica-choice",
                          AFD_EXAMPLE_PLUGIN}));
}

TEST(Plugins, ATableFromAFileWithReplicasChangesNoBit) {
    const std::string path = make_directory() + "/placement.json";
    // Neighbours on one rank, every third expert on both.
    std::ofstream file(path);
    file << "{\"experts\": [";
    for (int expert = 0; expert < kExperts; ++expert) {
        file << (expert == 0 ? "" : ", ")
             << (expert % 3 == 0 ? "[0, 1]"
                 : expert < 4    ? "[1]"
                                 : "[0]");
    }
    file << "]}";
    file.close();
    expect_same(generate({}),
                generate({"--expert-placement", path, "--replica-choice", AFD_EXAMPLE_PLUGIN}));
}

TEST(Plugins, WhatCannotBeLoadedIsNamedAtTheStart) {
    const auto refusal = [](const std::vector<std::string>& flags) {
        Instance instance(flags);
        EXPECT_EQ(instance.wait_exit(), 2) << "the code of a wrong configuration";
        return instance.log();
    };
    const std::string absent = refusal({"--expert-placement", "/nowhere/table.json"});
    EXPECT_NE(absent.find("the file '/nowhere/table.json' cannot be read"), std::string::npos)
        << absent;
    const std::string path = make_directory() + "/short.json";
    std::ofstream(path) << R"({"experts": [[0]]})";
    const std::string too_short = refusal({"--expert-placement", path});
    EXPECT_NE(too_short.find("must be a list with the ranks of each of"), std::string::npos)
        << too_short;
    const std::string library = refusal({"--replica-choice", "/nowhere/lib.so"});
    EXPECT_NE(library.find("cannot load the plugin '/nowhere/lib.so'"), std::string::npos)
        << library;
}

}  // namespace
}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
//
// Goal: a user's own scheduler, placement and replica choice take part in a live instance and
// change no bit. Method: the example library of tests/schedule/plugin, and a table in a file with
// replicas. Oracle: the same request with the built-in ones, token ids and logprobs compared.
//
// And libraries that are of no use (tests/schedule/plugin/rogue_plugin.c): they are refused with a
// line that says why, at the start, by those who only look, and at a resize, where who serves goes
// on; or they are set right, and that is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using testing::HasSubstr;

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

struct Wrong {
    std::vector<std::string> flags;
    std::string text;
};

std::vector<Wrong> wrong_configurations() {
    const std::string directory = make_directory();
    const std::string text_file = directory + "/text.so";
    std::ofstream(text_file) << "no library\n";
    const std::string mistyped = directory + "/mistyped.json";
    std::ofstream(mistyped) << R"({"expert": []})";
    return {
        {{"--ffn-workers", "20"}, "ffn_workers = 20: must be at most 16"},
        {{"--expert-placement", directory + "/missing.json"}, "missing.json' cannot be read"},
        {{"--expert-placement", mistyped}, "must be a JSON object with \"experts\""},
        {{"--ffn-scheduler", directory + "/nothere.so"}, "nothere.so': "},
        {{"--ffn-scheduler", text_file}, "cannot load the plugin '" + text_file + "'"},
        {{"--ffn-scheduler", AFD_HALF_PLUGIN}, "has no scheduler_destroy, scheduler_decide, which"},
        {{"--replica-choice", AFD_HALF_PLUGIN}, "has no choose_replica, which replica_choice"},
        {{"--expert-placement", AFD_MOODY_PLUGIN, "--ffn-workers", "3"},
         "the plugin '" AFD_MOODY_PLUGIN "' crashed (signal 11)"},
        {{"--expert-placement", AFD_MOODY_PLUGIN, "--ffn-workers", "4"},
         "the plugin '" AFD_MOODY_PLUGIN "' did not answer in 5 s"},
    };
}

// Goal: who only asks whether afdd would start hears what afdd would say, and afdd says it once and
// not once for each attempt of each worker.
TEST(Plugins, WhatAfddRefusesIsRefusedByDoctorAndCheckConfigToo) {
    for (const Wrong& wrong : wrong_configurations()) {
        for (const std::string mode : {"--check-config", "--doctor", ""}) {
            std::vector<std::string> arguments = {
                program("afdd"), "--demo", "--instance", fresh_instance_name()};
            arguments.insert(arguments.end(), wrong.flags.begin(), wrong.flags.end());
            if (!mode.empty()) arguments.push_back(mode);
            const Outcome outcome = run_program(arguments, make_directory());
            EXPECT_EQ(outcome.exit_status, 2) << mode << "\n" << outcome.output;
            const size_t first = outcome.output.find(wrong.text);
            EXPECT_NE(first, std::string::npos) << mode << "\n" << outcome.output;
            EXPECT_EQ(outcome.output.find(wrong.text, first + 1), std::string::npos)
                << mode << "\n"
                << outcome.output;
        }
    }
}

// Goal: a library that crashes or is late at a resize costs the resize, and who is served does not
// notice. Oracle: the status says that the resize is on while the library sleeps, so afdd's loop
// does not wait for it; the reply of an undisturbed instance.
TEST(Plugins, ALibraryThatCrashesOrSleepsAtAResizeStopsNobody) {
    const client::Generation expected = generate({});
    std::vector<std::string> flags = kTwoAndTwo;
    flags.insert(flags.end(), {"--expert-placement", AFD_MOODY_PLUGIN});
    Instance instance(flags);
    instance.wait_ready();
    const std::vector<std::string> segments = instance.segments();
    const auto resize = [&](uint32_t num_attention_workers, uint32_t num_ffn_workers) {
        client::Resize asked;
        asked.set_attention_workers(num_attention_workers);
        asked.set_ffn_workers(num_ffn_workers);
        const auto resized = instance.connect().resize(asked, nullptr, kPatience);
        return resized.ok() ? std::string("it is done") : resized.error().message;
    };
    EXPECT_THAT(resize(2, 3), HasSubstr("the plugin '" AFD_MOODY_PLUGIN "' crashed (signal 11)"));
    auto sleeping = std::async(std::launch::async, resize, 2, 4);
    instance.wait_for("the resize is on",
                      [](const client::Status& status) { return !status.resize().empty(); });
    client::Generate request = long_request(40);
    request.set_return_logprobs(true);
    const auto generated = instance.connect().generate(request);
    ASSERT_TRUE(generated.ok()) << generated.error().message;
    expect_same(expected, generated.value());
    EXPECT_THAT(sleeping.get(),
                HasSubstr("the plugin '" AFD_MOODY_PLUGIN "' did not answer in 5 s"));
    EXPECT_EQ(instance.segments(), segments) << "nothing has changed";
    EXPECT_EQ(resize(1, 2), "it is done") << "a later one is possible";
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a scheduler that is set right is not taken for one that works. Method: one that decides
// nothing as long as less than four descriptors are ready. Oracle: the reply has the bits of the
// built-in scheduler's; status, metrics and log tell of it.
TEST(Plugins, ASchedulerThatIsOverruledIsReported) {
    client::Generate request = long_request(2);
    std::vector<std::string> flags = kTwoAndTwo;
    flags.insert(flags.end(), {"--ffn-scheduler", AFD_ROGUE_PLUGIN});
    Instance instance(flags);
    instance.wait_ready();
    const auto generated = instance.connect().generate(request);
    ASSERT_TRUE(generated.ok()) << generated.error().message;
    Instance other(kTwoAndTwo);
    other.wait_ready();
    EXPECT_EQ(generated.value().token_ids, other.connect().generate(request).value().token_ids);
    EXPECT_EQ(other.status().ffn_policy(), "gather");
    EXPECT_EQ(other.status().ffn_scheduler(), "");
    EXPECT_EQ(other.status().expert_placement(), "round_robin");

    const client::Status status = instance.status();
    EXPECT_EQ(status.ffn_policy(), "library");
    EXPECT_EQ(status.ffn_scheduler(), "rogue");
    for (const client::Worker& worker : status.workers()) {
        if (worker.role() != "ffn") continue;
        EXPECT_GT(worker.num_overruled(), 0U) << worker.index();
    }
    EXPECT_THAT(instance.afdctl({"status"}).output,
                HasSubstr("passes    library 'rogue': 0 bad choices, "));
    EXPECT_THAT(instance.afdctl({"metrics"}).output, HasSubstr("afd_scheduler_overruled_total{"));
    EXPECT_THAT(instance.log(), HasSubstr("the scheduler 'rogue' (" AFD_ROGUE_PLUGIN "): "));
    EXPECT_THAT(instance.log(), HasSubstr("it was overruled because"));
    EXPECT_EQ(instance.stop(), 0);
    EXPECT_EQ(other.stop(), 0);
}

// Oracle: the names in /dev/shm.
TEST(Plugins, TheStatusHasTheNamesThatAWatcherNeeds) {
    Instance instance(kTwoAndTwo);
    instance.wait_ready();
    const std::string prefix = instance.status().segment_prefix() + "-";
    for (const std::string& name : instance.segments()) {
        EXPECT_EQ("/" + name.substr(0, prefix.size() - 1), prefix);
    }
    const Outcome status = instance.afdctl({"--json", "status"});
    EXPECT_EQ(nlohmann::json::parse(status.output)["segment_prefix"].get<std::string>() + "-",
              prefix);
    EXPECT_EQ(instance.stop(), 0);
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

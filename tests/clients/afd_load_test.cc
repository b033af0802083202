// SPDX-License-Identifier: Apache-2.0
//
// The real afd-load against the mock: table, files, messages and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"
#include "tests/clients/scripted_server.h"
#include "tests/temporary_directory.h"

namespace afd::client {
namespace {

using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::ProgramOptions;
using afd::test::ProgramResult;
using afd::test::run_program;
using afd::test::steady_answer;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class AfdLoad : public ::testing::Test {
  protected:
    void SetUp() override { directory_.write("prompts.txt", "one\ntwo\n"); }

    // Runs afd-load with prompts and an output directory of the test's own, which `arguments` may
    // not repeat.
    ProgramResult load(const MockAfdd& server,
                       const std::vector<std::string>& arguments,
                       ProgramOptions options = {}) {
        std::vector<std::string> all = {AFD_LOAD,
                                        "--socket",
                                        server.socket_path(),
                                        "--prompts",
                                        directory_.path("prompts.txt"),
                                        "--out",
                                        out_dir()};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return run_program(all, options);
    }

    std::string out_dir() const { return directory_.path("out"); }

    std::string read(const std::string& file) const {
        std::ostringstream text;
        text << std::ifstream(out_dir() + "/" + file).rdbuf();
        return text.str();
    }

    const test::TemporaryDirectory directory_;
};

MockAnswer quick_answer(size_t, const Generate&) {
    return steady_answer(3, milliseconds(2), milliseconds(1));
}

TEST_F(AfdLoad, ATableThatCannotBeWrittenFails) {
    MockAfdd server(quick_answer);
    ProgramOptions options;
    options.out_file = "/dev/full";
    const ProgramResult result = load(server, {"--requests", "3"}, options);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("error: cannot write standard output: "));
    EXPECT_THAT(read("result.json"), HasSubstr("{"));
}

// As afdctl: the mock takes whole frames only.
TEST_F(AfdLoad, ClosedDescriptorsAreNotTakenForTheConnection) {
    MockAfdd server(quick_answer);
    ProgramOptions options;
    options.closed_descriptors = {0, 2};
    EXPECT_EQ(load(server, {"--requests", "3"}, options).exit_code, 0);
    std::filesystem::remove_all(out_dir());
    options.closed_descriptors = {1};
    const ProgramResult lost = load(server, {"--requests", "3"}, options);
    EXPECT_EQ(lost.exit_code, 1);
    EXPECT_THAT(lost.err, HasSubstr("error: cannot write standard output: "));
}

TEST_F(AfdLoad, PrintsARowForEachLevelAndWritesItsReport) {
    MockAfdd server(quick_answer);
    const ProgramResult result = load(server,
                                      {"--concurrency",
                                       "1,2",
                                       "--rate",
                                       "100",
                                       "--requests",
                                       "10",
                                       "--warmup",
                                       "3",
                                       "--seed",
                                       "8",
                                       "--max-tokens",
                                       "3:5"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("\nc=1          10     10      0"));
    EXPECT_THAT(result.out, HasSubstr("\nc=2          10     10      0"));
    EXPECT_THAT(result.out, HasSubstr("\nr=100        10     10      0"));
    EXPECT_THAT(result.out, HasSubstr("wrote " + out_dir() + "/result.json and requests.csv"));
    EXPECT_THAT(result.out, Not(HasSubstr("\033")));
    EXPECT_THAT(result.out, Not(HasSubstr("prefix cache")));
    EXPECT_EQ(server.generates().size(), 33u);

    const nlohmann::json report = nlohmann::json::parse(read("result.json"));
    EXPECT_EQ(report["schema"], "afd-load/1");
    EXPECT_EQ(report["config"]["seed"], 8);
    EXPECT_EQ(report["config"]["num_prompts"], 2);
    EXPECT_EQ(report["server"]["instance"], "default");
    EXPECT_GT(report["machine"]["num_cores"], 0);
    ASSERT_EQ(report["levels"].size(), 3u);
    const nlohmann::json& level = report["levels"][0];
    EXPECT_EQ(level["mode"], "closed");
    EXPECT_EQ(level["broken"], "");
    EXPECT_EQ(level["num_ok"], 10);
    EXPECT_EQ(level["num_output_tokens"], 30);
    EXPECT_EQ(level["ttft_us"]["count"], 10);
    // Not the least: what comes while the program has no core is stamped with the end of its wait.
    EXPECT_GE(level["ttft_us"]["p50"], 2000);
    EXPECT_LE(level["ttft_us"]["p50"], level["ttft_us"]["p99"]);
    EXPECT_EQ(level["itl_us"]["count"], 20);
    uint64_t num_in_buckets = 0;
    for (const auto& bucket : level["itl_us"]["histogram"]) {
        num_in_buckets += bucket[1].get<uint64_t>();
    }
    EXPECT_EQ(num_in_buckets, 20u);
    EXPECT_EQ(report["levels"][2]["mode"], "open");
    EXPECT_EQ(report["levels"][2]["client"]["lag_us"]["count"], 10);

    const std::string csv = read("requests.csv");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 31);
    EXPECT_THAT(csv, HasSubstr("\nr=100,9,"));
}

// Goal: the report tells what was not computed. Method: the second level's prompts are known.
TEST_F(AfdLoad, TellsWhatCameFromThePrefixCache) {
    MockAfdd server([](size_t index, const Generate& request) {
        MockAnswer answer = quick_answer(index, request);
        answer.num_cached_tokens = index < 5 ? 0 : 2;
        return answer;
    });
    const ProgramResult result =
        load(server, {"--concurrency", "1,4", "--requests", "5", "--warmup", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(
        result.out,
        HasSubstr("\n67 % of the prompt tokens of c=4 came from the server's prefix cache"));
    const nlohmann::json report = nlohmann::json::parse(read("result.json"));
    EXPECT_EQ(report["levels"][0]["num_cached_tokens"], 0);
    EXPECT_EQ(report["levels"][1]["num_cached_tokens"], 10);
    EXPECT_EQ(report["levels"][1]["num_prompt_tokens"], 15);
    const std::string csv = read("requests.csv");
    EXPECT_THAT(csv, HasSubstr(",num_prompt_tokens,num_cached_tokens,outcome,"));
    EXPECT_THAT(csv, HasSubstr(",3,0,ok,"));
    EXPECT_THAT(csv, HasSubstr(",3,2,ok,"));
}

TEST_F(AfdLoad, JsonGoesToStandardOutputAndIsTheReport) {
    MockAfdd server(quick_answer);
    const ProgramResult result = load(server, {"--concurrency", "1", "--requests", "2", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out), nlohmann::json::parse(read("result.json")));
    EXPECT_THAT(result.err, HasSubstr("wrote "));
}

TEST_F(AfdLoad, FailedRequestsDecideTheExitCode) {
    const auto plan = [](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        if (index == 1) answer.end = MockAnswer::End::kError;
        return answer;
    };
    const std::vector<std::string> arguments = {
        "--concurrency", "1", "--requests", "4", "--warmup", "0"};
    {
        MockAfdd server(plan);
        const ProgramResult result = load(server, arguments);
        EXPECT_EQ(result.exit_code, 1) << result.err;
        EXPECT_THAT(result.out, HasSubstr("c=1           4      3      1"));
        EXPECT_THAT(result.out, HasSubstr("failed 1: resource exhausted, as in: the mock is full"));
        EXPECT_THAT(read("requests.csv"),
                    HasSubstr("failed,4,\"resource exhausted\",\"the mock is full\""));
    }
    std::filesystem::remove_all(out_dir());
    MockAfdd server(plan);
    std::vector<std::string> tolerant = arguments;
    tolerant.insert(tolerant.end(), {"--max-failed", "0.25"});
    EXPECT_EQ(load(server, tolerant).exit_code, 0);
}

TEST_F(AfdLoad, WarmUpThatFailsMeasuresNothing) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer;
        answer.end = MockAnswer::End::kError;
        return answer;
    });
    const ProgramResult result = load(server, {"--warmup", "1"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("a warm-up request failed, so nothing was measured"));
    EXPECT_FALSE(std::filesystem::exists(out_dir()));
}

TEST_F(AfdLoad, ServerDyingMidRunKeepsTheReport) {
    MockAfdd server([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        if (index == 7) answer.end = MockAnswer::End::kDisconnect;
        return answer;
    });
    const ProgramResult result =
        load(server, {"--concurrency", "1,2", "--requests", "20", "--warmup", "2"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, HasSubstr("failed 1: unavailable, as in: connection to afdd"));
    EXPECT_THAT(result.out, HasSubstr("ended early at c=1: connection to afdd"));
    EXPECT_THAT(result.out, HasSubstr("; later levels were not run\n"));
    const nlohmann::json report = nlohmann::json::parse(read("result.json"));
    ASSERT_EQ(report["levels"].size(), 1u);
    EXPECT_EQ(report["levels"][0]["num_ok"], 5);
    EXPECT_THAT(report["levels"][0]["broken"].get<std::string>(), HasSubstr("connection to afdd"));
}

TEST_F(AfdLoad, InterruptWritesWhatItHas) {
    for (const int signal : {SIGINT, SIGTERM}) {
        std::filesystem::remove_all(out_dir());
        MockAfdd server([](size_t index, const Generate&) {
            MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
            if (index >= 6) answer.end = MockAnswer::End::kNothing;
            return answer;
        });
        // The second level hangs until the signal.
        ProgramOptions options;
        options.signal = signal;
        options.signal_when = [&] { return server.generates().size() == 8; };
        const ProgramResult result =
            load(server, {"--concurrency", "1,2,4", "--requests", "6", "--warmup", "0"}, options);
        EXPECT_EQ(result.exit_code, 130) << result.err;
        EXPECT_THAT(result.out, HasSubstr("wrote "));
        const nlohmann::json report = nlohmann::json::parse(read("result.json"), nullptr, false);
        ASSERT_FALSE(report.is_discarded()) << signal;
        ASSERT_EQ(report["levels"].size(), 2u);
        EXPECT_EQ(report["levels"][0]["num_ok"], 6);
        EXPECT_EQ(report["levels"][1]["interrupted"], true);
    }
}

TEST_F(AfdLoad, StoppedClientIsCalledSaturated) {
    // Stopped for 300 ms of 5 s, while 200 requests a second fall due: the lag says so.
    std::atomic<size_t> num_seen{0};
    MockAfdd server([&](size_t index, const Generate& request) {
        num_seen.fetch_add(1, std::memory_order_relaxed);
        return quick_answer(index, request);
    });
    ProgramOptions options;
    options.stop_when = [&] { return num_seen.load(std::memory_order_relaxed) >= 20; };
    options.stopped_for = milliseconds(300);
    const ProgramResult result =
        load(server, {"--rate", "200", "--requests", "1000", "--warmup", "0", "--strict"}, options);
    EXPECT_EQ(result.exit_code, 4) << result.out;
    EXPECT_THAT(result.out, HasSubstr("client SATURATED at r=200: it sent p99 "));
    const nlohmann::json report = nlohmann::json::parse(read("result.json"));
    const nlohmann::json& level = report["levels"][0];
    EXPECT_EQ(level["client"]["is_saturated"], true);
    EXPECT_GE(level["client"]["lag_us"]["max"], 200'000);
    EXPECT_GE(level["e2e_us"]["max"], level["client"]["lag_us"]["max"]);
}

TEST_F(AfdLoad, ProgressIsOneLineOfATerminalAndLeavesNothing) {
    MockAfdd server([](size_t, const Generate&) {
        return steady_answer(2, milliseconds(20), milliseconds(1));
    });
    ProgramOptions options;
    options.environment = {"TERM=xterm"};
    options.err_is_terminal = true;
    const ProgramResult result =
        load(server, {"--concurrency", "2", "--requests", "20", "--warmup", "1"}, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("\r\033[Kwarming up\r\033[K"));
    EXPECT_THAT(result.err, HasSubstr("\r\033[Kc=2  0."));
    EXPECT_TRUE(result.err.ends_with("\r\033[K")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 0);

    options.environment = {"TERM=dumb"};
    std::filesystem::remove_all(out_dir());
    EXPECT_EQ(load(server, {"--concurrency", "1", "--requests", "2"}, options).err, "");
}

TEST_F(AfdLoad, EarlierResultIsNotOverwritten) {
    MockAfdd server(quick_answer);
    const std::vector<std::string> arguments = {"--concurrency", "1", "--requests", "1"};
    EXPECT_EQ(load(server, arguments).exit_code, 0);
    const std::string before = read("result.json");
    const ProgramResult again = load(server, arguments);
    EXPECT_EQ(again.exit_code, 2);
    EXPECT_THAT(again.err, HasSubstr("exists; choose another directory with --out DIR"));
    EXPECT_EQ(read("result.json"), before);
}

// Goal: of two runs into one directory the second is refused before it measures, also while the
// first one is still measuring. Method: the first one waits for an answer that does not come, until
// the second has ended and it is interrupted. Oracle: what each says, and the one report.
TEST_F(AfdLoad, ADirectoryIsOfOneRunAtATime) {
    MockAfdd slow([&](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        if (index >= 2) answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    std::atomic<bool> first_is_over{false};
    std::atomic<bool> second_is_over{false};
    ProgramOptions options;
    options.signal_when = [&] { return second_is_over.load(std::memory_order_acquire); };
    ProgramResult first;
    std::thread other([&] {
        first = load(slow, {"--concurrency", "1", "--requests", "3", "--warmup", "1"}, options);
        first_is_over.store(true, std::memory_order_release);
    });
    while (slow.generates().size() < 3 && !first_is_over.load(std::memory_order_acquire)) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    MockAfdd server(quick_answer);
    const std::vector<std::string> arguments = {
        "--concurrency", "1", "--requests", "1", "--warmup", "0"};
    const ProgramResult second = load(server, arguments);
    second_is_over.store(true, std::memory_order_release);
    other.join();
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_THAT(second.err, HasSubstr("result.json.part' exists: another afd-load writes there"));
    EXPECT_TRUE(server.generates().empty());
    EXPECT_EQ(first.exit_code, 130) << first.err;
    EXPECT_EQ(nlohmann::json::parse(read("result.json"))["levels"][0]["num_ok"], 1);
    EXPECT_FALSE(std::filesystem::exists(out_dir() + "/result.json.part"));

    const ProgramResult third = load(server, arguments);
    EXPECT_EQ(third.exit_code, 2);
    EXPECT_THAT(third.err, HasSubstr("result.json' exists; choose another directory"));
    EXPECT_FALSE(std::filesystem::exists(out_dir() + "/result.json.part"));
}

TEST_F(AfdLoad, UnreachableExitsWithFiveAndSaysHowToStart) {
    directory_.make_socket_directory();
    ProgramOptions options;
    options.environment = {"XDG_RUNTIME_DIR=" + directory_.path()};
    const ProgramResult result =
        run_program({AFD_LOAD, "--prompts", directory_.path("prompts.txt")}, options);
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(result.err, HasSubstr("start it with: afdd"));
}

// Goal: a script tells a server that refuses from one that is not there. Oracle: 4xx or 5xx.
TEST_F(AfdLoad, AServerThatRefusesWasReached) {
    for (const auto& [status, exit_code] : {std::pair("401", 1),
                                            {"403", 1},
                                            {"404", 1},
                                            {"400", 1},
                                            {"422", 1},
                                            {"500", 5},
                                            {"503", 5}}) {
        const afd::test::ScriptedServer server([status = status](size_t) {
            return afd::test::ScriptedAnswer{std::string("HTTP/1.1 ") + status +
                                             " No\r\nContent-Length: 2\r\n\r\nno"};
        });
        const ProgramResult result =
            run_program({AFD_LOAD,
                         "--prompts",
                         directory_.path("prompts.txt"),
                         "--out",
                         out_dir(),
                         "--url",
                         "http://127.0.0.1:" + std::to_string(server.port())});
        EXPECT_EQ(result.exit_code, exit_code) << status << result.err;
        EXPECT_THAT(result.err, HasSubstr("/v1/models with " + std::string(status) + ": no"));
        EXPECT_FALSE(std::filesystem::exists(out_dir()));
    }
}

// Who names a server by its URL has not asked for the socket that the shell has set. Oracle: the
// error is that of the URL, at which nobody listens.
TEST_F(AfdLoad, AUrlCountsBeforeTheSocketOfTheEnvironment) {
    ProgramOptions options;
    options.environment = {"AFD_SOCKET=/nowhere/x.sock"};
    const std::vector<std::string> at_url = {AFD_LOAD, "--url", "http://127.0.0.1:1"};
    const ProgramResult result = run_program(at_url, options);
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1"));
    std::vector<std::string> both = at_url;
    both.insert(both.end(), {"--socket", "/nowhere/x.sock"});
    const ProgramResult two_ways = run_program(both, options);
    EXPECT_EQ(two_ways.exit_code, 2);
    EXPECT_THAT(two_ways.err, HasSubstr("--url and --socket name two ways; give one"));
    std::vector<std::string> instance = at_url;
    instance.insert(instance.end(), {"--instance", "b"});
    const ProgramResult other_two = run_program(instance, options);
    EXPECT_EQ(other_two.exit_code, 2);
    EXPECT_THAT(other_two.err, HasSubstr("--url and --instance name two ways; give one"));
}

// Goal: who gives a key without a URL hears that it goes nowhere. Method: the flag in both its
// forms, and the variable, which a shell may have for other runs.
TEST_F(AfdLoad, AKeyIsForHttpOnly) {
    MockAfdd server(quick_answer);
    for (const std::vector<std::string>& key :
         {std::vector<std::string>{"--api-key", "secret"}, {"--api-key=secret"}}) {
        const ProgramResult refused = load(server, key);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_THAT(refused.err,
                    HasSubstr("--chat, --model and --api-key are for HTTP; give --url "
                              "http://HOST:PORT, too"));
    }
    EXPECT_TRUE(server.generates().empty());
    ProgramOptions options;
    options.environment = {"AFD_API_KEY=secret"};
    const ProgramResult run = load(server, {"--concurrency", "1", "--requests", "1"}, options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(AfdLoad, WrongUsageExitsWithTwo) {
    MockAfdd server(quick_answer);
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"--concurency", "1"}, "unknown option --concurency; did you mean --concurrency?"},
        {{"--concurrency", "0"}, "--concurrency"},
        {{"--rate", "-1"}, "--rate"},
        {{"--rate", "2,nan"}, "--rate: 'nan' must be a number from 0.001 to 1000000"},
        {{"--rate", "inf"}, "--rate: 'inf' must be a number"},
        {{"--max-failed", "nan"}, "--max-failed: 'nan' must be a number from 0 to 1"},
        {{"--temperature", "nan"}, "--temperature: 'nan' must be a number from 0 to 2"},
        {{"--concurrency", "0x10"}, "--concurrency: '0x10' must be a whole number from 1 to 65536"},
        {{"--duration", "25h"},
         "--duration '25h': must be a time from 1ms to 24h as 500ms, 5s, 2m or 1h"},
        {{"--duration", "5d"}, "--duration '5d': must be a time from 1ms to 24h"},
        {{"--duration", "5s", "--requests", "3"}, "exclude each other; give one"},
        {{"--rate", "1000000", "--duration", "24h"},
         "--rate 1e+06 for --duration 24h is 8.64e+10 requests: at most 100000000 are sent in a "
         "level"},
        {{"--rate", "2,0.1", "--duration", "9s"},
         "--rate 0.1 for --duration 9s is less than one request; give --requests or a longer time"},
        {{"--max-tokens", "8:4"}, "--max-tokens '8:4': must be a number of at least 1, or MIN:MAX"},
        {{"--seed", "-1"}, "--seed: '-1' must be a whole number from 0 to 18446744073709551615"},
        {{"--seed", "18446744073709551616"}, "--seed: '18446744073709551616' must be a whole"},
        {{"run"}, "unexpected argument 'run'"},
    };
    for (const auto& [arguments, message] : cases) {
        const ProgramResult result = load(server, arguments);
        EXPECT_EQ(result.exit_code, 2) << message << "\n" << result.err;
        EXPECT_THAT(result.err, HasSubstr(message));
    }
    const ProgramResult missing = run_program({AFD_LOAD, "--prompts", directory_.path("none.txt")});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_THAT(missing.err, HasSubstr("cannot read the prompts file"));
    EXPECT_TRUE(server.generates().empty());
}

TEST_F(AfdLoad, HelpHasExamplesAndExitCodes) {
    const ProgramResult result = run_program({AFD_LOAD, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("Examples:\n  afd-load "));
    EXPECT_THAT(result.out, HasSubstr("Exit codes: 0 ok, 1 requests failed"));
    EXPECT_THAT(result.out, HasSubstr("130 interrupted (Ctrl-C or SIGTERM; "));
}

}  // namespace
}  // namespace afd::client

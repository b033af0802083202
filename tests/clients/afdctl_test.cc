// SPDX-License-Identifier: Apache-2.0
//
// The real afdctl against the mock: its output, messages and exit codes are what scripts rely on.
// What it shows of an instance: afdctl_status_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/clients/afdctl_run.h"
#include "tests/clients/example_status.h"
#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"
#include "tests/temporary_directory.h"

namespace afd::client {
namespace {

using afd::testing::afdctl;
using afd::testing::example_status;
using afd::testing::MockAfdd;
using afd::testing::MockAnswer;
using afd::testing::ProgramOptions;
using afd::testing::ProgramResult;
using afd::testing::steady_answer;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MockAnswer story(const std::vector<std::string>& words) {
    MockAnswer answer;
    for (const std::string& word : words) answer.chunks.push_back({milliseconds(2), 1, word});
    return answer;
}

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Afdctl, GenerateStreamsTheTextToStandardOutput) {
    MockAfdd server([](size_t, const Generate&) { return story({"there ", "was ", "a fox"}); });
    const ProgramResult result = afdctl(server,
                                        {"generate",
                                         "Once upon a time",
                                         "--max-tokens",
                                         "9",
                                         "--temperature",
                                         "0.5",
                                         "--min-p",
                                         "0.125",
                                         "--top-k",
                                         "20",
                                         "--top-p",
                                         "0.25",
                                         "--seed",
                                         "77"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "there was a fox\n");
    EXPECT_THAT(result.err, HasSubstr("length: 3 prompt and 3 output tokens"));
    EXPECT_THAT(result.err, HasSubstr("seed 77"));

    const Generate sent = server.generates().at(0);
    EXPECT_EQ(sent.text(), "Once upon a time");
    EXPECT_EQ(sent.max_tokens(), 9u);
    EXPECT_EQ(sent.sampling().temperature(), 0.5F);
    EXPECT_EQ(sent.sampling().min_p(), 0.125F);
    EXPECT_EQ(sent.sampling().top_k(), 20u);
    EXPECT_EQ(sent.sampling().top_p(), 0.25F);
    EXPECT_EQ(sent.sampling().seed(), 77u);
}

TEST(Afdctl, GenerateStreamsBeforeTheEnd) {
    // The mock ends the request only after a Ctrl-C that the first words trigger, so the test ends
    // only if the text is written while the request runs.
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = story({"first ", "second"});
        answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    ProgramOptions options;
    options.interrupt_when = [](const std::string& out) { return out == "first second"; };
    const ProgramResult result = afdctl(server, {"generate", "hi"}, options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(result.out, "first second\n");
    EXPECT_THAT(result.err, HasSubstr("cancelled: "));
    EXPECT_EQ(server.num_cancels(), 1u);
}

TEST(Afdctl, GenerateTakesIdsAndPrintsIdsAndLogprobs) {
    MockAfdd server([](size_t, const Generate&) { return story({"a", "b"}); });
    const ProgramResult result =
        afdctl(server, {"generate", "--prompt-ids", "5,6,7", "--token-ids", "--logprobs"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "ab\nprompt_ids 1 2 3\ntoken_ids 100 101\nlogprobs -0.5 -0.5\n");
    const Generate sent = server.generates().at(0);
    ASSERT_EQ(sent.token_ids().ids_size(), 3);
    EXPECT_EQ(sent.token_ids().ids(2), 7u);
}

TEST(Afdctl, GenerateReadsStandardInput) {
    MockAfdd server([](size_t, const Generate&) { return story({"x"}); });
    ProgramOptions options;
    options.input = "a long\nprompt";
    EXPECT_EQ(afdctl(server, {"generate", "-"}, options).exit_code, 0);
    EXPECT_EQ(server.generates().at(0).text(), "a long\nprompt");
}

TEST(Afdctl, GenerateJsonIsOneObject) {
    MockAfdd server([](size_t, const Generate&) { return story({"\"quoted\" ", "\xc3\xa4"}); });
    const ProgramResult result =
        afdctl(server, {"--json", "generate", "hi", "--token-ids", "--logprobs"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const nlohmann::json object = nlohmann::json::parse(result.out);
    EXPECT_EQ(object["text"], "\"quoted\" \xc3\xa4");
    EXPECT_EQ(object["finish_reason"], "length");
    EXPECT_EQ(object["num_output_tokens"], 2);
    EXPECT_EQ(object["seed"], 4242);
    EXPECT_EQ(object["token_ids"], nlohmann::json({100, 101}));
    EXPECT_EQ(object["logprobs"], nlohmann::json({-0.5, -0.5}));
}

TEST(Afdctl, FailedRequestExitsWithOneAndKeepsTheText) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = story({"partial"});
        answer.end = MockAnswer::End::kError;
        return answer;
    });
    const ProgramResult result = afdctl(server, {"generate", "hi"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "partial\n");
    EXPECT_EQ(result.err, "error: the mock is full\n");

    const ProgramResult json = afdctl(server, {"generate", "hi", "--json"});
    EXPECT_EQ(json.exit_code, 1);
    const nlohmann::json object = nlohmann::json::parse(json.out);
    EXPECT_EQ(object["error"]["code"], "resource exhausted");
    EXPECT_EQ(object["error"]["message"], "the mock is full");
}

TEST(Afdctl, ServerDyingMidStreamIsAFailedRequest) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = story({"partial"});
        answer.end = MockAnswer::End::kDisconnect;
        return answer;
    });
    const ProgramResult result = afdctl(server, {"generate", "hi"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("closed by afdd before all answers came"));
}

TEST(Afdctl, GenerateTimeoutCancels) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer;
        answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    const ProgramResult result = afdctl(server, {"generate", "hi", "--timeout", "0.05"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("had not ended after 50 ms"));
}

TEST(Afdctl, DrainWaitsAndStopWaitsForTheExit) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    server.set_drain_time(milliseconds(60'000));
    const ProgramResult impatient = afdctl(server, {"drain", "--timeout", "0.05"});
    EXPECT_EQ(impatient.exit_code, 1);
    EXPECT_THAT(impatient.err,
                HasSubstr("error: 2 running and 3 queued requests are left after 50 ms; afdd goes "
                          "on draining (afdctl status) (--timeout)\n"));

    server.set_drain_time(milliseconds(100));
    const ProgramResult drained = afdctl(server, {"drain"});
    EXPECT_EQ(drained.exit_code, 0) << drained.err;
    EXPECT_EQ(drained.out, "drained\n");
    EXPECT_EQ(drained.err, "waiting for 2 running and 3 queued requests\n");

    const ProgramResult stopped = afdctl(server, {"stop", "--json"});
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_EQ(stopped.out, "{\"state\":\"stopped\"}\n");

    const ProgramResult gone = afdctl(server, {"status"});
    EXPECT_EQ(gone.exit_code, 5);
    EXPECT_THAT(gone.err, HasSubstr("nobody listens on this socket"));
}

// Goal: a stop that cost requests is no success. Oracle: what the mock says that it cut off.
TEST(Afdctl, StopSaysWhatWasCutOff) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    server.set_drain_time(milliseconds(60'000));
    server.cut_off_when_stopped("2 requests had not finished, and were cut off");
    const ProgramResult result = afdctl(server, {"stop"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(
        result.err,
        HasSubstr("error: afdd has stopped, but 2 requests had not finished, and were cut off\n"));
}

// Goal: what afdctl says of a resize. Oracle: the mock's script: 2 attention workers, and an FFN
// worker more than was asked for; none beyond 9.
TEST(Afdctl, ResizeShowsItsStepsAndEndsWithWhatServes) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult resized = afdctl(server, {"resize", "--attention", "2"});
    EXPECT_EQ(resized.exit_code, 0) << resized.err;
    EXPECT_EQ(resized.err, "starting\n");
    EXPECT_EQ(resized.out,
              "2 attention and 1 ffn workers serve now; 3 requests were moved, and stood still for "
              "43 ms\n");
    const ProgramResult as_json = afdctl(server, {"resize", "--ffn", "4", "--json"});
    EXPECT_EQ(as_json.exit_code, 0);
    EXPECT_EQ(as_json.err, "");
    EXPECT_EQ(as_json.out,
              "{\"state\":\"resized\",\"attention_workers\":0,\"ffn_workers\":5,\"stood_still_us\":"
              "42600,\"total_us\":900000,\"num_replays\":3}\n");
    const ProgramResult refused = afdctl(server, {"resize", "--ffn", "10"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("the mock has no room"));
}

// As above, of an upgrade.
TEST(Afdctl, UpgradeShowsItsStepsAndEndsWithWhoServes) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult upgraded = afdctl(server, {"upgrade"});
    EXPECT_EQ(upgraded.exit_code, 0) << upgraded.err;
    EXPECT_EQ(upgraded.err, "pid 12: workers start\n");
    EXPECT_EQ(upgraded.out, "pid 12 serves now, version 9.8; 3 requests end with pid 11\n");
    const ProgramResult as_json = afdctl(server, {"upgrade", "--json"});
    EXPECT_EQ(as_json.err, "");
    EXPECT_EQ(as_json.out,
              "{\"state\":\"upgraded\",\"pid\":12,\"version\":\"9.8\",\"old_pid\":11,"
              "\"num_requests\":3,\"total_us\":70000}\n");
}

// Goal: a trace that does not come costs nobody an older one. Oracle: the files, before and after.
TEST(Afdctl, ARefusedTraceLeavesTheFileAsItWas) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.refuse_traces();
    const test::TemporaryDirectory directory;
    const std::string earlier = directory.write("earlier.json", "what was traced before");
    const std::string other = directory.path("other.json");
    for (const std::string& file : {earlier, other}) {
        const ProgramResult refused = afdctl(server, {"trace", "--seconds", "0.1", "-o", file});
        EXPECT_EQ(refused.exit_code, 1);
        EXPECT_EQ(refused.err, "error: another client is tracing\n");
    }
    EXPECT_EQ(content_of(earlier), "what was traced before");
    EXPECT_FALSE(std::filesystem::exists(other));

    const ProgramResult nowhere = afdctl(server, {"trace", "-o", directory.path("no/x.json")});
    EXPECT_NE(nowhere.exit_code, 0);
    EXPECT_THAT(nowhere.err, HasSubstr("no/x.json: cannot be written: No such file"));
}

TEST(Afdctl, ATraceTakesThePlaceOfTheEarlierOne) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const test::TemporaryDirectory directory;
    const std::string earlier = directory.write("trace.json", std::string(10'000, 'x'));
    for (const std::string& file : {earlier, directory.path("other.json")}) {
        const ProgramResult traced = afdctl(server, {"trace", "--seconds", "0.1", "-o", file});
        EXPECT_EQ(traced.exit_code, 0) << traced.err;
        EXPECT_THAT(traced.out, HasSubstr(file + ": 1 events of 1 workers, 0 lost"));
        const nlohmann::json trace = nlohmann::json::parse(content_of(file), nullptr, false);
        ASSERT_TRUE(trace.is_object()) << content_of(file);
        EXPECT_EQ(trace["traceEvents"].back()["name"], "step");
    }
}

// Goal: a trace of an idle instance does not look like one that found no workers. Oracle: those of
// the status.
TEST(Afdctl, ATraceOfIdleWorkersSaysThatNothingRan) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    server.be_idle();
    const test::TemporaryDirectory directory;
    const std::string file = directory.path("idle.json");
    const ProgramResult traced = afdctl(server, {"trace", "--seconds", "0.1", "-o", file});
    EXPECT_EQ(traced.exit_code, 0) << traced.err;
    EXPECT_EQ(traced.out, file + ": 0 events of 2 workers, 0 lost; nothing ran meanwhile\n");
    EXPECT_TRUE(nlohmann::json::parse(content_of(file), nullptr, false).is_object());
}

// Goal: output that is lost is no success. Method: a standard output that is always full. Oracle:
// the exit code; that a generation nobody can read is cancelled, and a watch ends by itself.
TEST(Afdctl, OutputThatCannotBeWrittenFails) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = story({"a ", "b"});
        answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    server.set_status(example_status());
    ProgramOptions options;
    options.out_file = "/dev/full";
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"status"},
                                                      {"status", "--watch"},
                                                      {"--help"},
                                                      {"generate", "hi"},
                                                      {"metrics", "--json"}}) {
        const ProgramResult result = afdctl(server, arguments, options);
        EXPECT_EQ(result.exit_code, 1) << arguments.front();
        EXPECT_THAT(result.err, HasSubstr("error: cannot write standard output: "));
    }
    EXPECT_EQ(server.num_cancels(), 1u);
    EXPECT_EQ(afdctl(server, {"frobnicate"}, options).exit_code, 2);
}

class RestartWorker : public ::testing::Test {
  protected:
    RestartWorker() { server_.set_status(example_status()); }

    ProgramResult restart(std::vector<std::string> arguments, ProgramOptions options = {}) {
        arguments.insert(arguments.begin(), {"restart-worker", "--worker"});
        return afdctl(server_, arguments, options);
    }

    MockAfdd server_{[](size_t, const Generate&) { return MockAnswer(); }};
};

TEST_F(RestartWorker, EndsItAndLetsAnotherTakeItsPlace) {
    const ProgramResult result = restart({"attention0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "attention0 restarted\n");
    EXPECT_THAT(server_.run_flags(), ElementsAre(false, true));
}

// Goal: a restart that is given up leaves no worker away. Method: the worker does not end, and the
// time is over, or a signal comes. Oracle: the run_flags that the mock was given.
TEST_F(RestartWorker, ThatIsGivenUpSetsTheFlagAgainAndSaysSo) {
    server_.keep_worker_states();
    const std::string says_so = "the run_flag of attention0 is 1 again, so another takes its place";
    const ProgramResult late = restart({"attention0", "--timeout", "0.05"});
    EXPECT_EQ(late.exit_code, 1);
    EXPECT_THAT(late.err, HasSubstr("attention0 is ready and not yet halted (--timeout); "));
    EXPECT_THAT(late.err, HasSubstr(says_so));
    EXPECT_THAT(server_.run_flags(), ElementsAre(false, true));
    size_t num_flags = 2;
    for (const int signal : {SIGINT, SIGTERM}) {
        ProgramOptions options;
        options.signal = signal;
        options.signal_when = [&] { return server_.run_flags().size() > num_flags; };
        const ProgramResult result = restart({"attention0"}, options);
        EXPECT_EQ(result.exit_code, 130) << "signal " << signal;
        EXPECT_THAT(result.err, HasSubstr(says_so));
        num_flags += 2;
        ASSERT_EQ(server_.run_flags().size(), num_flags);
        EXPECT_TRUE(server_.run_flags().back());
    }
    // Time that is over before the first look.
    const ProgramResult at_once = restart({"attention0", "--timeout", "0.001"});
    EXPECT_EQ(at_once.exit_code, 1);
    EXPECT_THAT(at_once.err, HasSubstr("attention0 is ready and not yet halted (--timeout); "));
    // Who drains one wants it away, late or not.
    const ProgramResult drain =
        afdctl(server_, {"drain-worker", "--worker", "attention0", "--timeout", "0.05"});
    EXPECT_EQ(drain.exit_code, 1);
    EXPECT_EQ(drain.err, "error: attention0 is ready and not yet halted (--timeout)\n");
    EXPECT_FALSE(server_.run_flags().back());
}

TEST_F(RestartWorker, ThatCannotSetTheFlagAgainSaysHowToGoOn) {
    server_.close_after_contexts(1);
    const ProgramResult result = restart({"attention0"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("the run_flag of attention0 could not be set to 1 again"));
    EXPECT_THAT(result.err, HasSubstr("go on with afdctl restart-worker --worker attention0\n"));
    EXPECT_THAT(server_.run_flags(), ElementsAre(false));
}

TEST_F(RestartWorker, OfAWorkerThatThereIsNotSetsNothing) {
    const ProgramResult result = restart({"ffn7"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err, "error: the mock has no such worker\n");
    EXPECT_TRUE(server_.run_flags().empty());
}

TEST(Afdctl, UnreachableExitsWithFive) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); }, "demo");
    const ProgramResult other = afdctl(server, {"status"});
    EXPECT_EQ(other.exit_code, 5);
    EXPECT_THAT(other.err, HasSubstr("start it with: afdd --model"));
    EXPECT_THAT(other.err, HasSubstr("other instances here (--instance): demo"));
    EXPECT_EQ(afdctl(server, {"status", "--instance", "demo"}).exit_code, 0);
    EXPECT_EQ(afdctl(server, {"status", "--socket", server.socket_path()}).exit_code, 0);

    const ProgramResult json = afdctl(server, {"generate", "hi", "--json"});
    EXPECT_EQ(json.exit_code, 5);
    EXPECT_EQ(nlohmann::json::parse(json.out)["error"]["code"], "not found");
}

// Goal: what is typed counts before what a shell has set long ago, and a wrong path is not blamed
// on a flag that nobody gave. Oracle: AFD_SOCKET leads nowhere, so that only who does not follow it
// reaches the mock.
TEST(Afdctl, FlagsCountBeforeTheEnvironment) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); }, "demo");
    ProgramOptions options;
    options.environment = {"AFD_SOCKET=/nowhere/x.sock", "AFD_INSTANCE=other"};
    EXPECT_EQ(afdctl(server, {"status", "--instance", "demo"}, options).exit_code, 0);
    EXPECT_EQ(afdctl(server, {"status", "--socket", server.socket_path()}, options).exit_code, 0);

    const ProgramResult variable = afdctl(server, {"status"}, options);
    EXPECT_EQ(variable.exit_code, 5);
    EXPECT_THAT(variable.err, HasSubstr("at /nowhere/x.sock (from AFD_SOCKET): there is no such"));
    const ProgramResult flag = afdctl(server, {"status", "--socket", "/nowhere/y.sock"}, options);
    EXPECT_EQ(flag.exit_code, 5);
    EXPECT_THAT(flag.err, HasSubstr("at /nowhere/y.sock (from --socket): there is no such socket"));
    options.environment = {"AFD_SOCKET=/" + std::string(200, 'x')};
    const ProgramResult too_long = afdctl(server, {"status"}, options);
    EXPECT_EQ(too_long.exit_code, 2);
    EXPECT_THAT(too_long.err, HasSubstr("or instance name (from AFD_SOCKET)"));

    options.environment = {"AFD_INSTANCE=demo"};
    EXPECT_EQ(afdctl(server, {"status"}, options).exit_code, 0);
    EXPECT_THAT(afdctl(server, {"status", "--instance", "other"}, options).err,
                HasSubstr("(instance 'other')"));
}

TEST(Afdctl, WrongUsageExitsWithTwoAndNamesTheNearestWord) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{},
         "which command? generate, status, top, metrics, context, trace, doctor, restart-worker, "
         "drain-worker, resize, upgrade, drain or stop"},
        {{"restart-worker"}, "which worker? give --worker ffn0, or --all"},
        {{"drain-worker", "--all", "--worker", "ffn0"}, "--all"},
        {{"resize"}, "how many workers? give --attention N, --ffn N or both"},
        {{"resize", "--ffn", "0"}, "--ffn"},
        {{"resize", "--attention", "1025"}, "--attention"},
        {{"stauts"}, "unknown command 'stauts'; did you mean status?"},
        {{"frobnicate"}, "unknown command 'frobnicate' (see afdctl --help)"},
        {{"generate", "hi", "--max-token", "3"}, "did you mean --max-tokens?"},
        {{"generate"}, "give a prompt"},
        {{"generate", "two", "words"}, "unexpected argument 'words'; quote a text"},
        {{"generate", "hi", "--temperature", "3"}, "--temperature"},
        {{"generate", "hi", "--min-p", "1.5"}, "--min-p"},
        {{"generate", "hi", "--max-tokens", "many"}, "--max-tokens = many"},
        {{"generate", "hi", "--prompt-ids", "1"}, "a prompt or --prompt-ids, not both"},
        {{"generate", "hi", "--resume", "abc"}, "--resume goes on with a request that has its"},
        {{"generate", "--resume", "abc", "--resumable"}, "is resumable already"},
        {{"generate", "hi", "--received", "3"}, "--received is for --resume"},
        {{"generate", "hi", "--logit-bias", "3"}, "3 is not ID:BIAS"},
        {{"generate", "hi", "--seed", "-1"}, "--seed: '-1' must be a whole number from 0 to "},
        {{"generate", "hi", "--seed", "18446744073709551616"}, "from 0 to 18446744073709551615"},
        {{"generate", "hi", "--seed", "0x10"}, "'0x10' must be a whole number"},
        {{"generate", "--resume", "abc", "--received", "-1"}, "--received: '-1' must be a whole"},
        {{"generate", "hi", "--json-schema", "/nowhere/x"},
         "'/nowhere/x' cannot be read: No such file"},
        {{"generate", "hi", "--json-schema", "/"}, "'/' cannot be read: "},
        {{"generate", "--stop-token-ids"}, "--stop-token-ids: 1 required ID,... missing"},
        {{"generate", "--prompt-ids", "1,2", "3"}, "a prompt or --prompt-ids, not both"},
        {{"generate", "hi", "--presence-penalty", "3"}, "--presence-penalty"},
        {{"trace", "--seconds", "1"}, "--output"},
        {{"trace", "-o", "x", "--seconds", "0"}, "--seconds"},
        {{"status", "--instance", "a/b"}, "instance name 'a/b'"},
    };
    for (const auto& [arguments, message] : cases) {
        const ProgramResult result = afdctl(server, arguments);
        EXPECT_EQ(result.exit_code, 2) << message << "\n" << result.err;
        EXPECT_THAT(result.err, HasSubstr(message));
        EXPECT_EQ(result.out, "");

        std::vector<std::string> for_a_program = arguments;
        for_a_program.emplace_back("--json");
        const ProgramResult json = afdctl(server, for_a_program);
        EXPECT_EQ(json.exit_code, 2) << message << "\n" << json.err;
        const nlohmann::json error = nlohmann::json::parse(json.out, nullptr, false);
        ASSERT_TRUE(error.is_object()) << message << ": " << json.out;
        EXPECT_EQ(error["error"]["code"], "invalid argument");
        EXPECT_EQ("error: " + error["error"]["message"].get<std::string>() + "\n", json.err);
    }
    EXPECT_TRUE(server.generates().empty());
}

TEST(Afdctl, GenerateFlagsReachTheirFields) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult result = afdctl(server,
                                        {"generate",
                                         "hi",
                                         "--repetition-penalty",
                                         "1.5",
                                         "--presence-penalty",
                                         "-0.5",
                                         "--frequency-penalty",
                                         "0.25",
                                         "--logit-bias",
                                         "17:-2.5,3:100",
                                         "--choice",
                                         "2",
                                         "--stop",
                                         "a b",
                                         "--stop",
                                         "c",
                                         "--include-stop",
                                         "--stop-token-ids",
                                         "5,6",
                                         "--min-tokens",
                                         "3",
                                         "--top-logprobs",
                                         "4",
                                         "--special-tokens"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Generate sent = server.generates().front();
    EXPECT_EQ(sent.sampling().repetition_penalty(), 1.5F);
    EXPECT_EQ(sent.sampling().presence_penalty(), -0.5F);
    EXPECT_EQ(sent.sampling().frequency_penalty(), 0.25F);
    ASSERT_EQ(sent.sampling().logit_bias_size(), 2);
    EXPECT_EQ(sent.sampling().logit_bias(0).token_id(), 17U);
    EXPECT_EQ(sent.sampling().logit_bias(0).bias(), -2.5F);
    EXPECT_EQ(sent.sampling().logit_bias(1).bias(), 100.0F);
    EXPECT_EQ(sent.sampling().choice(), 2U);
    EXPECT_THAT(sent.stop(), ElementsAre("a b", "c"));
    EXPECT_TRUE(sent.include_stop_str_in_output());
    EXPECT_THAT(sent.stop_token_ids(), ElementsAre(5, 6));
    EXPECT_EQ(sent.min_tokens(), 3U);
    EXPECT_EQ(sent.top_logprobs(), 4U);
    EXPECT_TRUE(sent.keep_special_tokens());
}

// Goal: a number reaches its field as it was written, or is refused. Oracle: the largest seed, and
// digits that another base would read differently.
TEST(Afdctl, SeedsAreDecimalAndOf64Bits) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    EXPECT_EQ(afdctl(server, {"generate", "hi", "--seed", "18446744073709551615"}).exit_code, 0);
    EXPECT_EQ(afdctl(server, {"generate", "hi", "--seed", "010"}).exit_code, 0);
    ASSERT_EQ(server.generates().size(), 2u);
    EXPECT_EQ(server.generates().at(0).sampling().seed(), UINT64_MAX);
    EXPECT_EQ(server.generates().at(1).sampling().seed(), 10u);
}

// Goal: a list of ids ends where its word ends. Oracle: the prompt behind it.
TEST(Afdctl, AListOfIdsLeavesThePromptAlone) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult result =
        afdctl(server, {"generate", "--stop-token-ids", "5,6", "--stop-token-ids", "7", "42"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Generate sent = server.generates().at(0);
    EXPECT_THAT(sent.stop_token_ids(), ElementsAre(5, 6, 7));
    EXPECT_EQ(sent.text(), "42");
}

TEST(Afdctl, ResumableSaysItsIdOnStandardError) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult result = afdctl(server, {"generate", "hi", "--resumable", "--keep", "1.5"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(server.generates().front().resumable_ms(), 1500U);
    EXPECT_THAT(result.err,
                ::testing::StartsWith("resume with: afdctl generate --resume mock_id\n"));
    const ProgramResult json = afdctl(server, {"--json", "generate", "hi", "--resumable"});
    EXPECT_EQ(nlohmann::json::parse(json.out)["resume_id"], "mock_id");
    EXPECT_EQ(server.generates().back().resumable_ms(), 60'000U);
    EXPECT_EQ(afdctl(server, {"generate", "hi"}).err.find("resume with"), std::string::npos);
}

// Goal: whoever broke off can go on exactly where he is. Method: a stream that breaks behind three
// chunks. Oracle: their number.
TEST(Afdctl, ResumableThatBreaksSaysHowManyChunksItHas) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = steady_answer(3, milliseconds(0), milliseconds(0));
        answer.end = MockAnswer::End::kError;
        return answer;
    });
    const ProgramResult broken = afdctl(server, {"generate", "hi", "--resumable"});
    EXPECT_NE(broken.exit_code, 0);
    EXPECT_THAT(broken.err, HasSubstr("3 chunks have come: resume with --received 3\n"));
    EXPECT_EQ(afdctl(server, {"generate", "hi"}).err.find("chunks have come"), std::string::npos);
}

// Goal: the command that is printed reaches the same afdd, also from a shell without this one's
// variables. Oracle: the way that led to the mock, by flag or by variable.
TEST(Afdctl, ResumableNamesTheAfddThatHasIt) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); }, "demo");
    const std::string command = "resume with: afdctl generate --resume mock_id";
    const std::vector<std::string> words = {"generate", "hi", "--resumable"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), words.begin(), words.end());
        return more;
    };
    EXPECT_THAT(afdctl(server, with({"--instance", "demo"})).err,
                ::testing::StartsWith(command + " --instance demo\n"));
    EXPECT_THAT(afdctl(server, with({"--socket", server.socket_path()})).err,
                ::testing::StartsWith(command + " --socket " + server.socket_path() + "\n"));
    ProgramOptions options;
    options.environment = {"AFD_INSTANCE=demo"};
    EXPECT_THAT(afdctl(server, words, options).err,
                ::testing::StartsWith(command + " --instance demo\n"));
    options.environment = {"AFD_SOCKET=" + server.socket_path()};
    EXPECT_THAT(afdctl(server, words, options).err,
                ::testing::StartsWith(command + " --socket " + server.socket_path() + "\n"));

    MockAfdd plain([](size_t, const Generate&) { return MockAnswer(); });
    options.environment = {"AFD_SOCKET=/nowhere/x.sock"};
    EXPECT_THAT(afdctl(plain, with({"--instance", "default"}), options).err,
                ::testing::StartsWith(command + " --instance default\n"));
}

TEST(Afdctl, HelpFitsAScreenAndHasExamplesAndExitCodes) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"--help"}, {"generate", "--help"}}) {
        const ProgramResult result = afdctl(server, arguments);
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_THAT(result.out, HasSubstr("Example"));
        EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 33) << result.out;
    }
    EXPECT_THAT(afdctl(server, {"--help"}).out, HasSubstr("Exit codes: 0 ok, 1 request failed"));
    const std::string doctor = afdctl(server, {"doctor", "--help"}).out;
    EXPECT_THAT(doctor,
                HasSubstr("Exit codes are those of an afdd that was started so: 0 it could"));
    EXPECT_THAT(doctor, HasSubstr("3 its model, 4 shared memory cannot be had"));
}

TEST(ExampleGenerate, StreamsFromARunningInstance) {
    MockAfdd server([](size_t, const Generate&) { return story({"a ", "b"}); }, "demo");
    ProgramOptions options;
    options.environment = {"XDG_RUNTIME_DIR=" + server.directory()};
    const ProgramResult result = run_program({EXAMPLE_GENERATE, "hi", "demo"}, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "a b\n2 tokens\n");
    EXPECT_EQ(run_program({EXAMPLE_GENERATE}, options).exit_code, 2);
}

}  // namespace
}  // namespace afd::client

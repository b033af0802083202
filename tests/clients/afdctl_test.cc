// SPDX-License-Identifier: Apache-2.0
//
// The real afdctl against the mock: its output, messages and exit codes are what scripts rely on.
// What it shows of an instance: afdctl_status_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/clients/afdctl_run.h"
#include "tests/clients/example_status.h"
#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"
#include "tests/temporary_directory.h"

namespace afd::client {
namespace {

using afd::test::afdctl;
using afd::test::example_status;
using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::ProgramOptions;
using afd::test::ProgramResult;
using afd::test::story;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
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

// Goal: what is printed goes nowhere else than where it should, however a shell starts the program.
// Method: the mock takes whole frames only, so that text in the protocol would end the connection.
TEST(Afdctl, ClosedDescriptorsAreNotTakenForTheConnection) {
    MockAfdd server([](size_t, const Generate&) { return story({"a ", "b"}); });
    server.set_status(example_status());
    ProgramOptions options;
    options.closed_descriptors = {0, 2};
    const ProgramResult answered = afdctl(server, {"generate", "hi"}, options);
    EXPECT_EQ(answered.exit_code, 0);
    EXPECT_EQ(answered.out, "a b\n");

    options.closed_descriptors = {1};
    const ProgramResult lost = afdctl(server, {"generate", "hi"}, options);
    EXPECT_EQ(lost.exit_code, 1);
    EXPECT_THAT(lost.err, HasSubstr("error: cannot write standard output: "));

    options.closed_descriptors = {2};
    const ProgramResult stopped = afdctl(server, {"stop"}, options);
    EXPECT_EQ(stopped.exit_code, 0);
    EXPECT_EQ(stopped.out, "stopped\n");
    EXPECT_EQ(afdctl(server, {"status"}).exit_code, 5);
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

// Who takes the last one away hears what that means, and is not refused.
TEST_F(RestartWorker, ADrainThatLeavesNobodyToServeSaysSo) {
    EXPECT_EQ(afdctl(server_, {"drain-worker", "--worker", "attention0"}).err, "");
    Status halted = example_status();
    halted.set_state("halted");
    halted.set_reason("attention worker 0 is halted");
    server_.set_status(halted);
    const ProgramResult result = afdctl(server_, {"drain-worker", "--worker", "attention0"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "attention0 drained\n");
    EXPECT_EQ(result.err,
              "warning: nobody is served now, and requests wait: attention worker 0 is halted\n");
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

TEST_F(RestartWorker, OfAMissingHostSaysThatItWaitsForIt) {
    server_.keep_worker_states();
    Status status = example_status();
    for (Worker& worker : *status.mutable_workers()) worker.set_state("no host");
    server_.set_status(status);
    const ProgramResult result =
        afdctl(server_, {"drain-worker", "--worker", "attention0", "--timeout", "0.05"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err,
              "error: attention0 waits for its host, which has not joined, and is not yet halted "
              "(--timeout)\n");
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

// Goal: an afdd that takes no clients is not said to be absent. Method: the lock file of an
// instance, which this test has open as that afdd would, and then has not.
TEST(Afdctl, NamesTheAfddThatHasNoSocket) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const std::string pid = std::to_string(::getpid());
    std::ofstream lock(server.directory() + "/afd/joined.lock");
    lock << pid << std::endl;
    const ProgramResult held = afdctl(server, {"status", "--instance", "joined"});
    EXPECT_EQ(held.exit_code, 5);
    EXPECT_THAT(held.err, HasSubstr("afdd (pid " + pid + ") holds the name 'joined' without such"));
    EXPECT_THAT(held.err, HasSubstr("it has joined a leader and takes no clients"));
    EXPECT_THAT(held.err, HasSubstr("kill -TERM " + pid + " ends it\n"));
    lock.close();
    const ProgramResult left = afdctl(server, {"status", "--instance", "joined"});
    EXPECT_EQ(left.exit_code, 5);
    EXPECT_THAT(left.err, HasSubstr("there is no such socket; start it with: afdd --instance"));
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

// Goal: who puts an option behind the sign that none follow is not told to mean what he wrote.
TEST(Afdctl, OptionsComeBeforeTheSignThatNoneFollow) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const std::pair<std::vector<std::string>, std::string> cases[] = {
        {{"generate", "--", "-5", "--max-tokens", "2"},
         "error: unexpected --max-tokens behind --; options come before --\n"},
        {{"generate", "--", "-5", "--max-tokens=2"},
         "error: unexpected --max-tokens=2 behind --; options come before --\n"},
        {{"generate", "--", "-5", "--max-token"},
         "error: unknown option --max-token; did you mean --max-tokens?\n"},
    };
    for (const auto& [arguments, message] : cases) {
        const ProgramResult result = afdctl(server, arguments);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_EQ(result.err, message);
    }
    EXPECT_TRUE(server.generates().empty());
    EXPECT_EQ(afdctl(server, {"generate", "--max-tokens", "2", "--", "-5"}).exit_code, 0);
    EXPECT_EQ(server.generates().at(0).text(), "-5");
}

TEST(Afdctl, WrongUsageExitsWithTwoAndNamesTheNearestWord) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{},
         "which command? generate, status, top, metrics, context, trace, doctor, restart-worker, "
         "drain-worker, resize, upgrade, drain or stop"},
        {{"restart-worker"}, "which worker? give --worker ffn0, or --all"},
        {{"drain-worker", "--all", "--worker", "ffn0"}, "exclude each other; give one"},
        {{"resize"}, "how many workers? give --attention N, --ffn N or both"},
        {{"resize", "--ffn", "0"}, "--ffn"},
        {{"resize", "--attention", "1025"}, "--attention"},
        {{"stauts"}, "unknown command 'stauts'; did you mean status?"},
        {{"frobnicate"}, "unknown command 'frobnicate' (see afdctl --help)"},
        {{"generate", "hi", "--max-token", "3"}, "did you mean --max-tokens?"},
        {{"generate"}, "give a prompt"},
        {{"generate", "two", "words"}, "unexpected argument 'words'; quote a text"},
        {{"generate", "hi", "--temperature", "3"},
         "--temperature: '3' must be a number from 0 to 2 (see afdctl --help)"},
        {{"generate", "hi", "--temperature", "nan"}, "--temperature: 'nan' must be a number"},
        {{"generate", "hi", "--logit-bias", "3:nan"}, "3:nan is not ID:BIAS"},
        {{"status", "--timeout", "nan"}, "--timeout: 'nan' must be a number from 0.001 to 1000000"},
        {{"status", "--timeout", "inf"}, "--timeout: 'inf' must be a number"},
        {{"generate", "hi", "--min-p", "1.5"}, "--min-p"},
        {{"generate", "hi", "--max-tokens", "many"},
         "--max-tokens: 'many' must be a whole number from 0 to 4294967295"},
        {{"generate", "hi", "--prompt-ids", "1"}, "a prompt or --prompt-ids, not both"},
        {{"generate", "hi", "--resume", "abc"}, "--resume goes on with a request that has its"},
        {{"generate", "--resume", "abc", "--resumable"}, "is resumable already"},
        {{"generate", "--resume", "abc", "--max-tokens", "128"},
         "--max-tokens was settled when the request began; leave it out with --resume"},
        {{"generate", "--temperature", "0.5", "--resume", "abc"}, "--temperature was settled when"},
        {{"generate", "--resume", "abc", "--seed", "1"}, "--seed was settled when"},
        {{"generate", "--resume", "abc", "--stop", "x"}, "--stop was settled when"},
        {{"generate", "--resume", "abc", "--ignore-eos"}, "--ignore-eos was settled when"},
        {{"generate", "--resume", "abc", "--top-logprobs", "2"}, "--top-logprobs was settled when"},
        {{"generate", "hi", "--received", "3"}, "--received is for --resume"},
        {{"generate", "hi", "--keep", "5"}, "--keep is for --resumable; give both"},
        {{"generate", "--resume", "abc", "--keep", "60"}, "--keep is for --resumable; give both"},
        {{"generate", "hi", "--logit-bias", "3"}, "3 is not ID:BIAS"},
        {{"generate", "hi", "--seed", "-1"}, "--seed: '-1' must be a whole number from 0 to "},
        {{"generate", "hi", "--seed", "18446744073709551616"}, "from 0 to 18446744073709551615"},
        {{"generate", "hi", "--seed", "0x10"}, "'0x10' must be a whole number"},
        {{"generate", "--resume", "abc", "--received", "-1"}, "--received: '-1' must be a whole"},
        {{"generate", "hi", "--json-schema", "/nowhere/x"},
         "'/nowhere/x' cannot be read: No such file"},
        {{"generate", "hi", "--json-schema", "/"}, "'/' cannot be read: "},
        {{"generate", "--stop-token-ids"}, "--stop-token-ids needs a value: ID,..."},
        {{"generate", "--prompt-ids", "1,2", "3"}, "a prompt or --prompt-ids, not both"},
        {{"generate", "hi", "--presence-penalty", "3"}, "--presence-penalty"},
        {{"trace", "--seconds", "1"}, "--output"},
        {{"trace", "-o", "x", "--seconds", "0"}, "--seconds"},
        {{"status", "--instance", "a/b"}, "instance name 'a/b'"},
        {{"doctor", "--instance", "b"},
         "doctor asks no afdd; give --instance behind --, as in: afdctl doctor -- --instance b"},
        {{"--socket", "/x", "doctor"}, "as in: afdctl doctor -- --socket /x"},
        {{"cluster", "init", "/nowhere/x", "--instance", "b"},
         "cluster asks no afdd; leave --instance out"},
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

TEST(Afdctl, HelpFitsAScreenAndHasExamplesAndExitCodes) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"--help"}, {"generate", "--help"}}) {
        const ProgramResult result = afdctl(server, arguments);
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_THAT(result.out, HasSubstr("Example"));
    }
    for (const std::string command : {"",
                                      "generate",
                                      "status",
                                      "top",
                                      "metrics",
                                      "context",
                                      "trace",
                                      "doctor",
                                      "cluster",
                                      "restart-worker",
                                      "drain-worker",
                                      "resize",
                                      "upgrade",
                                      "drain",
                                      "stop"}) {
        std::vector<std::string> arguments = {"--help"};
        if (!command.empty()) arguments.insert(arguments.begin(), command);
        std::istringstream help(afdctl(server, arguments).out);
        std::string line;
        int num_lines = 0;
        while (std::getline(help, line)) {
            EXPECT_LE(line.size(), 100u) << command << ": " << line;
            EXPECT_EQ(line.find("{false}"), std::string::npos) << command << ": " << line;
            ++num_lines;
        }
        EXPECT_GE(num_lines, 5) << command;
        EXPECT_LE(num_lines, 36) << command;
    }
    EXPECT_THAT(afdctl(server, {"--help"}).out, HasSubstr("Exit codes: 0 ok, 1 request failed"));
    const std::string doctor = afdctl(server, {"doctor", "--help"}).out;
    EXPECT_THAT(doctor,
                HasSubstr("Exit codes are those of an afdd that was started so: 0 it could"));
    EXPECT_THAT(doctor, HasSubstr("3 its model, 4 memory cannot be had"));
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

// SPDX-License-Identifier: Apache-2.0
//
// The real afdctl against the mock: its output, messages and exit codes are what scripts rely on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"

namespace afd::client {
namespace {

using afd::testing::MockAfdd;
using afd::testing::MockAnswer;
using afd::testing::MockChunk;
using afd::testing::ProgramOptions;
using afd::testing::ProgramResult;
using afd::testing::steady_answer;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

ProgramResult afdctl(const MockAfdd& server,
                     std::vector<std::string> arguments,
                     ProgramOptions options = {}) {
    options.environment.push_back("XDG_RUNTIME_DIR=" + server.directory());
    arguments.insert(arguments.begin(), AFDCTL);
    return run_program(arguments, options);
}

MockAnswer story(const std::vector<std::string>& words) {
    MockAnswer answer;
    for (const std::string& word : words) answer.chunks.push_back({milliseconds(2), 1, word});
    return answer;
}

Status example_status() {
    Status status;
    status.set_instance("default");
    status.set_model("/models/demo");
    status.set_topology("disaggregated");
    status.set_router("ffn");
    status.set_shared_experts("attention");
    status.set_dispatch_dtype("int8");
    status.set_state("ready");
    status.set_uptime_ms(192'000);
    status.set_pid(4100);
    status.set_num_queued(3);
    status.set_num_running(2);
    status.set_num_finished(120);
    status.set_num_failed(1);
    status.set_num_output_tokens(8123);
    status.set_output_tokens_per_s(412.04);
    status.set_version("0.1.0");
    status.set_context_length(512);
    status.set_numeric_class("avx2");
    status.add_waits("attention 0 (pid 4101) waits for ffn 0, micro-batch 1, layer 3");
    Worker& attention = *status.add_workers();
    attention.set_role("attention");
    attention.set_pid(4101);
    attention.set_state("ready");
    attention.set_num_sequences(2);
    attention.set_kv_tokens_used(128);
    attention.set_kv_tokens_total(8192);
    attention.set_num_tokens(8123);
    attention.set_num_rounds(33000);
    attention.set_num_two_phase_rounds(24);
    attention.set_num_two_phase_fallbacks(1);
    attention.set_heartbeat_age_ms(4);
    attention.set_uptime_ms(190'000);
    Worker& ffn = *status.add_workers();
    ffn.set_role("ffn");
    ffn.set_state("back-off");
    ffn.set_num_restarts(3);
    return status;
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

TEST(Afdctl, StatusIsATable) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out,
              "instance  default   ready   pid 4100   up 3m 12s   version 0.1.0\n"
              "model     /models/demo   disaggregated   router ffn   shared experts attention   "
              "rows int8   avx2   context 512\n"
              "requests  2 running   3 queued   120 finished   1 failed\n"
              "tokens    8123   412.0/s\n"
              "two-phase 24 rounds   1 batches failed and went by windows\n"
              "\n"
              "ROLE       INDEX   PID  STATE     SEQS      KV TOKENS  TOKENS  ROUNDS  RESTARTS  "
              "HEARTBEAT      UP\n"
              "attention      0  4101  ready        2  128/8192 (1%)    8123   33000         0  "
              "     4 ms  3m 10s\n"
              "ffn            0     -  back-off     -              -  0 rows       0         3  "
              "        -       -\n"
              "\n"
              "wait      attention 0 (pid 4101) waits for ffn 0, micro-batch 1, layer 3\n");
}

Status measured_status() {
    Status status;
    Worker& attention = *status.add_workers();
    attention.set_role("attention");
    attention.set_num_timeouts(2);
    Distribution& wait = *attention.add_distributions();
    wait.set_name("wait for ffn 0");
    wait.set_unit("us");
    wait.set_count(1200);
    wait.set_mean(48.2);
    wait.set_p50(43.3);
    wait.set_p99(1060);
    wait.set_max(2190);
    Worker& ffn = *status.add_workers();
    ffn.set_role("ffn");
    ffn.set_index(1);
    Distribution& rows = *ffn.add_distributions();
    rows.set_name("rows of a pass");
    rows.set_count(7);
    rows.set_p50(2.5);
    for (const uint32_t expert : {3, 5, 16}) {
        ExpertRows& of = *ffn.add_expert_rows();
        of.set_expert(expert);
        of.set_rows(expert * 10);
        of.set_is_shared(expert == 16);
    }
    return status;
}

TEST(Afdctl, StatusShowsWhatWasMeasured) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(measured_status());
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                HasSubstr("timeouts  2 micro-batches were given up waiting for a round\n"));
    EXPECT_THAT(result.out,
                HasSubstr("WORKER       WHAT                 COUNT  MEAN   P50   P99   MAX\n"
                          "attention 0  wait for ffn 0 (us)   1200    48    43  1060  2190\n"
                          "ffn 1        rows of a pass           7  0.00  2.50  0.00  0.00\n"
                          "\n"
                          "experts   ffn 1: 80 rows, 40 for each of 2 routed experts; most: "
                          "expert 5 with 50\n"));

    const ProgramResult as_json = afdctl(server, {"status", "--json"});
    const nlohmann::json workers = nlohmann::json::parse(as_json.out)["workers"];
    EXPECT_EQ(workers[0]["num_timeouts"], 2);
    EXPECT_EQ(workers[0]["distributions"][0]["name"], "wait for ffn 0");
    EXPECT_EQ(workers[0]["distributions"][0]["p99"], 1060.0);
    EXPECT_EQ(workers[1]["expert_rows"][2]["expert"], 16);
    EXPECT_EQ(workers[1]["expert_rows"][2]["is_shared"], true);
}

TEST(Afdctl, StatusSaysWhyNobodyIsServed) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    status.set_state("failed");
    status.set_reason("ffn worker 0 exited with status 1: tensor x is missing");
    server.set_status(status);
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("instance  default   failed   pid 4100"));
    EXPECT_THAT(result.out,
                HasSubstr("reason    ffn worker 0 exited with status 1: tensor x is missing\n"));
    const ProgramResult as_json = afdctl(server, {"status", "--json"});
    EXPECT_EQ(nlohmann::json::parse(as_json.out)["reason"], status.reason());
}

TEST(Afdctl, StatusJsonHasTheFieldsOfTheProtocol) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    const ProgramResult result = afdctl(server, {"status", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json object = nlohmann::json::parse(result.out);
    EXPECT_EQ(object["num_queued"], 3);
    EXPECT_EQ(object["workers"].size(), 2u);
    EXPECT_EQ(object["workers"][0]["kv_tokens_total"], 8192);
    EXPECT_EQ(object["workers"][0]["num_two_phase_rounds"], 24);
    EXPECT_EQ(object["workers"][0]["num_two_phase_fallbacks"], 1);
    EXPECT_EQ(object["workers"][1]["num_restarts"], 3);
    EXPECT_EQ(object["waits"].size(), 1u);
}

TEST(Afdctl, StatusWatchRepeatsUntilInterrupted) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    ProgramOptions options;
    options.interrupt_when = [](const std::string& out) {
        return std::count(out.begin(), out.end(), '{') == 6;  // Two objects with two workers each.
    };
    const ProgramResult result = afdctl(server, {"status", "--watch", "--json"}, options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);
    EXPECT_THAT(result.out, Not(HasSubstr("\033")));
}

TEST(Afdctl, DrainWaitsAndStopWaitsForTheExit) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    server.set_drain_time(milliseconds(400));
    const ProgramResult impatient = afdctl(server, {"drain", "--timeout", "0.05"});
    EXPECT_EQ(impatient.exit_code, 1);
    EXPECT_THAT(impatient.err, HasSubstr("no answer within 50 ms"));

    const ProgramResult drained = afdctl(server, {"drain"});
    EXPECT_EQ(drained.exit_code, 0) << drained.err;
    EXPECT_EQ(drained.out, "drained\n");
    EXPECT_EQ(drained.err, "waiting for 2 running and 3 queued requests\n");

    const ProgramResult stopped = afdctl(server, {"stop", "--json"});
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_EQ(stopped.out, "{\"state\":\"stopped\"}\n");

    const ProgramResult gone = afdctl(server, {"status"});
    EXPECT_EQ(gone.exit_code, 3);
    EXPECT_THAT(gone.err, HasSubstr("nobody listens on this socket"));
}

TEST(Afdctl, UnreachableExitsWithThree) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); }, "demo");
    const ProgramResult other = afdctl(server, {"status"});
    EXPECT_EQ(other.exit_code, 3);
    EXPECT_THAT(other.err, HasSubstr("start it with: afdd --model"));
    EXPECT_THAT(other.err, HasSubstr("other instances here (--instance): demo"));
    EXPECT_EQ(afdctl(server, {"status", "--instance", "demo"}).exit_code, 0);
    EXPECT_EQ(afdctl(server, {"status", "--socket", server.socket_path()}).exit_code, 0);

    const ProgramResult json = afdctl(server, {"generate", "hi", "--json"});
    EXPECT_EQ(json.exit_code, 3);
    EXPECT_EQ(nlohmann::json::parse(json.out)["error"]["code"], "not found");
}

TEST(Afdctl, WrongUsageExitsWithTwoAndNamesTheNearestWord) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{}, "which command? generate, status, context, trace, drain or stop"},
        {{"stauts"}, "unknown command 'stauts'; did you mean status?"},
        {{"frobnicate"}, "unknown command 'frobnicate' (see afdctl --help)"},
        {{"generate", "hi", "--max-token", "3"}, "did you mean --max-tokens?"},
        {{"generate"}, "give a prompt"},
        {{"generate", "two", "words"}, "unexpected argument 'words'; quote a text"},
        {{"generate", "hi", "--temperature", "3"}, "--temperature"},
        {{"generate", "hi", "--min-p", "1.5"}, "--min-p"},
        {{"generate", "hi", "--max-tokens", "many"}, "--max-tokens = many"},
        {{"trace", "--seconds", "1"}, "--output"},
        {{"trace", "-o", "x", "--seconds", "0"}, "--seconds"},
        {{"status", "--instance", "a/b"}, "instance name 'a/b'"},
    };
    for (const auto& [arguments, message] : cases) {
        const ProgramResult result = afdctl(server, arguments);
        EXPECT_EQ(result.exit_code, 2) << message << "\n" << result.err;
        EXPECT_THAT(result.err, HasSubstr(message));
        EXPECT_EQ(result.out, "");
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
        EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 32) << result.out;
    }
    EXPECT_THAT(afdctl(server, {"--help"}).out, HasSubstr("Exit codes: 0 ok, 1 request failed"));
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

// SPDX-License-Identifier: Apache-2.0
//
// The real afdctl generate against the mock: what it sends, prints and says at its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/clients/afdctl_run.h"
#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"

namespace afd::client {
namespace {

using afd::test::afdctl;
using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::ProgramOptions;
using afd::test::ProgramResult;
using afd::test::run_program;
using afd::test::steady_answer;
using afd::test::story;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(Afdctl, GenerateKeepsItsOrderWhereBothOutputsAreOne) {
    MockAfdd server([](size_t, const Generate&) { return story({"a", "b"}); });
    ProgramOptions options;
    options.environment = {"XDG_RUNTIME_DIR=" + server.directory()};
    const ProgramResult result =
        run_program({"/bin/sh", "-c", "exec \"$0\" generate hi --token-ids 2>&1", AFDCTL}, options);
    EXPECT_EQ(result.exit_code, 0) << result.out;
    EXPECT_THAT(result.out,
                StartsWith("ab\nprompt_ids 1 2 3\ntoken_ids 100 101\nlength: 3 prompt"));
}

TEST(Afdctl, GenerateReadsStandardInput) {
    MockAfdd server([](size_t, const Generate&) { return story({"x"}); });
    ProgramOptions options;
    options.input = "a long\nprompt\n";
    EXPECT_EQ(afdctl(server, {"generate", "-"}, options).exit_code, 0);
    EXPECT_EQ(server.generates().at(0).text(), "a long\nprompt\n");
    EXPECT_THAT(afdctl(server, {"generate", "--help"}).out,
                HasSubstr("- reads standard input, line breaks and all"));
}

// Goal: no answer to a prompt that is not all there. Method: a pipe that stays open is interrupted
// once afdctl has read what is in it; input that has no text. Oracle: what was sent; the message.
TEST(Afdctl, GenerateSendsNothingOfAPromptThatIsInterrupted) {
    MockAfdd server([](size_t, const Generate&) { return story({"x"}); });
    ProgramOptions options;
    options.input = "half of a";
    options.interrupts_input = true;
    const ProgramResult result = afdctl(server, {"generate", "-"}, options);
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "error: interrupted before standard input had ended\n");
    EXPECT_TRUE(server.generates().empty());
}

TEST(Afdctl, GenerateRefusesAStandardInputWithoutAPrompt) {
    MockAfdd server([](size_t, const Generate&) { return story({"x"}); });
    const ProgramResult empty = afdctl(server, {"generate", "-"});
    EXPECT_EQ(empty.exit_code, 1);
    // `echo` would add a line break to the prompt.
    EXPECT_EQ(
        empty.err,
        "error: standard input is empty; write a prompt to it, as in: printf %s \"Once upon a "
        "time\" | afdctl generate -\n");
    ProgramOptions options;
    options.environment = {"XDG_RUNTIME_DIR=" + server.directory()};
    const ProgramResult folder =
        run_program({"/bin/sh", "-c", "exec \"$0\" generate - < /", AFDCTL}, options);
    EXPECT_EQ(folder.exit_code, 1);
    EXPECT_EQ(folder.err, "error: standard input cannot be read: Is a directory\n");
    EXPECT_TRUE(server.generates().empty());
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

// Goal: ids and counts are read as decimal. Oracle: digits that another base would read
// differently.
TEST(Afdctl, NumbersAreDecimal) {
    MockAfdd server([](size_t, const Generate&) { return story({"a"}); });
    const ProgramResult result = afdctl(server,
                                        {"generate",
                                         "--prompt-ids",
                                         "010,7",
                                         "--max-tokens",
                                         "010",
                                         "--top-k",
                                         "020",
                                         "--stop-token-ids",
                                         "011,8",
                                         "--logit-bias",
                                         "012:1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Generate sent = server.generates().front();
    EXPECT_THAT(sent.token_ids().ids(), ElementsAre(10, 7));
    EXPECT_EQ(sent.max_tokens(), 10u);
    EXPECT_EQ(sent.sampling().top_k(), 20u);
    EXPECT_THAT(sent.stop_token_ids(), ElementsAre(11, 8));
    EXPECT_EQ(sent.sampling().logit_bias(0).token_id(), 12u);
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
    const auto run = [](MockAnswer::End end, const std::vector<std::string>& words) {
        MockAfdd server([end](size_t, const Generate&) {
            MockAnswer answer = steady_answer(3, milliseconds(0), milliseconds(0));
            answer.end = end;
            return answer;
        });
        const ProgramResult result = afdctl(server, words);
        EXPECT_NE(result.exit_code, 0);
        return result.err;
    };
    const std::string received = "3 chunks have come: resume with --received 3\n";
    const std::vector<std::string> resumable = {"generate", "hi", "--resumable"};
    EXPECT_THAT(run(MockAnswer::End::kDisconnect, resumable), HasSubstr(received));
    EXPECT_THAT(run(MockAnswer::End::kDisconnect, {"generate", "hi"}), Not(HasSubstr("have come")));
    // Of what is printed at the end only nothing was.
    for (const std::vector<std::string>& late : {std::vector<std::string>{"--json"},
                                                 {"--token-ids"},
                                                 {"--logprobs"},
                                                 {"--prompt-logprobs"},
                                                 {"--top-logprobs", "2"}}) {
        std::vector<std::string> words = resumable;
        words.insert(words.end(), late.begin(), late.end());
        EXPECT_THAT(run(MockAnswer::End::kDisconnect, words),
                    HasSubstr("3 chunks have come, and JSON and lists are printed at the end only: "
                              "resume with --received 0, and they come again\n"));
    }
    // It has ended, and there is nothing to resume.
    EXPECT_THAT(run(MockAnswer::End::kError, resumable), Not(HasSubstr("have come")));
}

// Goal: flags that say what is shown of the answer may be given. Oracle: afdd is asked, which the
// mock refuses.
TEST(Afdctl, AResumeMayShowOtherThings) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.refuse_resumes({Code::kNotFound, "the mock keeps none"});
    const ProgramResult result = afdctl(server,
                                        {"generate",
                                         "--resume",
                                         "abc",
                                         "--token-ids",
                                         "--logprobs",
                                         "--prompt-logprobs",
                                         "--timeout",
                                         "50"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("the mock keeps none"));
}

TEST(Afdctl, AResumeThatIsAheadIsToldInWordsOfItsFlag) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.refuse_resumes(
        {Code::kInvalidArgument, "received_chunks = 4000: the request has made 900 so far"});
    const ProgramResult result =
        afdctl(server, {"generate", "--resume", "abc", "--received", "4000"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("error: --received 4000: the request has made 900 so far\n"));
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

}  // namespace
}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client of a chat reads has the form of the OpenAI API, in whole and as events.
// Method: Responses of a gateway, made up. Oracle: the JSON, parsed by nlohmann's library, which
// does not write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/daemon/http/answer/generation_answer_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;

using ChatAnswerTest = GenerationAnswerTest;

TEST_F(ChatAnswerTest, ChatStreamsRoleTextAndCallsOfTools) {
    const model::OutputSyntax syntax{model::ReasoningSyntax::kNone, model::ToolSyntax::kJson};
    GenerationAnswer stream =
        answer({.is_chat = true, .output = syntax, .is_stream = true, .return_token_ids = true});
    say(stream, accepted({5, 6}));
    const std::vector<json> first = say(stream, token("Hi", 97, -1));
    ASSERT_EQ(first.size(), 2U) << "the role comes with the first token";
    EXPECT_EQ(first[0]["object"], "chat.completion.chunk");
    EXPECT_EQ(first[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":""})"));
    EXPECT_EQ(first[0]["prompt_token_ids"], json({5, 6}));
    EXPECT_EQ(first[0]["choices"][0]["token_ids"], json::array());
    EXPECT_EQ(first[1]["choices"][0]["delta"], json::parse(R"({"content":"Hi"})"));
    EXPECT_EQ(first[1]["choices"][0]["token_ids"], json({97}));
    const std::vector<json> held = say(stream, token("<tool_", 98, -1));
    ASSERT_EQ(held.size(), 1U) << "the id of a token has an event";
    EXPECT_EQ(held[0]["choices"][0]["delta"]["content"], "");
    say(stream, token("call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", 99, -1));
    std::vector<json> end = say(stream, finished(client::STOP));
    EXPECT_EQ(end.back()["choices"][0]["delta"], json::object());
    EXPECT_EQ(end.back()["choices"][0]["finish_reason"], "tool_calls");
}

// Goal: a token that says nothing yet costs a client of a chat no event, unless it has something of
// its own to tell. Method: a mark in two parts, of which the first says nothing. Oracle: the number
// of events.
TEST_F(ChatAnswerTest, ChatLeavesOutEventsThatSayNothing) {
    const model::OutputSyntax syntax{model::ReasoningSyntax::kNone, model::ToolSyntax::kJson};
    const GenerationCall plain{.is_chat = true, .output = syntax, .is_stream = true};
    const auto num_events = [&](const GenerationCall& call) {
        GenerationAnswer stream = answer(call);
        say(stream, accepted({5}));
        const size_t num_first = say(stream, token("<tool_", 97, -1)).size();
        const size_t num_second = say(stream, token("", 98, -1)).size();
        EXPECT_EQ(num_first, num_second + 1) << "the role";
        std::vector<json> rest = say(stream, token("box>", 99, -1));
        EXPECT_EQ(rest.size(), 1U);
        EXPECT_EQ(rest[0]["choices"][0]["delta"]["content"], "<tool_box>");
        return say(stream, token("", 98, -1)).size();
    };
    EXPECT_EQ(num_events(plain), 0U);
    GenerationCall call = plain;
    call.include_usage = true;
    EXPECT_EQ(num_events(call), 0U);
    call.continuous_usage = true;
    EXPECT_EQ(num_events(call), 1U);
    call = plain;
    call.has_logprobs = true;
    EXPECT_EQ(num_events(call), 1U);
    call = plain;
    call.return_token_ids = true;
    EXPECT_EQ(num_events(call), 1U);
}

// Goal: a call that is cut has the arguments that came, and the reason tells. Method: a call cut in
// its arguments, by each reason.
TEST_F(ChatAnswerTest, ACallThatIsCutKeepsItsReason) {
    for (const auto reason : {client::STOP, client::LENGTH}) {
        GenerationAnswer whole =
            answer({.is_chat = true, .output = {.tools = model::ToolSyntax::kJson}});
        say(whole, token("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", 97, -1));
        say(whole, finished(reason));
        const json choice = json::parse(whole.take_body())["choices"][0];
        EXPECT_EQ(choice["finish_reason"], reason == client::STOP ? "stop" : "length");
        EXPECT_TRUE(choice["message"]["content"].is_null());
        EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": \"b");
    }
}

// Goal: a call that is whole where max_tokens ends the answer is one like any other, and nothing of
// the answer is missing. Method: calls, and what may follow them, up to the limit, in whole and as
// a stream. Oracle: something is missing only where the model has begun to say more.
TEST_F(ChatAnswerTest, ACallThatIsWholeAtTheLimitIsWhole) {
    const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    struct End {
        std::string text;
        const char* reason;
    };
    const End kEnds[] = {{call, "tool_calls"},
                         {"I look.\n" + call + "\n" + call + "\n", "tool_calls"},
                         {call + "\nI have", "length"},
                         {call + "\n<tool_call>\n{\"name", "length"},
                         {call + "\n<tool_", "length"},
                         {"I look.", "length"}};
    for (const bool is_stream : {false, true}) {
        for (const auto& [text, reason] : kEnds) {
            GenerationAnswer chat = answer({.is_chat = true,
                                            .output = {.tools = model::ToolSyntax::kJson},
                                            .is_stream = is_stream});
            say(chat, token(text, 97, -1));
            const std::vector<json> events = say(chat, finished(client::LENGTH));
            const json end = is_stream ? events.back() : json::parse(chat.take_body());
            EXPECT_EQ(end["choices"][0]["finish_reason"], reason) << text;
        }
    }
}

// Goal: no call has arguments that the model has not written. Method: a call of gpt-oss that is
// over behind its header, in each way, whole and streamed. Oracle: only where the model itself has
// ended it is it one, without arguments.
TEST_F(ChatAnswerTest, ACallThatIsCutBeforeItsArgumentsIsNone) {
    constexpr uint32_t kCallEnd = 90;
    model_.chat_end_ids = {kCallEnd};
    client::Response by_string = finished(client::STOP);
    by_string.mutable_finished()->set_matched_stop("json");
    client::Response by_id = finished(client::STOP);
    by_id.mutable_finished()->set_matched_stop_token_id(kCallEnd + 1);
    client::Response by_end_id = finished(client::STOP);
    by_end_id.mutable_finished()->set_matched_stop_token_id(kCallEnd);
    struct End {
        client::Response response;
        const char* reason;
    };
    const End kEnds[] = {{finished(client::LENGTH), "length"},
                         {by_string, "stop"},
                         {by_id, "stop"},
                         {by_end_id, "tool_calls"},
                         {finished(client::STOP), "tool_calls"}};
    for (const bool is_stream : {false, true}) {
        for (const End& end : kEnds) {
            GenerationAnswer chat =
                answer({.is_chat = true,
                        .output = {.reasoning = model::ReasoningSyntax::kChannels,
                                   .tools = model::ToolSyntax::kHarmony},
                        .is_stream = is_stream});
            say(chat, token("<|channel|>commentary to=functions.f json<|message|>", 97, -1));
            const std::vector<json> events = say(chat, end.response);
            const bool is_call = std::string(end.reason) == "tool_calls";
            if (is_stream) {
                ASSERT_EQ(events.size(), is_call ? 2U : 1U);
                EXPECT_EQ(events.back()["choices"][0]["finish_reason"], end.reason);
                EXPECT_EQ(events.front()["choices"][0]["delta"].contains("tool_calls"), is_call);
                continue;
            }
            const json choice = json::parse(chat.take_body())["choices"][0];
            EXPECT_EQ(choice["finish_reason"], end.reason);
            EXPECT_EQ(choice["message"].contains("tool_calls"), is_call);
            if (!is_call) continue;
            EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{}");
        }
    }
}

// Goal: ids of calls fit where clients keep those of OpenAI, and differ. Method: two calls of each
// of two choices, twice, as a stream that is resumed says them again.
TEST_F(ChatAnswerTest, IdsOfCallsAreShortAndTheirOwn) {
    const std::string one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    std::set<std::string> ids;
    for (int round = 0; round < 2; ++round) {
        GenerationCall call{
            .is_chat = true, .output = {.tools = model::ToolSyntax::kJson}, .num_choices = 2};
        call.prompts.resize(1);
        GenerationAnswer whole(
            std::move(call), model_, {.id = "chatcmpl-0123456789abcdef0123456789abcdef"});
        for (size_t choice = 0; choice < 2; ++choice) {
            say(whole, token(one + one, 97, -1), choice);
            say(whole, finished(client::STOP), choice);
        }
        const json body = json::parse(whole.take_body());
        for (const json& choice : body["choices"]) {
            for (const json& told : choice["message"]["tool_calls"]) ids.insert(told["id"]);
        }
    }
    EXPECT_THAT(ids,
                ElementsAre("call_0123456789abcdef00000000",
                            "call_0123456789abcdef00000001",
                            "call_0123456789abcdef01000000",
                            "call_0123456789abcdef01000001"));
}

TEST_F(ChatAnswerTest, ChatIsOneMessage) {
    GenerationAnswer whole = answer({.is_chat = true, .return_token_ids = true});
    say(whole, accepted({5}));
    say(whole, token("Hi", 97, -1));
    say(whole, finished(client::STOP));
    const json body = json::parse(whole.take_body());
    EXPECT_EQ(body["object"], "chat.completion");
    EXPECT_EQ(body["prompt_token_ids"], json({5}));
    EXPECT_EQ(body["choices"][0], json::parse(R"({"index":0,"message":{"role":"assistant",
        "content":"Hi","refusal":null},"logprobs":null,"finish_reason":"stop","token_ids":[97]})"));
}

// Goal: whoever wants one call at most gets no more, and is told at once; what the model goes on
// with is dropped. Method: two calls in one text, whole and streamed. Oracle: the answer, and which
// choice may be cut.
TEST_F(ChatAnswerTest, ChatMayEndBehindItsFirstCall) {
    const std::string one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    for (const bool is_stream : {false, true}) {
        GenerationAnswer chat = answer({.is_chat = true,
                                        .output = {.tools = model::ToolSyntax::kJson},
                                        .is_stream = is_stream,
                                        .ends_behind_call = true});
        say(chat, accepted({5, 6}));
        say(chat, token("Let me see. ", 96, -1));
        EXPECT_THAT(chat.take_cut(), ElementsAre());
        const std::vector<json> calls = say(chat, token(one + one, 97, -1));
        EXPECT_THAT(chat.take_cut(), ElementsAre(0));
        EXPECT_TRUE(say(chat, token(one, 98, -1)).empty());
        EXPECT_THAT(chat.take_cut(), ElementsAre());
        EXPECT_FALSE(chat.is_over()) << "the gateway tells the end";
        client::Response end = finished(client::CANCELLED);
        end.mutable_finished()->set_num_cached_tokens(1);
        const std::vector<json> last_events = say(chat, end);
        ASSERT_TRUE(chat.is_over());
        if (is_stream) {
            ASSERT_EQ(calls.size(), 2U) << "the name, and the arguments";
            EXPECT_EQ(calls[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"], "f");
            EXPECT_EQ(calls[1]["choices"][0]["delta"]["tool_calls"],
                      json::parse(R"([{"index":0,"function":{"arguments":"{}"}}])"));
            EXPECT_EQ(last_events.back()["choices"][0]["finish_reason"], "tool_calls");
            continue;
        }
        const json body = json::parse(chat.take_body());
        const json& choice = body["choices"][0];
        EXPECT_EQ(choice["message"]["content"], "Let me see.");
        EXPECT_EQ(choice["message"]["tool_calls"].size(), 1U);
        EXPECT_EQ(choice["finish_reason"], "tool_calls");
        EXPECT_FALSE(choice.contains("stop_reason"));
        EXPECT_EQ(body["usage"]["completion_tokens"], 2);
        EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    }
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client of a completion reads has the form of the OpenAI API, in whole and as events.
// Method: Responses of a gateway, made up. Oracle: the JSON, parsed by nlohmann's library, which
// does not write it.
#include "daemon/http/answer/generation_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "proto/status.h"
#include "tests/daemon/gateway/byte_tokenizer.h"

namespace afd::daemon {
namespace {

using nlohmann::json;
using testing::ElementsAre;

client::Response accepted(const std::vector<uint32_t>& prompt_ids) {
    client::Response response;
    response.mutable_accepted()->set_num_prompt_tokens(static_cast<uint32_t>(prompt_ids.size()));
    for (const uint32_t id : prompt_ids) response.mutable_accepted()->add_prompt_ids(id);
    return response;
}

client::Response token(const std::string& text, uint32_t id, float logprob) {
    client::Response response;
    client::Chunk& chunk = *response.mutable_chunk();
    chunk.set_text(text);
    chunk.set_num_tokens(1);
    chunk.add_token_ids(id);
    chunk.add_logprobs(logprob);
    return response;
}

void add_top(const std::vector<std::pair<uint32_t, float>>& tokens, client::TopLogprobs& top) {
    for (const auto& [id, logprob] : tokens) {
        top.add_token_ids(id);
        top.add_logprobs(logprob);
    }
}

client::Response finished(client::FinishReason reason) {
    client::Response response;
    response.mutable_finished()->set_reason(reason);
    return response;
}

client::Response failed(Code code, const std::string& message) {
    client::Response response;
    response.mutable_error()->set_code(static_cast<uint32_t>(code));
    response.mutable_error()->set_message(message);
    return response;
}

// The data of each event; its JSON, except for the end mark.
std::vector<json> parse_events(const std::string& events) {
    std::vector<json> parsed;
    for (size_t at = 0; at < events.size();) {
        const size_t end = events.find("\n\n", at);
        EXPECT_NE(end, std::string::npos) << "the last event has no end";
        const std::string line = events.substr(at, end - at);
        EXPECT_TRUE(line.starts_with("data: ")) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
        const std::string data = line.substr(6);
        parsed.push_back(data == "[DONE]" ? json("[DONE]") : json::parse(data));
        at = end + 2;
    }
    return parsed;
}

class GenerationAnswerTest : public testing::Test {
  protected:
    GenerationAnswerTest() : tokenizer_(make_byte_tokenizer()) {
        model_.id = "tiny";
        model_.tokenizer = &tokenizer_;
    }

    GenerationAnswer answer(GenerationCall call, size_t num_prompts = 1) const {
        call.prompts.resize(num_prompts);
        return {std::move(call),
                model_,
                {.id = "cmpl-1",
                 .created = 1763715000,
                 .model = "tiny",
                 .system_fingerprint = "afd-1.2.3"}};
    }

    // The events of one Response.
    static std::vector<json> say(GenerationAnswer& answer,
                                 const client::Response& response,
                                 size_t choice = 0) {
        std::string events;
        answer.on_response(choice, response, events);
        return parse_events(events);
    }

    static std::vector<json> last(const GenerationAnswer& answer) {
        std::string events;
        answer.append_last_events(events);
        return parse_events(events);
    }

    model::Tokenizer tokenizer_;
    ApiModel model_;
};

TEST_F(GenerationAnswerTest, IsOneObjectWithoutAStream) {
    GenerationAnswer whole = answer({});
    EXPECT_TRUE(say(whole, accepted({1, 2, 3})).empty());
    EXPECT_TRUE(say(whole, token("a\"\\\n\x01", 97, -1)).empty());
    EXPECT_TRUE(say(whole, token("\xe4\xbd\xa0", 98, -1)).empty());
    EXPECT_FALSE(whole.is_over());
    EXPECT_TRUE(say(whole, finished(client::LENGTH)).empty());
    ASSERT_TRUE(whole.is_over());
    const json body = json::parse(whole.body());
    EXPECT_EQ(body, json::parse(R"({"id":"cmpl-1","object":"text_completion","created":1763715000,
        "model":"tiny","system_fingerprint":"afd-1.2.3",
        "choices":[{"index":0,"text":"a\"\\\n\u0001你","logprobs":null,
        "finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,
        "total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}})"));
}

TEST_F(GenerationAnswerTest, StreamsAnEventForEachTokenAndOneForTheEnd) {
    GenerationAnswer stream = answer({.is_stream = true, .include_usage = true});
    EXPECT_TRUE(say(stream, accepted({1})).empty());
    const std::vector<json> first = say(stream, token("a", 97, -1));
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0]["id"], "cmpl-1");
    EXPECT_EQ(first[0]["object"], "text_completion");
    EXPECT_EQ(first[0]["choices"][0],
              json::parse(R"({"index":0,"text":"a","logprobs":null,"finish_reason":null})"));
    EXPECT_TRUE(first[0]["usage"].is_null());
    // Half a character: the event counts the token.
    EXPECT_EQ(say(stream, token("", 98, -1))[0]["choices"][0]["text"], "");
    const std::vector<json> end = say(stream, finished(client::STOP));
    EXPECT_EQ(end[0]["choices"][0],
              json::parse(R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop"})"));
    const std::vector<json> rest = last(stream);
    ASSERT_EQ(rest.size(), 2U);
    EXPECT_EQ(rest[0]["choices"], json::array());
    EXPECT_EQ(rest[0]["usage"]["completion_tokens"], 2);
    EXPECT_EQ(rest[1], "[DONE]");
}

TEST_F(GenerationAnswerTest, CountsUsageInEveryEventIfAsked) {
    GenerationAnswer stream = answer({.is_stream = true, .continuous_usage = true});
    say(stream, accepted({1, 2}));
    EXPECT_EQ(say(stream, token("a", 97, -1))[0]["usage"]["total_tokens"], 3);
    EXPECT_EQ(say(stream, token("b", 97, -1))[0]["usage"]["total_tokens"], 4);
    say(stream, finished(client::STOP));
    EXPECT_EQ(last(stream).size(), 1U) << "nobody asked for an event of its own";
}

TEST_F(GenerationAnswerTest, KeepsChoicesAndPromptsApart) {
    GenerationAnswer whole = answer({.num_choices = 2}, 2);
    ASSERT_EQ(whole.num_choices(), 4U);
    for (size_t i = 0; i < 4; ++i) say(whole, accepted({1, 2}), i);
    for (const size_t i : {3, 1, 0, 2}) {
        say(whole, token(std::to_string(i), 97, -1), i);
        say(whole, finished(i == 1 ? client::STOP : client::LENGTH), i);
    }
    const json body = json::parse(whole.body());
    ASSERT_EQ(body["choices"].size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(body["choices"][i]["index"], i);
        EXPECT_EQ(body["choices"][i]["text"], std::to_string(i));
    }
    EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
    EXPECT_EQ(body["usage"]["prompt_tokens"], 4) << "each prompt counts once";
    EXPECT_EQ(body["usage"]["completion_tokens"], 4);
}

// Goal: a prompt takes no memory once it is asked for. Oracle: each choice has it, and then none.
TEST_F(GenerationAnswerTest, APromptIsGoneWithItsLastChoice) {
    GenerationCall call{.prompts = std::vector<client::Generate>(2), .num_choices = 2};
    for (uint32_t i = 0; i < 2; ++i) call.prompts[i].mutable_token_ids()->add_ids(i + 5);
    GenerationAnswer whole = answer(call, 2);
    for (uint32_t i = 0; i < 4; ++i) {
        const client::Generate wish = whole.take_wish(i);
        EXPECT_EQ(wish.sampling().choice(), i % 2);
        EXPECT_THAT(wish.token_ids().ids(), ElementsAre(i / 2 + 5));
    }
    ASSERT_EQ(whole.call().prompts.size(), 2U);
    for (const client::Generate& prompt : whole.call().prompts) {
        EXPECT_LE(prompt.SpaceUsedLong(), client::Generate().SpaceUsedLong());
    }
    EXPECT_EQ(whole.num_choices(), 4U);
}

TEST_F(GenerationAnswerTest, HasLogprobsWithTextsAndOffsets) {
    GenerationCall call{.has_logprobs = true, .top_logprobs = 2};
    call.echoes = {{.text = "h\xc3\xa9", .keeps_special = true}};
    GenerationAnswer whole = answer(call);
    say(whole, accepted({'h', 0xc3, 0xa9}));
    client::Response prompt;
    prompt.mutable_chunk()->add_prompt_logprobs(-0.5F);
    prompt.mutable_chunk()->add_prompt_logprobs(-0.25F);
    add_top({{'y', -0.125F}, {'z', -0.375F}}, *prompt.mutable_chunk()->add_prompt_top_logprobs());
    add_top({{0xa9, -0.25F}, {'z', -2}}, *prompt.mutable_chunk()->add_prompt_top_logprobs());
    say(whole, prompt);
    client::Response first = token("x", 'x', -1.5F);
    add_top({{'x', -1.5F}, {0xff, -2}}, *first.mutable_chunk()->add_top_logprobs());
    say(whole, first);
    say(whole, token("", kEndOfText, -3));
    say(whole, finished(client::STOP));
    const json choice = json::parse(whole.body())["choices"][0];
    EXPECT_EQ(choice["text"], "h\xc3\xa9x");
    EXPECT_EQ(choice["logprobs"], json::parse(R"({
        "tokens":["h","bytes:\\xc3","bytes:\\xa9","x","token_id:256"],
        "token_logprobs":[null,-0.5,-0.25,-1.5,-3],
        "top_logprobs":[null,{"y":-0.125,"z":-0.375,"bytes:\\xc3":-0.5},
                        {"bytes:\\xa9":-0.25,"z":-2},
                        {"x":-1.5,"bytes:\\xff":-2},null],
        "text_offset":[0,1,1,2,3]})"));
}

// Goal: an offset is where a token stands in the text, also if the text comes later or not at all.
// Method: tokens whose text is held back, as for a stop string. Oracle: one character for each.
TEST_F(GenerationAnswerTest, OffsetsCountTextThatIsHeldBack) {
    GenerationAnswer whole = answer({.has_logprobs = true});
    say(whole, accepted({1}));
    say(whole, token("", 'a', -1));
    say(whole, token("", 'b', -1));
    say(whole, token("abc", 'c', -1));
    say(whole, token("", 'd', -1));
    say(whole, finished(client::STOP));
    const json choice = json::parse(whole.body())["choices"][0];
    EXPECT_EQ(choice["text"], "abc");
    EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 3}));
}

// Goal: offsets fit the echo, which is the prompt as the client sent it. Method: a special token in
// a text, between ids that were added to it; the same as ids, whose text leaves it out.
TEST_F(GenerationAnswerTest, OffsetsOfAnEchoWithSpecialTokens) {
    const std::vector<uint32_t> ids = {kEndOfText, 'a', kEndOfText, 'b', kEndOfText};
    for (const bool is_literal : {true, false}) {
        GenerationCall call{.has_logprobs = true, .keeps_special = true};
        call.echoes = {{.text = is_literal ? "a<|end|>b" : "ab", .keeps_special = is_literal}};
        if (is_literal) call.echoes[0].num_added_before = call.echoes[0].num_added_behind = 1;
        GenerationAnswer whole = answer(call);
        say(whole, accepted(ids));
        say(whole, token("x", 'x', -1));
        say(whole, token("<|end|>", kEndOfText, -1));
        say(whole, token("y", 'y', -1));
        say(whole, finished(client::LENGTH));
        const json choice = json::parse(whole.body())["choices"][0];
        const json expected =
            is_literal ? json({0, 0, 1, 8, 9, 9, 10, 17}) : json({0, 0, 1, 1, 2, 2, 3, 10});
        EXPECT_EQ(choice["logprobs"]["text_offset"], expected);
    }
}

TEST_F(GenerationAnswerTest, ReturnsTokenIdsWhereTheyBelong) {
    GenerationAnswer stream = answer({.is_stream = true, .return_token_ids = true});
    say(stream, accepted({5, 6}));
    const json first = say(stream, token("a", 97, -1))[0]["choices"][0];
    EXPECT_EQ(first["prompt_token_ids"], json({5, 6}));
    EXPECT_EQ(first["token_ids"], json({97}));
    const json second = say(stream, token("b", 98, -1))[0]["choices"][0];
    EXPECT_FALSE(second.contains("prompt_token_ids"));
    EXPECT_EQ(second["token_ids"], json({98}));
    GenerationAnswer whole = answer({.return_token_ids = true});
    say(whole, accepted({5, 6}));
    say(whole, token("a", 97, -1));
    say(whole, token("b", 98, -1));
    say(whole, finished(client::STOP));
    const json choice = json::parse(whole.body())["choices"][0];
    EXPECT_EQ(choice["prompt_token_ids"], json({5, 6}));
    EXPECT_EQ(choice["token_ids"], json({97, 98}));
}

TEST_F(GenerationAnswerTest, HidesTheTokenOfAPromptThatIsOnlyScored) {
    GenerationCall call{.has_logprobs = true, .hides_output = true};
    call.echoes = {{.text = "hi", .keeps_special = true}};
    GenerationAnswer whole = answer(call);
    say(whole, accepted({'h', 'i'}));
    say(whole, token("x", 'x', -1));
    say(whole, finished(client::LENGTH));
    const json body = json::parse(whole.body());
    EXPECT_EQ(body["choices"][0]["text"], "hi");
    EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"], json({"h", "i"}));
    EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(GenerationAnswerTest, NamesWhatStoppedTheText) {
    GenerationAnswer whole = answer({});
    client::Response end = finished(client::STOP);
    end.mutable_finished()->set_matched_stop("\"x");
    end.mutable_finished()->set_num_cached_tokens(64);
    say(whole, end);
    const json body = json::parse(whole.body());
    EXPECT_EQ(body["choices"][0]["stop_reason"], "\"x");
    EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
}

// Goal: a client may subtract the two. Method: two choices of each of two prompts, all of which
// found the same.
TEST_F(GenerationAnswerTest, CachedTokensCountOnceForAllChoicesOfAPrompt) {
    GenerationAnswer whole = answer({.num_choices = 2}, 2);
    for (size_t i = 0; i < 4; ++i) {
        client::Response end = finished(client::STOP);
        end.mutable_finished()->set_num_cached_tokens(i < 2 ? 64 : 32);
        say(whole, end, i);
    }
    const json body = json::parse(whole.body());
    EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 96);
}

TEST_F(GenerationAnswerTest, EndsWithTheFirstError) {
    GenerationAnswer stream = answer({.num_choices = 2, .is_stream = true});
    say(stream, token("a", 97, -1));
    say(stream, failed(Code::kUnavailable, "gone"), 1);
    ASSERT_TRUE(stream.is_over());
    EXPECT_EQ(stream.error()->status, 503);
    EXPECT_TRUE(say(stream, token("b", 98, -1)).empty()) << "went on behind an error";
    const std::vector<json> rest = last(stream);
    ASSERT_EQ(rest.size(), 2U);
    EXPECT_EQ(rest[0], json::parse(R"({"error":{"message":"gone","type":"server_error",
        "param":null,"code":"worker_lost"}})"));
    EXPECT_EQ(rest[1], "[DONE]");
}

TEST_F(GenerationAnswerTest, ChatStreamsRoleTextAndCallsOfTools) {
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
TEST_F(GenerationAnswerTest, ChatLeavesOutEventsThatSayNothing) {
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
TEST_F(GenerationAnswerTest, ACallThatIsCutKeepsItsReason) {
    for (const auto reason : {client::STOP, client::LENGTH}) {
        GenerationAnswer whole =
            answer({.is_chat = true, .output = {.tools = model::ToolSyntax::kJson}});
        say(whole, token("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", 97, -1));
        say(whole, finished(reason));
        const json choice = json::parse(whole.body())["choices"][0];
        EXPECT_EQ(choice["finish_reason"], reason == client::STOP ? "stop" : "length");
        EXPECT_TRUE(choice["message"]["content"].is_null());
        EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": \"b");
    }
}

// Goal: ids of calls fit where clients keep those of OpenAI, and differ. Method: two calls of each
// of two choices, twice, as a stream that is resumed says them again.
TEST_F(GenerationAnswerTest, IdsOfCallsAreShortAndTheirOwn) {
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
        const json body = json::parse(whole.body());
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

TEST_F(GenerationAnswerTest, ChatIsOneMessage) {
    GenerationAnswer whole = answer({.is_chat = true, .return_token_ids = true});
    say(whole, accepted({5}));
    say(whole, token("Hi", 97, -1));
    say(whole, finished(client::STOP));
    const json body = json::parse(whole.body());
    EXPECT_EQ(body["object"], "chat.completion");
    EXPECT_EQ(body["prompt_token_ids"], json({5}));
    EXPECT_EQ(body["choices"][0], json::parse(R"({"index":0,"message":{"role":"assistant",
        "content":"Hi","refusal":null},"logprobs":null,"finish_reason":"stop","token_ids":[97]})"));
}

// Goal: whoever wants one call at most gets no more, and is told at once; what the model goes on
// with is dropped. Method: two calls in one text, whole and streamed. Oracle: the answer, and which
// choice may be cut.
TEST_F(GenerationAnswerTest, ChatMayEndBehindItsFirstCall) {
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
        const json body = json::parse(chat.body());
        const json& choice = body["choices"][0];
        EXPECT_EQ(choice["message"]["content"], "Let me see.");
        EXPECT_EQ(choice["message"]["tool_calls"].size(), 1U);
        EXPECT_EQ(choice["finish_reason"], "tool_calls");
        EXPECT_FALSE(choice.contains("stop_reason"));
        EXPECT_EQ(body["usage"]["completion_tokens"], 2);
        EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    }
}

// Who scores a prompt has sent max_tokens 0: the 1 that the gateway was asked for is not his.
TEST_F(GenerationAnswerTest, APromptThatLeavesNoRoomToScoreItIsToBlame) {
    const std::string message =
        "the prompt has 8 tokens and max_tokens is 1: together at most 8 fit, the context length "
        "of the model";
    GenerationAnswer scored = answer({.hides_output = true});
    say(scored, failed(Code::kInvalidArgument, message));
    EXPECT_EQ(scored.error()->param, "prompt");
    EXPECT_EQ(scored.error()->code, "context_length_exceeded");
    EXPECT_EQ(scored.error()->message,
              "the prompt has 8 tokens, and to score it takes one more: at most 8 fit, the context "
              "length of the model");
    GenerationAnswer other = answer({});
    say(other, failed(Code::kInvalidArgument, message));
    EXPECT_EQ(other.error()->param, "max_tokens");
    EXPECT_EQ(other.error()->message, message);
}

// Each Code has its status, and the field that a message begins with is its param.
TEST(ApiError, IsWhatTheGatewayMeans) {
    struct Case {
        Code code;
        const char* message;
        int status;
        const char* param;
        const char* name;
    };
    const Case cases[] = {
        {Code::kInvalidArgument, "top_p = 2: must be in [0, 1]", 400, "top_p", ""},
        {Code::kInvalidArgument, "token_ids[3] = 9: must be below", 400, "prompt", ""},
        {Code::kInvalidArgument, "stop has 17 strings", 400, "stop", ""},
        {Code::kInvalidArgument, "stop[2] is empty", 400, "stop", ""},
        {Code::kInvalidArgument, "it is not supported yet", 400, "", "unsupported_parameter"},
        {Code::kInvalidArgument, "stop is not supported yet", 400, "stop", "unsupported_parameter"},
        {Code::kInvalidArgument, "the prompt is empty: it must", 400, "prompt", ""},
        {Code::kInvalidArgument,
         "the prompt has 9 tokens and max_tokens is 5: together at most 8 fit, the context",
         400,
         "max_tokens",
         "context_length_exceeded"},
        {Code::kInvalidArgument,
         "the prompt has 99 bytes, which are at least 9 tokens: at most 8 fit, the context",
         400,
         "prompt",
         "context_length_exceeded"},
        {Code::kInvalidArgument,
         "the prompt cannot be tokenized: splitting the text into pieces exceeds the limits of",
         400,
         "prompt",
         ""},
        {Code::kResourceExhausted, "the queue is full", 429, "", "queue_full"},
        {Code::kResourceExhausted, "the client reads too slowly: 9", 408, "", "client_too_slow"},
        {Code::kResourceExhausted, "nothing of it was read for", 408, "", "client_too_slow"},
        {Code::kResourceExhausted,
         "the answers that are kept are too many (resume_buffer_kib)",
         503,
         "",
         "resume_buffer_full"},
        {Code::kFailedPrecondition, "afdd is draining", 503, "", "draining"},
        {Code::kUnavailable, "no worker", 503, "", "worker_lost"},
        {Code::kDeadlineExceeded, "waited", 504, "", "deadline_exceeded"},
        {Code::kInternal, "a bug", 500, "", "internal_error"},
        {Code::kUnimplemented, "suffix is not", 400, "suffix", "unsupported_parameter"},
    };
    for (const Case& expected : cases) {
        client::Error error;
        error.set_code(static_cast<uint32_t>(expected.code));
        error.set_message(expected.message);
        const ApiError mapped = api_error(error);
        EXPECT_EQ(mapped.status, expected.status) << expected.message;
        EXPECT_EQ(mapped.param, expected.param) << expected.message;
        EXPECT_EQ(mapped.code, expected.name) << expected.message;
        // What was kept is forgotten: there is nothing to come back for.
        const bool helps_to_wait =
            (mapped.status == 429 || mapped.status == 503) && mapped.code != "resume_buffer_full";
        EXPECT_EQ(mapped.retry_after_s > 0, helps_to_wait) << expected.message;
    }
}

}  // namespace
}  // namespace afd::daemon

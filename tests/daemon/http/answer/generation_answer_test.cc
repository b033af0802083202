// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client of a completion reads has the form of the OpenAI API, in whole and as events.
// Method: Responses of a gateway, made up. Oracle: the JSON, parsed by nlohmann's library, which
// does not write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/http/answer/generation_answer_fixture.h"
#include "tests/model/tokenizer/small_tokenizer.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;

TEST_F(GenerationAnswerTest, IsOneObjectWithoutAStream) {
    GenerationAnswer whole = answer({});
    EXPECT_TRUE(say(whole, accepted({1, 2, 3})).empty());
    EXPECT_TRUE(say(whole, token("a\"\\\n\x01", 97, -1)).empty());
    EXPECT_TRUE(say(whole, token("\xe4\xbd\xa0", 98, -1)).empty());
    EXPECT_FALSE(whole.is_over());
    EXPECT_TRUE(say(whole, finished(client::LENGTH)).empty());
    ASSERT_TRUE(whole.is_over());
    const json body = json::parse(whole.take_body());
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
    const json body = json::parse(whole.take_body());
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
    const json choice = json::parse(whole.take_body())["choices"][0];
    EXPECT_EQ(choice["text"], "h\xc3\xa9x");
    EXPECT_EQ(choice["logprobs"], json::parse(R"({
        "tokens":["h","bytes:\\xc3","bytes:\\xa9","x","token_id:256"],
        "token_logprobs":[null,-0.5,-0.25,-1.5,-3],
        "top_logprobs":[null,{"y":-0.125,"z":-0.375,"bytes:\\xc3":-0.5},
                        {"bytes:\\xa9":-0.25,"z":-2},
                        {"x":-1.5,"bytes:\\xff":-2},null],
        "text_offset":[0,1,1,2,3]})"));
}

// Goal: the log probabilities of a prompt are turned into text part by part, as they come: all of
// them at once would be one long event, and keep everybody else waiting. Method: those of a prompt
// in two parts, its last token in none, for a stream and for whoever wants no stream. Oracle: which
// events there are; the parts of both, joined, are the same; what the prompt made counts as such,
// and nothing else.
TEST_F(GenerationAnswerTest, AScoredPromptIsSaidInPartsAsItComes) {
    const auto part = [](const std::vector<float>& logprobs) {
        client::Response response;
        for (const float each : logprobs) response.mutable_chunk()->add_prompt_logprobs(each);
        return response;
    };
    GenerationCall call{.is_stream = true, .has_logprobs = true, .return_token_ids = true};
    call.echoes = {{.text = "hello", .keeps_special = true}};
    GenerationAnswer stream = answer(call);
    say(stream, accepted({'h', 'e', 'l', 'l', 'o'}));
    EXPECT_EQ(stream.take_prompt_bytes(), 0U);
    std::vector<json> events = say(stream, part({-1, -2}));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0]["choices"][0]["text"], "hello");
    EXPECT_EQ(events[0]["choices"][0]["prompt_token_ids"].size(), 5U);
    EXPECT_EQ(events[0]["choices"][0]["logprobs"]["tokens"], json({"h", "e", "l"}));
    EXPECT_GT(stream.take_prompt_bytes(), 0U);
    events.push_back(say(stream, part({-3}))[0]);
    EXPECT_GT(stream.take_prompt_bytes(), 0U);
    const std::vector<json> first = say(stream, token("x", 'x', -5));
    ASSERT_EQ(first.size(), 2U) << "what is left of the prompt, and the token";
    EXPECT_GT(stream.take_prompt_bytes(), 0U);
    events.insert(events.end(), first.begin(), first.end());
    say(stream, token("y", 'y', -6));
    EXPECT_EQ(stream.take_prompt_bytes(), 0U);

    call.is_stream = false;
    GenerationAnswer whole = answer(call);
    say(whole, accepted({'h', 'e', 'l', 'l', 'o'}));
    say(whole, part({-1, -2}));
    say(whole, part({-3}));
    say(whole, token("x", 'x', -5));
    say(whole, finished(client::LENGTH));
    EXPECT_EQ(whole.take_prompt_bytes(), 0U) << "it has no events";
    const json choice = json::parse(whole.take_body())["choices"][0];
    EXPECT_EQ(choice["text"], "hellox");
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], json({nullptr, -1, -2, -3, nullptr, -5}));
    EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 3, 4, 5}));
    json joined;
    std::string text;
    for (const json& event : events) {
        const json& said = event["choices"][0];
        text += said["text"].get<std::string>();
        for (const char* name : {"tokens", "token_logprobs", "text_offset"}) {
            for (const json& each : said["logprobs"][name]) joined[name].push_back(each);
        }
    }
    EXPECT_EQ(text, choice["text"]);
    for (const auto& [name, values] : joined.items()) EXPECT_EQ(values, choice["logprobs"][name]);
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
    const json choice = json::parse(whole.take_body())["choices"][0];
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
        const json choice = json::parse(whole.take_body())["choices"][0];
        const json expected =
            is_literal ? json({0, 0, 1, 8, 9, 9, 10, 17}) : json({0, 0, 1, 1, 2, 2, 3, 10});
        EXPECT_EQ(choice["logprobs"]["text_offset"], expected);
    }
}

// Goal: an offset counts the blank in front of the first word where the text has it. Oracle: the
// tokens' texts in the text of the choice.
TEST_F(GenerationAnswerTest, OffsetsOfATextThatGoesOnWithItsPrompt) {
    model::Tokenizer words = model::parsed(model::character_json({"▁", "a", "▁a"}));
    model_.tokenizer = &words;
    const auto offsets = [&](const std::vector<uint32_t>& prompt_ids, const std::string& first) {
        GenerationAnswer whole = answer({.has_logprobs = true});
        say(whole, accepted(prompt_ids));
        say(whole, token(first, 260, -1));
        say(whole, token(" a", 260, -1));
        say(whole, finished(client::LENGTH));
        return json::parse(whole.take_body())["choices"][0]["logprobs"]["text_offset"];
    };
    EXPECT_EQ(offsets({0, 259}, " a"), json({0, 2}));
    EXPECT_EQ(offsets({0}, "a"), json({0, 1}));
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
    const json choice = json::parse(whole.take_body())["choices"][0];
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
    const json body = json::parse(whole.take_body());
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
    const json body = json::parse(whole.take_body());
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
    const json body = json::parse(whole.take_body());
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

}  // namespace
}  // namespace afd::daemon

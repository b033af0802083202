// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/gateway/request/prompt.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/model/tokenizer/small_tokenizer.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kKvTokens = 1024;
constexpr uint64_t kDrawnSeed = 4711;

class RequestTest : public testing::Test {
  protected:
    RequestTest() : tokenizer_(make_byte_tokenizer()) {
        model_.vocab_size = kByteVocabulary;
        model_.context_length = 100;
        model_.stop_ids = {kEndOfText};
        model_.tokenizer = &tokenizer_;
        wish_.set_text("abc");
        wish_.set_max_tokens(10);
    }

    std::unique_ptr<Request> create() {
        auto request = Request::create(wish_, model_, kKvTokens, kDrawnSeed);
        EXPECT_TRUE(request.ok()) << request.error().message;
        return std::move(request).value();
    }

    std::string refusal() {
        const auto request = Request::create(wish_, model_, kKvTokens, kDrawnSeed);
        if (request.ok()) return "accepted";
        EXPECT_EQ(request.error().code, Code::kInvalidArgument);
        return request.error().message;
    }

    static client::Chunk token(Request& request, uint32_t id, float logprob = -1.0F) {
        control::TokenEvent event;
        event.set_token(id);
        event.set_logprob(logprob);
        auto chunk = request.on_token(event);
        EXPECT_TRUE(chunk.ok()) << chunk.error().message;
        return *chunk.value();
    }

    static std::optional<client::Chunk> prompt_logprobs(Request& request,
                                                        uint32_t first,
                                                        const std::vector<float>& values) {
        control::PromptLogprobsEvent event;
        event.set_first_position(first);
        for (const float value : values) event.add_values(value);
        return request.on_prompt_logprobs(event).value();
    }

    model::Tokenizer tokenizer_;
    ServedModel model_;
    client::Generate wish_;
};

TEST_F(RequestTest, TextBecomesTokensAndTheSeedIsDrawn) {
    wish_.set_return_token_ids(true);
    const auto request = create();
    EXPECT_EQ(request->accepted().seed(), kDrawnSeed);
    EXPECT_THAT(request->accepted().prompt_ids(), ElementsAre('a', 'b', 'c'));
    EXPECT_EQ(request->max_total_tokens(), 13);
    const control::Admit admit = request->admit(9);
    EXPECT_EQ(admit.sequence_id(), 9);
    EXPECT_EQ(admit.sampling().seed(), kDrawnSeed);
    EXPECT_THAT(admit.stop_ids(), ElementsAre(kEndOfText));
}

TEST_F(RequestTest, ForOneTokenAWorkerIsToldEverythingButToGoOn) {
    const auto request = create();
    token(*request, 'd');
    control::Admit one = request->admit_for_one(9);
    EXPECT_EQ(one.tokens_size(), 4);
    EXPECT_EQ(one.max_total_tokens(), 5);
    one.set_max_total_tokens(13);
    EXPECT_EQ(one.SerializeAsString(), request->admit(9).SerializeAsString());
}

TEST_F(RequestTest, GivenSeedAndIgnoreEosAreKept) {
    wish_.mutable_sampling()->set_seed(0);
    wish_.set_ignore_eos(true);
    const auto request = create();
    EXPECT_EQ(request->accepted().seed(), 0);
    EXPECT_TRUE(request->admit(1).stop_ids().empty());
}

TEST_F(RequestTest, ZeroMaxTokensMeansAllThatFits) {
    wish_.set_max_tokens(0);
    EXPECT_EQ(create()->max_total_tokens(), 100);
    model_.context_length = 5000;
    EXPECT_EQ(create()->max_total_tokens(), kKvTokens);
}

TEST_F(RequestTest, RefusalsNameTheFieldTheValueAndTheLimit) {
    wish_.set_max_tokens(98);
    EXPECT_EQ(refusal(),
              "the prompt has 3 tokens and max_tokens is 98: together at most 100 fit, the context "
              "length of the model");
    wish_.set_max_tokens(0);
    wish_.set_text(std::string(100, 'a'));
    EXPECT_EQ(
        refusal(),
        "the prompt has 100 tokens: at most 100 fit, the context length of the model, with the "
        "one that is generated; send a shorter prompt");
    wish_.set_text("abc");
    wish_.set_max_tokens(4294967295U);
    EXPECT_THAT(refusal(), HasSubstr("at most 100 fit"));
    wish_.set_max_tokens(1);
    wish_.mutable_sampling()->set_temperature(2.5F);
    EXPECT_EQ(refusal(), "temperature = 2.5: must be from 0 (greedy) to 2");
    wish_.mutable_sampling()->set_temperature(std::nanf(""));
    EXPECT_THAT(refusal(), HasSubstr("temperature = nan"));
    wish_.mutable_sampling()->set_temperature(1.0F);
    wish_.mutable_sampling()->set_top_p(-0.1F);
    EXPECT_THAT(refusal(), HasSubstr("top_p = -0.1"));
    wish_.clear_sampling();
    wish_.mutable_sampling()->set_min_p(1.5F);
    EXPECT_EQ(refusal(), "min_p = 1.5: must be from 0 (off) to 1");
    wish_.mutable_sampling()->set_min_p(-0.25F);
    EXPECT_EQ(refusal(), "min_p = -0.25: must be from 0 (off) to 1");
    wish_.clear_sampling();
    wish_.mutable_token_ids()->add_ids(1);
    wish_.mutable_token_ids()->add_ids(257);
    EXPECT_EQ(refusal(), "token_ids[1] = 257: must be below the vocabulary size 257");
    wish_.mutable_token_ids()->clear_ids();
    EXPECT_THAT(refusal(), HasSubstr("the prompt is empty"));
    wish_.clear_prompt();
    EXPECT_THAT(refusal(), HasSubstr("has no prompt"));
    wish_.set_text("\xff\xfe");
    EXPECT_EQ(refusal(), "the text is not valid UTF-8");
}

TEST_F(RequestTest, PromptThatFillsTheContextIsRefusedWithoutRoomForAToken) {
    wish_.set_text(std::string(100, 'x'));
    wish_.set_max_tokens(0);
    EXPECT_THAT(refusal(), HasSubstr("the prompt has 100 tokens"));
}

// Goal: a text that cannot fit is refused by its bytes, before it is encoded. Method: such a text
// that is also not UTF-8, which encoding would say. Oracle: the message has the bytes, the limit
// and what to do; a text at the limit gets as far as the encoder.
TEST_F(RequestTest, TextWhoseBytesCannotFitIsRefusedBeforeItIsEncoded) {
    wish_.set_text(std::string(101, '\n') + "\xff");
    EXPECT_EQ(refusal(),
              "the prompt has 102 bytes, which are at least 102 tokens: at most 100 fit, the "
              "context length of the model; send a shorter prompt");
    wish_.set_text(std::string(99, '\n') + "\xff");
    EXPECT_THAT(refusal(), HasSubstr("UTF-8"));
    model_.context_length = 5000;
    wish_.set_text(std::string(1025, 'x'));
    EXPECT_THAT(refusal(), HasSubstr("at most 1024 fit, the KV cache of an attention worker"));
}

// The added token has seven bytes, so its text of 700 bytes is 100 tokens and not 700.
TEST_F(RequestTest, AddedTokensCountAsOneHoweverLongTheyAre) {
    std::string text;
    for (int i = 0; i < 99; ++i) text += "<|end|>";
    wish_.set_text(text);
    wish_.set_max_tokens(1);
    EXPECT_EQ(create()->num_prompt_tokens(), 99);
}

TEST_F(RequestTest, ChunksHoldBackUnfinishedCharacters) {
    const auto request = create();
    EXPECT_EQ(token(*request, 0xC3).text(), "");
    EXPECT_EQ(token(*request, 0xA9).text(), "\u00e9");
    EXPECT_EQ(token(*request, 'x').text(), "x");
    EXPECT_EQ(token(*request, 0xE2).text(), "");
    EXPECT_EQ(request->on_end()->text(), "\ufffd");
}

TEST_F(RequestTest, ChunksCarryOnlyWhatWasAskedFor) {
    auto request = create();
    client::Chunk chunk = token(*request, 'x', -0.5F);
    EXPECT_EQ(chunk.num_tokens(), 1);
    EXPECT_TRUE(chunk.token_ids().empty());
    EXPECT_TRUE(chunk.logprobs().empty());
    wish_.set_return_token_ids(true);
    wish_.set_return_logprobs(true);
    request = create();
    chunk = token(*request, 'x', -0.5F);
    EXPECT_THAT(chunk.token_ids(), ElementsAre('x'));
    EXPECT_THAT(chunk.logprobs(), ElementsAre(-0.5F));
}

TEST_F(RequestTest, EndsByLengthOrByAStopToken) {
    wish_.set_max_tokens(2);
    auto request = create();
    token(*request, 'x');
    EXPECT_FALSE(request->is_complete());
    token(*request, 'y');
    EXPECT_TRUE(request->is_complete());
    EXPECT_EQ(request->finish_reason(), client::LENGTH);
    request = create();
    token(*request, kEndOfText);
    EXPECT_TRUE(request->is_complete());
    EXPECT_EQ(request->finish_reason(), client::STOP);
}

TEST_F(RequestTest, EndsBeforeAStopStringWhoseStartIsHeldBack) {
    wish_.add_stop("yz");
    wish_.add_stop("!");
    auto request = create();
    EXPECT_EQ(token(*request, 'x').text(), "x");
    EXPECT_EQ(token(*request, 'y').text(), "");
    EXPECT_EQ(token(*request, 'y').text(), "y");
    EXPECT_FALSE(request->is_complete());
    EXPECT_EQ(token(*request, 'z').text(), "");
    EXPECT_TRUE(request->is_text_over());
    EXPECT_TRUE(request->is_complete());
    client::Finished finished;
    finished.set_reason(request->finish_reason());
    request->describe_end(finished);
    EXPECT_EQ(finished.reason(), client::STOP);
    EXPECT_EQ(finished.matched_stop(), "yz");
    EXPECT_EQ(finished.num_output_tokens(), 4);
    // The worker has sampled on meanwhile.
    control::TokenEvent event;
    event.set_token('q');
    EXPECT_FALSE(request->on_token(event).value().has_value());
    EXPECT_EQ(request->num_output_tokens(), 4);
    EXPECT_FALSE(request->on_end().has_value());

    wish_.set_include_stop_str_in_output(true);
    request = create();
    EXPECT_EQ(token(*request, 'y').text(), "");
    EXPECT_EQ(token(*request, 'z').text(), "yz");
}

TEST_F(RequestTest, TextHeldBackForAStopStringComesAtTheEnd) {
    wish_.add_stop("yz");
    const auto request = create();
    token(*request, 'y');
    token(*request, kEndOfText);
    EXPECT_EQ(request->finish_reason(), client::STOP);
    EXPECT_EQ(request->on_end()->text(), "y");
    client::Finished finished;
    finished.set_reason(client::STOP);
    request->describe_end(finished);
    EXPECT_EQ(finished.matched_case(), client::Finished::MATCHED_NOT_SET);
}

// Two things wait at the end: the start of a stop string, and behind it half a character.
TEST_F(RequestTest, WhatWasHeldBackComesInItsOrder) {
    wish_.add_stop("yz");
    const auto request = create();
    token(*request, 'y');
    token(*request, 0xF0);
    token(*request, kEndOfText);
    EXPECT_EQ(request->on_end()->text(), "y\uFFFD");
}

TEST_F(RequestTest, StopStringsAreLookedForBehindMinTokens) {
    wish_.add_stop("x");
    wish_.set_min_tokens(2);
    const auto request = create();
    EXPECT_EQ(request->admit(1).min_tokens(), 2);
    EXPECT_EQ(token(*request, 'x').text(), "x");
    EXPECT_EQ(token(*request, 'x').text(), "x");
    EXPECT_FALSE(request->is_text_over());
    EXPECT_EQ(token(*request, 'x').text(), "");
    EXPECT_TRUE(request->is_text_over());
}

// Goal: a stop string counts where it is complete, also if it begins in the first min_tokens; the
// text ends before it. Oracle: written by hand.
TEST_F(RequestTest, AStopStringMayBeginInMinTokens) {
    wish_.add_stop("yz");
    wish_.set_min_tokens(3);
    const auto request = create();
    std::string text;
    for (const char c : std::string("yzyz")) {
        EXPECT_FALSE(request->is_text_over());
        text += token(*request, static_cast<uint32_t>(c)).text();
    }
    EXPECT_TRUE(request->is_text_over());
    EXPECT_EQ(text, "yz");
    EXPECT_FALSE(request->on_end().has_value());
    // What only begins there comes at the end.
    const auto cut = create();
    EXPECT_EQ(token(*cut, 'x').text(), "x");
    EXPECT_EQ(token(*cut, 'y').text(), "");
    EXPECT_EQ(cut->on_end()->text(), "y");
}

TEST_F(RequestTest, StopTokensOfTheClientEndItAlsoWithIgnoreEos) {
    wish_.add_stop_token_ids('!');
    wish_.set_ignore_eos(true);
    const auto request = create();
    EXPECT_THAT(request->admit(1).stop_ids(), ElementsAre('!'));
    token(*request, kEndOfText);
    EXPECT_FALSE(request->is_complete());
    EXPECT_EQ(token(*request, '!').text(), "");
    EXPECT_TRUE(request->is_complete());
    client::Finished finished;
    finished.set_reason(request->finish_reason());
    request->describe_end(finished);
    EXPECT_EQ(finished.matched_stop_token_id(), '!');
}

// Goal: a token that ends a text as the model's do is not told as matched, unless the client asked
// for it as a stop token, too.
TEST_F(RequestTest, EndTokensAreAsTheModelsOwn) {
    wish_.add_end_token_ids('!');
    wish_.add_end_token_ids('?');
    wish_.add_stop_token_ids('?');
    for (const auto& [end, is_told] : {std::pair{'!', false}, std::pair{'?', true}}) {
        const auto request = create();
        EXPECT_THAT(request->admit(1).end_ids(), ElementsAre(kEndOfText, '!', '?'));
        EXPECT_EQ(token(*request, static_cast<uint32_t>(end)).text(), "");
        EXPECT_TRUE(request->is_complete());
        client::Finished finished;
        finished.set_reason(request->finish_reason());
        request->describe_end(finished);
        EXPECT_EQ(finished.reason(), client::STOP);
        EXPECT_EQ(finished.has_matched_stop_token_id(), is_told) << end;
    }
    wish_.clear_stop_token_ids();
    wish_.set_ignore_eos(true);
    EXPECT_TRUE(create()->admit(1).stop_ids().empty());
    wish_.set_ignore_eos(false);
    wish_.set_end_token_ids(1, 257);
    EXPECT_EQ(refusal(), "end_token_ids[1] = 257: must be below the vocabulary size 257");
    for (int i = 0; i < 15; ++i) wish_.add_end_token_ids(1);
    EXPECT_EQ(refusal(), "end_token_ids has 17 ids: at most 16 are taken");
}

// Goal: a text that the tokenizer cannot split is wrong, not early: nobody is told to try it again.
TEST_F(RequestTest, ATextBeyondTheTokenizerIsTheClients) {
    model::Tokenizer doubling = make_byte_tokenizer(doubling_normalizer());
    model_.tokenizer = &doubling;
    EXPECT_THAT(refusal(), HasSubstr("the prompt cannot be tokenized: tokenizer.json replaces"));
    const auto ids = tokenize("abc", false, model_, TokenLimit(model_, kKvTokens));
    EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr("the text cannot be tokenized: "));
}

TEST_F(RequestTest, TopLogprobsAreWhatTheWorkerWasAskedFor) {
    wish_.set_top_logprobs(2);
    const auto request = create();
    EXPECT_EQ(request->admit(1).num_top_logprobs(), 2);
    control::TokenEvent event;
    event.set_token('x');
    EXPECT_THAT(request->on_token(event).error().message, HasSubstr("0 top_ids"));
    for (const uint32_t id : {7U, 9U}) {
        event.add_top_ids(id);
        event.add_top_logprobs(-static_cast<float>(id));
    }
    const client::Chunk chunk = *request->on_token(event).value();
    ASSERT_EQ(chunk.top_logprobs_size(), 1);
    EXPECT_THAT(chunk.top_logprobs(0).token_ids(), ElementsAre(7, 9));
    EXPECT_THAT(chunk.top_logprobs(0).logprobs(), ElementsAre(-7, -9));
}

TEST_F(RequestTest, SpecialTokensAreTextIfTheyAreAskedFor) {
    EXPECT_EQ(token(*create(), kEndOfText).text(), "");
    wish_.set_keep_special_tokens(true);
    wish_.set_ignore_eos(true);
    const auto request = create();
    EXPECT_EQ(token(*request, 0xC3).text(), "");
    EXPECT_EQ(token(*request, kEndOfText).text(), "\ufffd<|end|>");
    EXPECT_EQ(token(*request, 'x').text(), "x");
}

// Goal: the first word of a text that goes on with the prompt keeps the blank in front of it; that
// of an answer, and of a text that only a BOS is before, has none. Oracle: the two texts, side by
// side, are what a person would write.
TEST_F(RequestTest, ATextGoesOnWithThePromptOrBegins) {
    constexpr uint32_t kBegin = 0;
    constexpr uint32_t kWord = 260;
    model::Tokenizer words = model::parsed(model::character_json({"▁", "a", "▁a"}));
    model_.tokenizer = &words;
    model_.vocab_size = words.size();
    const auto text = [&](const std::vector<uint32_t>& prompt) {
        wish_.mutable_token_ids()->mutable_ids()->Assign(prompt.begin(), prompt.end());
        const auto request = create();
        std::string said = token(*request, kWord).text();
        return said += token(*request, kWord).text();
    };
    EXPECT_EQ(text({kBegin, kWord}), " a a");
    EXPECT_EQ(text({kBegin}), "a a");
    wish_.set_begins_text(true);
    EXPECT_EQ(text({kBegin, kWord}), "a a");
}

TEST_F(RequestTest, RefusalsOfEndsNameTheFieldAndTheLimit) {
    wish_.add_stop("");
    EXPECT_EQ(refusal(), "stop[0] has 0 bytes: it must have 1 to 256");
    wish_.set_stop(0, std::string(257, 'x'));
    EXPECT_EQ(refusal(), "stop[0] has 257 bytes: it must have 1 to 256");
    wish_.set_stop(0, "\xff");
    EXPECT_EQ(refusal(), "stop[0] is not valid UTF-8");
    wish_.clear_stop();
    for (int i = 0; i < 17; ++i) wish_.add_stop("x");
    EXPECT_EQ(refusal(), "stop has 17 strings: at most 16 are taken");
    wish_.clear_stop();
    wish_.add_stop_token_ids(257);
    EXPECT_EQ(refusal(), "stop_token_ids[0] = 257: must be below the vocabulary size 257");
    for (int i = 0; i < 128; ++i) wish_.add_stop_token_ids(1);
    EXPECT_EQ(refusal(), "stop_token_ids has 129 ids: at most 128 are taken");
    wish_.clear_stop_token_ids();
    wish_.set_min_tokens(11);
    EXPECT_EQ(refusal(), "min_tokens = 11: must be at most max_tokens = 10");
    wish_.set_min_tokens(10);
    wish_.set_top_logprobs(21);
    EXPECT_EQ(refusal(), "top_logprobs = 21: must be at most 20");
    wish_.set_top_logprobs(20);
    create();
}

TEST_F(RequestTest, WhatAWorkerMustNotSendIsAnError) {
    wish_.set_max_tokens(1);
    const auto request = create();
    control::TokenEvent event;
    event.set_token(kByteVocabulary);
    EXPECT_EQ(request->on_token(event).error().code, Code::kInternal);
    token(*request, 'x');
    event.set_token('y');
    EXPECT_THAT(request->on_token(event).error().message, HasSubstr("number 2 of 1"));
}

TEST_F(RequestTest, ResponseFormatGoesToTheWorkerAndIsJudgedBefore) {
    ResponseFormat& format = *wish_.mutable_sampling()->mutable_response_format();
    format.set_json_schema(R"({"type": "integer"})");
    EXPECT_EQ(create()->admit(1).sampling().response_format().json_schema(),
              R"({"type": "integer"})");
    EXPECT_THAT(create()->admit(1).end_ids(), ElementsAre(kEndOfText));
    format.set_json_schema(R"({"multipleOf": 3})");
    EXPECT_THAT(refusal(),
                HasSubstr(R"(response_format is refused: json_schema: #: "multipleOf")"));
    format.set_json_object(true);
    wish_.set_ignore_eos(true);
    EXPECT_EQ(refusal(),
              "response_format is given, and so is ignore_eos: what is complete has to end");
    wish_.set_ignore_eos(false);
    model_.stop_ids.clear();
    EXPECT_THAT(refusal(), HasSubstr("and the model has no end token"));
    model_.stop_ids = {kEndOfText};
    model_.tokenizer = nullptr;
    EXPECT_THAT(refusal(), HasSubstr("response_format is not supported: this model has no"));
}

// Also by a model that nobody has asked for a format yet.
TEST_F(RequestTest, EmptyResponseFormatIsRefused) {
    ResponseFormat& format = *wish_.mutable_sampling()->mutable_response_format();
    EXPECT_THAT(refusal(), HasSubstr("response_format is empty"));
    format.set_json_object(true);
    create();
    format.Clear();
    EXPECT_THAT(refusal(), HasSubstr("response_format is empty"));
}

TEST_F(RequestTest, ReplayStartsBehindTheTokensAlreadySent) {
    const auto request = create();
    token(*request, 'x');
    token(*request, 'y');
    const control::Admit admit = request->admit(7);
    EXPECT_THAT(admit.tokens(), ElementsAre('a', 'b', 'c', 'x', 'y'));
    EXPECT_EQ(admit.num_prompt_tokens(), 3);
    EXPECT_EQ(admit.max_total_tokens(), 13);
}

TEST_F(RequestTest, PromptLogprobsAreSentOnceAcrossAReplay) {
    wish_.set_text("abcdef");
    wish_.set_prompt_logprobs(true);
    const auto request = create();
    EXPECT_THAT(prompt_logprobs(*request, 1, {-1, -2})->prompt_logprobs(), ElementsAre(-1, -2));
    EXPECT_TRUE(request->admit(1).prompt_logprobs());
    // The worker died here; its successor computes all of them again.
    EXPECT_THAT(prompt_logprobs(*request, 1, {-1, -2, -3})->prompt_logprobs(), ElementsAre(-3));
    EXPECT_THAT(prompt_logprobs(*request, 4, {-4, -5, -6})->prompt_logprobs(), ElementsAre(-4, -5));
    EXPECT_FALSE(prompt_logprobs(*request, 1, {-1, -2, -3, -4, -5}).has_value());
    EXPECT_FALSE(request->admit(1).prompt_logprobs());
}

TEST_F(RequestTest, PromptTokensHaveTheirTopLogprobsToo) {
    wish_.set_text("abcd");
    wish_.set_prompt_logprobs(true);
    wish_.set_top_logprobs(2);
    const auto request = create();
    control::PromptLogprobsEvent event;
    event.set_first_position(1);
    for (const float value : {-1.0F, -2.0F}) event.add_values(value);
    EXPECT_THAT(request->on_prompt_logprobs(event).error().message,
                HasSubstr("0 top_ids and 0 top_logprobs, not 4"));
    for (const uint32_t id : {7U, 9U, 5U, 6U}) {
        event.add_top_ids(id);
        event.add_top_logprobs(-static_cast<float>(id));
    }
    const client::Chunk chunk = *request->on_prompt_logprobs(event).value();
    ASSERT_EQ(chunk.prompt_top_logprobs_size(), 2);
    EXPECT_THAT(chunk.prompt_top_logprobs(0).token_ids(), ElementsAre(7, 9));
    EXPECT_THAT(chunk.prompt_top_logprobs(1).token_ids(), ElementsAre(5, 6));
    EXPECT_THAT(chunk.prompt_top_logprobs(1).logprobs(), ElementsAre(-5, -6));
}

TEST_F(RequestTest, ModelWithoutTokenizerTakesIdsOnly) {
    model_.tokenizer = nullptr;
    wish_.add_stop("x");
    EXPECT_THAT(refusal(), HasSubstr("use stop_token_ids"));
    wish_.clear_stop();
    EXPECT_THAT(refusal(), HasSubstr("send the prompt as token_ids"));
    wish_.mutable_token_ids()->add_ids(5);
    const auto request = create();
    EXPECT_EQ(token(*request, 'x').text(), "");
    EXPECT_FALSE(request->on_end().has_value());
}

// Goal: where every layer has a window, the cache bounds what a request holds at a time, not its
// length; unless it has no room for a window.
TEST_F(RequestTest, WithAWindowARequestMayBeLongerThanTheCache) {
    model_.context_length = 4096;
    EXPECT_EQ(TokenLimit(model_, 1024).tokens, 1024u);
    EXPECT_THAT(shortened_context(4096, TokenLimit(model_, 1024)),
                HasSubstr("a request may have 1024 tokens, prompt and answer together, of the "
                          "model's context of 4096: kv_tokens"));
    EXPECT_EQ(shortened_context(4096, TokenLimit(model_, 4096)), "");
    model_.window = 256;
    EXPECT_EQ(TokenLimit(model_, 1024).tokens, 4096u);
    EXPECT_STREQ(TokenLimit(model_, 1024).what, "the context length of the model");
    // 256 positions, 512 under way and a block.
    EXPECT_EQ(TokenLimit(model_, 832).tokens, 4096u);
    EXPECT_EQ(TokenLimit(model_, 831).tokens, 831u);
    EXPECT_STREQ(TokenLimit(model_, 831).what, "the KV cache of an attention worker (kv_tokens)");
}

}  // namespace
}  // namespace afd::daemon

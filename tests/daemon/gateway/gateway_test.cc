// SPDX-License-Identifier: Apache-2.0
//
// How requests are served; how they end otherwise: gateway_ends_test.
#include "daemon/gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/gateway/gateway_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(GatewayTest, StreamsTextInWholeCharacters) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 4));
    const auto [session, message] = next_sent();
    ASSERT_TRUE(message.has_admit());
    EXPECT_THAT(message.admit().tokens(), ElementsAre('a', 'b', 'c'));
    const uint64_t id = message.admit().sequence_id();

    say_text(session, id, "x\xc3");
    expect_answer(client, 5, client::Response::kChunk);
    say_text(session, id, "\xa9y");
    say_end(session, id);
    expect_answer(client, 5, client::Response::kFinished);

    EXPECT_EQ(client.answers.front().accepted().num_prompt_tokens(), 3);
    EXPECT_EQ(client.text(5), "x\u00e9y");
    for (const auto& answer : client.answers) EXPECT_NE(answer.chunk().text(), "\xc3");
    EXPECT_EQ(client.last(5)->finished().reason(), client::LENGTH);
    EXPECT_EQ(client.last(5)->finished().num_output_tokens(), 4);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->num_finished(), 1U);
}

TEST_F(GatewayTest, ReplaysTheRequestsOfADeadWorkerWithoutADuplicateOrAGap) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 6));
    const auto first = next_sent();
    const uint64_t id = first.second.admit().sequence_id();
    say_text(0, id, "uv\xc3");
    gateway_->on_attention_gone(0, {});
    gateway_->on_attention_ready(1, 1024);

    const auto [session, message] = next_sent();
    EXPECT_EQ(session, 1U);
    EXPECT_EQ(message.admit().sequence_id(), id);
    EXPECT_THAT(message.admit().tokens(), ElementsAre('a', 'b', 'c', 'u', 'v', 0xC3));
    EXPECT_EQ(message.admit().num_prompt_tokens(), 3);
    EXPECT_EQ(message.admit().sampling().seed(), 3);
    say_text(0, id, "!");  // A late word of the old session counts for nothing.
    say_text(1, id, "\xa9yz");
    say_end(1, id);
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.text(5), "uv\u00e9yz");
    EXPECT_EQ(client.last(5)->finished().num_output_tokens(), 6);
}

TEST_F(GatewayTest, RequestWhoseLastTokenWasSentBeforeTheDeathIsFinished) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 6));
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_token(0, id, 'x');
    say_token(0, id, kEndOfText);
    gateway_->on_attention_gone(0, {});
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.last(5)->finished().reason(), client::STOP);
    gateway_->on_attention_ready(0, 1024);
    EXPECT_EQ(instance_.sent.size(), 1U) << "there was nothing to replay";
}

TEST_F(GatewayTest, CancelOfARunningRequestEndsWhenTheWorkerSaysSo) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 6));
    const uint64_t id = next_sent().second.admit().sequence_id();
    client::Request cancel;
    cancel.set_request_id(6);
    cancel.mutable_cancel()->set_target(5);
    client.send(cancel);
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), id);
    expect_answer(client, 6, client::Response::kDone);
    say_text(0, id, "late");
    EXPECT_EQ(gateway_->num_sequences(0), 1U);
    say_end(0, id, Code::kCancelled);
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.last(5)->finished().reason(), client::CANCELLED);
    EXPECT_EQ(client.text(5), "");
    EXPECT_EQ(client.last(5)->finished().num_output_tokens(), 0U) << "more than it heard";
    EXPECT_EQ(gateway_->num_sequences(0), 0U);
}

TEST_F(GatewayTest, CachedTokensAreThoseOfTheFirstWorkerAndOfThePrompt) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, std::string(100, 'x'), 200));
    const uint64_t id = next_sent().second.admit().sequence_id();
    const auto say_started = [&](uint32_t session, uint32_t num_cached_tokens) {
        control::Events events;
        events.add_started()->set_sequence_id(id);
        events.mutable_started(0)->set_num_cached_tokens(num_cached_tokens);
        gateway_->on_events(session, events);
    };
    say_started(0, 64);
    EXPECT_EQ(gateway_->requests().num_cached_tokens, 64u);
    say_text(0, id, std::string(50, 'y'));
    gateway_->on_attention_gone(0, {});
    gateway_->on_attention_ready(1, 1024);
    say_started(1, 128);
    say_token(1, id, kEndOfText);
    say_end(1, id);
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.last(5)->finished().num_cached_tokens(), 64);
    EXPECT_EQ(gateway_->requests().num_prompt_tokens, 100u);
    EXPECT_EQ(gateway_->requests().num_cached_tokens, 64u);
}

TEST_F(GatewayTest, StopStringEndsTheRequestOnBothSides) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(5, "abc", 9);
    request.mutable_generate()->add_stop("yz");
    client.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_text(0, id, "xyz");
    const auto [session, message] = next_sent();
    EXPECT_EQ(message.cancel().sequence_id(), id) << "the worker goes on until it is told";
    say_text(0, id, "more");
    EXPECT_FALSE(instance_.has_next()) << "it is told once";
    say_end(0, id, Code::kCancelled);
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.text(5), "x");
    EXPECT_EQ(client.last(5)->finished().reason(), client::STOP);
    EXPECT_EQ(client.last(5)->finished().matched_stop(), "yz");
    EXPECT_EQ(client.last(5)->finished().num_output_tokens(), 3);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
}

TEST_F(GatewayTest, StoppedRequestOfADeadWorkerIsFinishedNotReplayed) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(5, "abc", 9);
    request.mutable_generate()->add_stop("y");
    client.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_text(0, id, "xy");
    next_sent();
    gateway_->on_attention_gone(0, {});
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.last(5)->finished().reason(), client::STOP);
    gateway_->on_attention_ready(0, 1024);
    EXPECT_FALSE(instance_.has_next());
}

// A stop string may span the death: its start was held back and never left.
TEST_F(GatewayTest, StopStringIsFoundAcrossAReplay) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(5, "abc", 9);
    request.mutable_generate()->add_stop("yz");
    client.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_text(0, id, "xy");
    gateway_->on_attention_gone(0, {});
    gateway_->on_attention_ready(1, 1024);
    EXPECT_EQ(next_sent().second.admit().tokens_size(), 5);
    say_text(1, id, "z");
    EXPECT_TRUE(next_sent().second.has_cancel());
    say_end(1, id, Code::kCancelled);
    expect_answer(client, 5, client::Response::kFinished);
    EXPECT_EQ(client.text(5), "x");
}

TEST_F(GatewayTest, TokenizesAndDetokenizes) {
    TestClient client(loop_, *gateway_);
    client::Request request;
    request.set_request_id(1);
    request.mutable_tokenize()->set_text("a<|end|>\u00e9");
    client.send(request);
    expect_answer(client, 1, client::Response::kTokens);
    EXPECT_THAT(client.last(1)->tokens().ids(), ElementsAre('a', kEndOfText, 0xC3, 0xA9));
    EXPECT_EQ(client.last(1)->tokens().context_length(), 4096);

    request.set_request_id(2);
    for (const uint32_t id : {uint32_t{'a'}, kEndOfText, 0xC3U, 0xA9U, 0xFFU}) {
        request.mutable_detokenize()->mutable_token_ids()->add_ids(id);
    }
    client.send(request);
    expect_answer(client, 2, client::Response::kText);
    EXPECT_EQ(client.last(2)->text().text(), "a\u00e9\ufffd");

    request.set_request_id(3);
    request.mutable_detokenize()->mutable_token_ids()->add_ids(kByteVocabulary);
    client.send(request);
    expect_answer(client, 3, client::Response::kError);
    EXPECT_EQ(client.last(3)->error().message(),
              "token_ids[5] = 257: must be below the vocabulary size 257");

    request.set_request_id(4);
    for (int i = 0; i < 4096; ++i) request.mutable_detokenize()->mutable_token_ids()->add_ids(1);
    client.send(request);
    expect_answer(client, 4, client::Response::kError);
    EXPECT_THAT(client.last(4)->error().message(), HasSubstr("4102 ids: at most 4096"));

    request.set_request_id(5);
    request.mutable_tokenize()->set_text(std::string(5000, 'x'));
    client.send(request);
    expect_answer(client, 5, client::Response::kError);
    EXPECT_THAT(client.last(5)->error().message(), HasSubstr("at most 4096 fit"));
}

TEST_F(GatewayTest, FullQueueAndWrongRequestsAreRefusedWithTheReason) {
    TestClient client(loop_, *gateway_);
    client.send(generate(4, "abc", 2000));
    expect_answer(client, 4, client::Response::kError);
    EXPECT_THAT(client.last(4)->error().message(), HasSubstr("at most 1024 fit"));
    for (uint64_t id = 1; id <= 3; ++id) client.send(generate(id, "abc", 5));
    expect_answer(client, 3, client::Response::kError);
    EXPECT_EQ(client.last(3)->error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    client.send(generate(1, "abc", 5));
    expect_answer(client, 1, client::Response::kError);
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("request_id 1 is in flight"));
    client::Request empty;
    empty.set_request_id(9);
    client.send(empty);
    expect_answer(client, 9, client::Response::kError);
}

TEST_F(GatewayTest, BadBytesCostOnlyTheirConnection) {
    TestClient bad(loop_, *gateway_);
    TestClient good(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    good.send(generate(1, "abc", 1));
    const uint64_t id = next_sent().second.admit().sequence_id();
    bad.send_bytes(std::string("\xff\xff\xff\xff garbage", 12));
    ASSERT_TRUE(run_until(loop_, [&] {
        bad.receive();
        return bad.is_closed;
    }));
    ASSERT_EQ(bad.answers.size(), 1U);
    EXPECT_EQ(bad.answers[0].error().code(), static_cast<uint32_t>(Code::kDataLoss));
    say_text(0, id, "x");
    say_end(0, id);
    expect_answer(good, 1, client::Response::kFinished);
}

// Goal: a client with thousands of requests keeps nobody from being served. Method: one asks for
// more than it may have, then another asks; requests end one by one. Oracle: what is refused says
// why, and the other's request is the next to run but one.
TEST_F(GatewayTest, ManyRequestsOfOneClientCostAnotherOneTurn) {
    TestClient greedy(loop_, *gateway_);
    TestClient other(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    for (uint64_t id = 1; id <= 9; ++id) greedy.send(generate(id, "abc", 2));
    expect_answer(greedy, 9, client::Response::kError);
    EXPECT_THAT(greedy.last(9)->error().message(), HasSubstr("connection_requests_max = 8"));
    std::vector<uint64_t> running;
    for (int i = 0; i < 8; ++i) running.push_back(next_sent().second.admit().sequence_id());
    EXPECT_FALSE(instance_.has_next());
    other.send(generate(1, "other", 2));
    expect_answer(other, 1, client::Response::kAccepted);
    for (const char c : {'x', 'y'}) say_token(0, running[0], static_cast<uint8_t>(c));
    say_end(0, running[0]);
    const uint64_t next = next_sent().second.admit().sequence_id();
    say_text(0, next, "zz");
    say_end(0, next);
    expect_answer(other, 1, client::Response::kFinished);
}

// Goal: a client that waits for tokens learns at once that afdd lives. Oracle: the answer, while
// the request is still queued.
TEST_F(GatewayTest, APingIsAnsweredWhileARequestWaits) {
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 2));
    client::Request ping;
    ping.set_request_id(2);
    ping.mutable_ping();
    client.send(ping);
    expect_answer(client, 2, client::Response::kDone);
    EXPECT_EQ(client.last(1)->body_case(), client::Response::kAccepted);
}

TEST_F(GatewayTest, StatusTellsWhatRunsAndWhatIsReserved) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 256);
    client.send(generate(1, "abc", 100));
    client.send(generate(2, "abc", 250));
    client::Request status;
    status.set_request_id(3);
    status.mutable_status();
    client.send(status);
    expect_answer(client, 3, client::Response::kStatus);
    const client::Status& told = client.last(3)->status();
    EXPECT_EQ(told.state(), "starting");
    EXPECT_EQ(told.num_running(), 1);
    EXPECT_EQ(told.num_queued(), 1);
    ASSERT_EQ(told.workers_size(), 1);
    EXPECT_EQ(told.workers(0).num_sequences(), 1);
    EXPECT_EQ(told.workers(0).kv_tokens_used(), 128);
    EXPECT_EQ(told.workers(0).kv_tokens_total(), 256);
    instance_.state = "ready";
    client.send(status);
    client.answers.clear();
    expect_answer(client, 3, client::Response::kStatus);
    EXPECT_EQ(client.last(3)->status().state(), "ready");
    gateway_->drain();
    client.send(status);
    client.answers.clear();
    expect_answer(client, 3, client::Response::kStatus);
    EXPECT_EQ(client.last(3)->status().state(), "draining");
}

TEST_F(GatewayTest, PromptLogprobsComeBeforeTokensAndOnce) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(1, "abcd", 1);
    request.mutable_generate()->set_prompt_logprobs(true);
    client.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    control::Events events;
    control::PromptLogprobsEvent& logprobs = *events.add_prompt_logprobs();
    logprobs.set_sequence_id(id);
    logprobs.set_first_position(1);
    logprobs.add_values(-1);
    logprobs.add_values(-2);
    gateway_->on_events(0, events);
    gateway_->on_attention_gone(0, {});
    gateway_->on_attention_ready(0, 1024);
    logprobs.add_values(-3);
    gateway_->on_events(0, events);
    say_text(0, id, "x");
    say_end(0, id);
    expect_answer(client, 1, client::Response::kFinished);
    std::vector<float> values;
    for (const auto& answer : client.answers) {
        for (const float value : answer.chunk().prompt_logprobs()) values.push_back(value);
    }
    EXPECT_THAT(values, ElementsAre(-1, -2, -3));
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The gateway over scripted attention workers: the test sees what they are told, and says what
// they answer.
class GatewayTest : public testing::Test {
  protected:
    GatewayTest() : tokenizer_(make_byte_tokenizer()) {
        config_.instance = "test";
        config_.attention_workers = 2;
        config_.kv_tokens = 1024;
        config_.max_sequences = 8;
        config_.max_queue = 2;
        config_.connections_max = 100;
        config_.connection_requests_max = 8;
        config_.output_buffer_kib = 64;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
    }

    void expect_answer(TestClient& client, uint64_t request_id, client::Response::BodyCase body) {
        ASSERT_TRUE(run_until(loop_,
                              [&] {
                                  client.receive();
                                  const auto* last = client.last(request_id);
                                  return last != nullptr && last->body_case() == body;
                              }))
            << "request " << request_id << " never got an answer of kind " << body;
    }

    // Waits for the next message to a worker and returns it.
    ScriptedInstance::Sent next_sent() {
        EXPECT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
        return instance_.next();
    }

    void say_token(uint32_t session, uint64_t id, uint32_t token) {
        gateway_->on_events(session, token_event(id, token));
    }

    void say_text(uint32_t session, uint64_t id, const std::string& text) {
        for (const char c : text) say_token(session, id, static_cast<uint8_t>(c));
    }

    void say_end(uint32_t session,
                 uint64_t id,
                 Code code = Code::kOk,
                 const std::string& message = "") {
        gateway_->on_events(session, end_event(id, code, message));
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

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
    gateway_->on_attention_gone(0);
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
    gateway_->on_attention_gone(0);
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
    EXPECT_EQ(gateway_->num_sequences(0), 0U);
}

TEST_F(GatewayTest, CancelledRequestOfADeadWorkerIsNotReplayed) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 6));
    next_sent();
    client.close();
    EXPECT_TRUE(next_sent().second.has_cancel());
    gateway_->on_attention_gone(0);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
}

TEST_F(GatewayTest, DisconnectCancelsWhatRunsAndWhatWaits) {
    TestClient client(loop_, *gateway_);
    TestClient other(loop_, *gateway_);
    gateway_->on_attention_ready(0, 128);
    client.send(generate(1, "abc", 120));
    const uint64_t id = next_sent().second.admit().sequence_id();
    client.send(generate(2, "abc", 120));
    expect_answer(client, 2, client::Response::kAccepted);
    other.send(generate(1, "xyz", 100));
    expect_answer(other, 1, client::Response::kAccepted);
    client.close();
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), id);
    EXPECT_EQ(gateway_->num_in_flight(), 2U) << "the waiting one ended at once";
    say_end(0, id, Code::kCancelled);
    EXPECT_THAT(next_sent().second.admit().tokens(), ElementsAre('x', 'y', 'z'));
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

TEST_F(GatewayTest, WorkersErrorReachesTheClient) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(1, "abc", 5));
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_end(0, id, Code::kDeadlineExceeded, "round 7 waited for ffn worker 0");
    expect_answer(client, 1, client::Response::kError);
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("round 7 waited for ffn worker 0"));
    EXPECT_EQ(gateway_->num_failed(), 1U);
}

TEST_F(GatewayTest, EndBeforeTheLastTokenIsAnError) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(1, "abc", 5));
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_text(0, id, "xy");
    say_end(0, id);
    expect_answer(client, 1, client::Response::kError);
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kInternal));
}

TEST_F(GatewayTest, TokenOutsideTheVocabularyEndsTheRequestOnBothSides) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(1, "abc", 5));
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_token(0, id, 100000);
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), id);
    expect_answer(client, 1, client::Response::kError);
}

TEST_F(GatewayTest, SlowReaderLosesItsRequestsWithAnError) {
    TestClient slow(loop_, *gateway_);
    TestClient good(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(1, "abc", 500);
    request.mutable_generate()->set_prompt_logprobs(true);
    slow.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    good.send(generate(1, "abc", 1));
    const uint64_t good_id = next_sent().second.admit().sequence_id();
    // Nobody reads: the socket fills, then the buffer, then it is enough. Sends no more at once
    // than a turn of the loop takes: the other direction must not fill.
    ASSERT_TRUE(run_until(loop_, [&] {
        if (instance_.has_next()) return true;
        client::Request status;
        status.set_request_id(2);
        status.mutable_status();
        for (int i = 0; i < 20; ++i) slow.send(status);
        return false;
    }));
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), id);
    say_text(0, good_id, "x");
    say_end(0, good_id);
    expect_answer(good, 1, client::Response::kFinished);
    expect_answer(slow, 1, client::Response::kError);
    EXPECT_THAT(slow.last(1)->error().message(), HasSubstr("reads too slowly"));
    say_end(0, id, Code::kCancelled);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
}

TEST_F(GatewayTest, DrainFinishesWhatRunsAndRefusesTheRest) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(1, "abc", 2));
    const uint64_t id = next_sent().second.admit().sequence_id();
    client::Request drain;
    drain.set_request_id(2);
    drain.mutable_drain();
    client.send(drain);
    client.send(generate(3, "abc", 2));
    expect_answer(client, 3, client::Response::kError);
    EXPECT_EQ(client.last(3)->error().code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    EXPECT_EQ(client.last(2), nullptr);
    gateway_->drain();
    EXPECT_EQ(instance_.num_drains, 0);
    say_text(0, id, "xy");
    say_end(0, id);
    EXPECT_EQ(instance_.num_drains, 1);
    expect_answer(client, 1, client::Response::kFinished);
    expect_answer(client, 2, client::Response::kDone);
}

TEST_F(GatewayTest, StopIsAnsweredAndPassedOn) {
    TestClient client(loop_, *gateway_);
    client::Request stop;
    stop.set_request_id(8);
    stop.mutable_stop();
    client.send(stop);
    expect_answer(client, 8, client::Response::kDone);
    EXPECT_EQ(instance_.num_stops, 1);
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

TEST_F(GatewayTest, FailAllEndsEveryRequestWithTheError) {
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 2));
    expect_answer(client, 1, client::Response::kAccepted);
    gateway_->fail_all({Code::kUnavailable, "afdd is ending"});
    expect_answer(client, 1, client::Response::kError);
    EXPECT_EQ(client.last(1)->error().message(), "afdd is ending");
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
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
    gateway_->on_attention_gone(0);
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

// SPDX-License-Identifier: Apache-2.0
//
// Requests that end otherwise than with their last token: by their client, a worker, a deadline,
// or the end of the instance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/flight/deadlines.h"
#include "tests/daemon/gateway/gateway_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(GatewayTest, CancelledRequestOfADeadWorkerIsNotReplayed) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(5, "abc", 6));
    next_sent();
    client.close();
    EXPECT_TRUE(next_sent().second.has_cancel());
    gateway_->on_attention_gone(0, {});
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

// Goal: the metrics count what clients hear. Method: a stop string that is one only at the end of
// the text, when the last token leaves a character unfinished.
TEST_F(GatewayTest, AStopAtTheEndOfTheTextIsCountedAsOne) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    client::Request request = generate(1, "abc", 2);
    request.mutable_generate()->add_stop("a\xef\xbf\xbd");
    client.send(request);
    const uint64_t id = next_sent().second.admit().sequence_id();
    say_text(0, id, "a\xe4");
    say_end(0, id);
    expect_answer(client, 1, client::Response::kFinished);
    EXPECT_EQ(client.last(1)->finished().reason(), client::STOP);
    EXPECT_EQ(client.text(1), "");
    EXPECT_EQ(gateway_->requests().ends.at(client::STOP), 1U);
    EXPECT_EQ(gateway_->requests().ends.at(client::LENGTH), 0U);
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
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kInternal));
    EXPECT_EQ(gateway_->num_in_flight(), 1U) << "its worker has not let go of it";
    say_token(0, id, 100000);
    EXPECT_FALSE(instance_.has_next());
    say_end(0, id);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->num_failed(), 1U);
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
    // Nobody reads: the socket fills, then the buffer, then it is enough. The other direction may
    // fill as well, where a turn of the loop takes less than it is sent.
    ASSERT_TRUE(run_until(loop_, [&] {
        if (instance_.has_next()) return true;
        client::Request status;
        status.set_request_id(2);
        status.mutable_status();
        for (int i = 0; i < 20 && slow.try_send(status); ++i) continue;
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
    EXPECT_EQ(gateway_->status().num_refused(), 1U);
    EXPECT_EQ(client.last(2), nullptr);
    gateway_->drain();
    EXPECT_EQ(instance_.num_drains, 0);
    say_text(0, id, "xy");
    say_end(0, id);
    EXPECT_EQ(instance_.num_drains, 1);
    expect_answer(client, 1, client::Response::kFinished);
    expect_answer(client, 2, client::Response::kDone);
}

// Goal: who waits for a drain hears what it cost. Method: afdd ends while two requests are
// in flight. Oracle: their number.
TEST_F(GatewayTest, ADrainThatIsCutOffSaysHowManyRequestsWere) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 64);
    client.send(generate(1, "abc", 6));
    client.send(generate(2, "abc", 6));
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->num_in_flight() == 2; }));
    TestClient observer(loop_, *gateway_);
    client::Request drain;
    drain.set_request_id(1);
    drain.mutable_drain();
    observer.send(drain);
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->status().state() == "draining"; }));
    gateway_->drain();
    gateway_->fail_all({Code::kUnavailable, "afdd is ending"});
    expect_answer(observer, 1, client::Response::kError);
    EXPECT_EQ(observer.last(1)->error().message(), "2 requests had not finished, and were cut off");
    EXPECT_EQ(observer.last(1)->error().code(), static_cast<uint32_t>(Code::kUnavailable));
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

// Goal: a request ends at its deadline wherever it is. Method: one runs and one waits for room; a
// third without a deadline waits behind it. Oracle: what each client hears; the worker is told to
// stop, and the room is taken until it has.
TEST_F(GatewayTest, RequestsEndAtTheirDeadlineWhetherTheyRunOrWait) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 64);
    client::Request running = generate(1, "abc", 6);
    running.mutable_generate()->set_timeout_ms(400);
    client.send(running);
    const uint64_t id = next_sent().second.admit().sequence_id();
    gateway_->on_events(0, started_event(id));
    say_text(0, id, "de");
    client::Request waiting = generate(2, "abc", 6);
    waiting.mutable_generate()->set_timeout_ms(20);
    client.send(waiting);
    client.send(generate(3, "abc", 6));
    expect_answer(client, 2, client::Response::kError);
    EXPECT_EQ(client.last(2)->error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    EXPECT_EQ(client.last(2)->error().message(),
              "the request has taken longer than its 20 ms (timeout_ms, or request_timeout_ms of "
              "the instance): it has waited in the queue until now; ask for less, or give it more");
    EXPECT_FALSE(instance_.has_next()) << "no worker has it";
    expect_answer(client, 1, client::Response::kError);
    EXPECT_THAT(client.last(1)->error().message(),
                testing::MatchesRegex(".* than its 400 ms .*, and 2 tokens were generated; .*"));
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), id);
    EXPECT_EQ(gateway_->num_sequences(0), 1U);
    say_text(0, id, "late");
    say_end(0, id, Code::kCancelled);
    EXPECT_TRUE(next_sent().second.has_admit()) << "the third has the room";
    client.receive();
    EXPECT_EQ(client.last(1)->body_case(), client::Response::kError) << "nothing comes behind it";
    EXPECT_EQ(client.last(3)->body_case(), client::Response::kAccepted);
    EXPECT_EQ(gateway_->num_failed(), 2U);
}

TEST_F(GatewayTest, DeadlineOfTheInstanceBoundsThatOfARequest) {
    EXPECT_EQ(Deadlines::timeout_ms(0, 0), 0U);
    EXPECT_EQ(Deadlines::timeout_ms(5, 0), 5U);
    EXPECT_EQ(Deadlines::timeout_ms(0, 7), 7U);
    EXPECT_EQ(Deadlines::timeout_ms(5, 7), 5U);
    EXPECT_EQ(Deadlines::timeout_ms(9, 7), 7U);
    config_.request_timeout_ms = 20;
    TestClient client(loop_, *gateway_);
    client::Request patient = generate(1, "abc", 6);
    patient.mutable_generate()->set_timeout_ms(UINT32_MAX);
    client.send(patient);
    client.send(generate(2, "abc", 6));
    expect_answer(client, 1, client::Response::kError);
    expect_answer(client, 2, client::Response::kError);
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("longer than its 20 ms"));
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
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

}  // namespace
}  // namespace afd::daemon

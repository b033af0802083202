// SPDX-License-Identifier: Apache-2.0
//
// Requests whose worker says that they have given way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/gateway.h"
#include "tests/daemon/gateway/gateway_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kScarceTokens = 1024;
constexpr uint32_t kManyTokens = 900;

class GatewayPreemptionTest : public GatewayTest {
  protected:
    // Two requests without an end in sight run on the only worker; the first leaves no room.
    void begin(TestClient& client, const client::Request& second) {
        gateway_->on_attention_ready(0, kScarceTokens);
        client.send(generate(1, "abc", kManyTokens));
        client.send(second);
        for (uint64_t& id : ids_) {
            const auto [session, message] = next_sent();
            ASSERT_TRUE(message.has_admit());
            EXPECT_EQ(message.admit().reserved_tokens(), 3 + Reservation::kStepTokens);
            EXPECT_EQ(message.admit().max_total_tokens(), 3 + kManyTokens);
            id = message.admit().sequence_id();
        }
        say_text(0, ids_[0], std::string(700, 'x'));
    }

    void say_gave_way(uint64_t id) {
        control::Events events = end_event(id, Code::kCancelled, "");
        events.mutable_ends(0)->set_gave_way(true);
        gateway_->on_events(0, events);
    }

    void end_first() {
        say_token(0, ids_[0], kEndOfText);
        say_end(0, ids_[0]);
    }

    uint64_t ids_[2] = {};
};

TEST_F(GatewayPreemptionTest, ItWaitsInFrontAndGoesOnBehindItsTokens) {
    TestClient client(loop_, *gateway_);
    begin(client, generate(2, "def", kManyTokens));
    client.send(generate(3, "ghi", 5));
    expect_answer(client, 3, client::Response::kAccepted);
    EXPECT_FALSE(instance_.has_next()) << "it has no room";
    say_text(0, ids_[1], "uv\xc3");
    say_gave_way(ids_[1]);
    EXPECT_FALSE(instance_.has_next()) << "nor has who came before it";
    EXPECT_EQ(gateway_->status().num_queued(), 2U);
    EXPECT_EQ(gateway_->status().num_preemptions(), 1U);
    EXPECT_EQ(gateway_->requests().num_preemptions, 1U);
    EXPECT_EQ(gateway_->requests().num_replays, 0U);
    say_text(0, ids_[1], "!");  // Nobody has it now.

    end_first();
    const auto message = next_sent().second;
    EXPECT_EQ(message.admit().sequence_id(), ids_[1]);
    EXPECT_THAT(message.admit().tokens(), ElementsAre('d', 'e', 'f', 'u', 'v', 0xC3));
    EXPECT_EQ(message.admit().num_prompt_tokens(), 3);
    EXPECT_EQ(message.admit().reserved_tokens(), 6 + Reservation::kStepTokens);
    EXPECT_EQ(message.admit().sampling().seed(), 3);
    EXPECT_EQ(next_sent().second.admit().max_total_tokens(), 8U);
    say_text(0, ids_[1], "\xa9z");
    say_token(0, ids_[1], kEndOfText);
    say_end(0, ids_[1]);
    expect_answer(client, 2, client::Response::kFinished);
    EXPECT_EQ(client.text(2), "uv\u00e9z");
    EXPECT_EQ(client.last(2)->finished().reason(), client::STOP);
    EXPECT_EQ(client.last(2)->finished().num_output_tokens(), 6U);
}

TEST_F(GatewayPreemptionTest, ACancelWhileItWaitsEndsIt) {
    TestClient client(loop_, *gateway_);
    begin(client, generate(2, "def", kManyTokens));
    say_text(0, ids_[1], "uv");
    say_gave_way(ids_[1]);
    client::Request cancel;
    cancel.set_request_id(9);
    cancel.mutable_cancel()->set_target(2);
    client.send(cancel);
    expect_answer(client, 2, client::Response::kFinished);
    EXPECT_EQ(client.last(2)->finished().reason(), client::CANCELLED);
    EXPECT_EQ(client.last(2)->finished().num_output_tokens(), 2U);
    EXPECT_FALSE(instance_.has_next()) << "no worker has it";
    EXPECT_EQ(gateway_->num_in_flight(), 1U);
}

TEST_F(GatewayPreemptionTest, ItsDeadlineEndsItWhileItWaits) {
    TestClient client(loop_, *gateway_);
    client::Request request = generate(2, "def", kManyTokens);
    request.mutable_generate()->set_timeout_ms(50);
    begin(client, request);
    say_text(0, ids_[1], "uv");
    say_gave_way(ids_[1]);
    expect_answer(client, 2, client::Response::kError);
    EXPECT_EQ(client.last(2)->error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    EXPECT_EQ(gateway_->num_in_flight(), 1U);
}

TEST_F(GatewayPreemptionTest, ADrainWaitsForIt) {
    TestClient client(loop_, *gateway_);
    begin(client, generate(2, "def", kManyTokens));
    gateway_->drain();
    say_gave_way(ids_[1]);
    end_first();
    expect_answer(client, 1, client::Response::kFinished);
    EXPECT_EQ(instance_.num_drains, 0);
    EXPECT_EQ(next_sent().second.admit().sequence_id(), ids_[1]);
    say_token(0, ids_[1], kEndOfText);
    say_end(0, ids_[1]);
    expect_answer(client, 2, client::Response::kFinished);
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.num_drains > 0; }));
}

TEST_F(GatewayPreemptionTest, WhatEndedMeanwhileDoesNotGoOn) {
    TestClient client(loop_, *gateway_);
    client::Request request = generate(2, "def", kManyTokens);
    request.mutable_generate()->add_stop("uv");
    begin(client, request);
    say_text(0, ids_[1], "xuv");
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), ids_[1]);
    say_gave_way(ids_[1]);
    expect_answer(client, 2, client::Response::kFinished);
    EXPECT_EQ(client.last(2)->finished().reason(), client::STOP);
    EXPECT_EQ(client.text(2), "x");

    client::Request cancel;
    cancel.set_request_id(9);
    cancel.mutable_cancel()->set_target(1);
    client.send(cancel);
    EXPECT_TRUE(next_sent().second.has_cancel());
    say_gave_way(ids_[0]);
    expect_answer(client, 1, client::Response::kFinished);
    EXPECT_EQ(client.last(1)->finished().reason(), client::CANCELLED);
    EXPECT_EQ(gateway_->requests().num_preemptions, 0U);
}

// A worker that says so of one that nobody else can have driven out would send it round for ever.
TEST_F(GatewayPreemptionTest, OneThatIsAloneHasNobodyToGiveWayTo) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, kScarceTokens);
    client.send(generate(1, "abc", kManyTokens));
    say_gave_way(next_sent().second.admit().sequence_id());
    expect_answer(client, 1, client::Response::kError);
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kInternal));
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("nothing else ran there"));
    EXPECT_FALSE(instance_.has_next());
}

// Goal: the room of one that ended because of what its worker said is taken until the worker has
// let go of it: until then another may have to give way to it.
TEST_F(GatewayPreemptionTest, OneMayGiveWayToOneThatIsEnding) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, kScarceTokens);
    client.send(generate(1, "abc", kManyTokens));
    const uint64_t first = next_sent().second.admit().sequence_id();
    say_token(0, first, 100000);
    EXPECT_EQ(next_sent().second.cancel().sequence_id(), first);
    expect_answer(client, 1, client::Response::kError);
    client.send(generate(2, "def", kManyTokens));
    const uint64_t second = next_sent().second.admit().sequence_id();
    say_gave_way(second);
    EXPECT_EQ(next_sent().second.admit().sequence_id(), second);
    say_end(0, first);
    EXPECT_EQ(gateway_->requests().num_preemptions, 1U);
    say_token(0, second, kEndOfText);
    say_end(0, second);
    expect_answer(client, 2, client::Response::kFinished);
}

TEST_F(GatewayPreemptionTest, AReservationThatIsWholeLetsNobodyElseIn) {
    config_.kv_reserve = KvReserve::kWhole;
    ServedModel model;
    model.vocab_size = kByteVocabulary;
    model.context_length = 4096;
    model.tokenizer = &tokenizer_;
    gateway_ = std::make_unique<Gateway>(
        loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, kScarceTokens);
    client.send(generate(1, "abc", 600));
    client.send(generate(2, "abc", 600));
    EXPECT_EQ(next_sent().second.admit().reserved_tokens(), 603U);
    expect_answer(client, 2, client::Response::kAccepted);
    EXPECT_FALSE(instance_.has_next());
    EXPECT_EQ(gateway_->status().num_queued(), 1U);
}

}  // namespace
}  // namespace afd::daemon

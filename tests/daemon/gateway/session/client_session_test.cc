// SPDX-License-Identifier: Apache-2.0
//
// The gateway over sessions in memory. Goal: everything that it does for a client goes through
// ClientSession, so that any front end gets it. Method: MemorySessions with chosen reading speeds,
// scripted workers, no socket and no file descriptor. Oracle: what the clients have read, and what
// the workers were told.
#include "daemon/gateway/session/client_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/gateway.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kOutputBytes = 64 * 1024;

class ClientSessionTest : public testing::Test {
  protected:
    ClientSessionTest() : tokenizer_(make_byte_tokenizer()) {
        config_.attention_workers = 1;
        config_.kv_tokens = 1 << 20;
        config_.max_sequences = 8;
        config_.max_queue = 8;
        config_.connections_max = 100;
        config_.connection_requests_max = 100;
        config_.output_buffer_kib = kOutputBytes / 1024;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 1 << 20;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
    }

    // Starts a request of the session; the worker's id of it.
    uint64_t start(MemorySession& session, uint64_t request_id, uint32_t max_tokens) {
        session.ask(generate(request_id, "abc", max_tokens));
        const control::SupervisorMessage message = instance_.next().second;
        EXPECT_TRUE(message.has_admit());
        return message.admit().sequence_id();
    }

    void say(uint64_t id, const std::string& text) {
        for (const char c : text) {
            gateway_->on_events(0, token_event(id, static_cast<uint8_t>(c)));
        }
    }
    void end(uint64_t id, Code code = Code::kOk) {
        gateway_->on_events(0, end_event(id, code, ""));
    }

    static client::Request cancel(uint64_t request_id, uint64_t target) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_cancel()->set_target(target);
        return request;
    }

    static client::Request ask_status(uint64_t request_id) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_status();
        return request;
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

TEST_F(ClientSessionTest, AnswersComeInOrderAndABatchOfTokensIsOneFlush) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& client = MemorySession::open(*gateway_, "one");
    const uint64_t id = start(client, 5, 3);
    const int flushes = client.num_flushes;
    control::Events events = token_event(id, 'x');
    events.MergeFrom(token_event(id, 'y'));
    events.MergeFrom(token_event(id, 'z'));
    events.MergeFrom(end_event(id, Code::kOk, ""));
    gateway_->on_events(0, events);
    EXPECT_EQ(client.num_flushes, flushes + 1);
    std::vector<client::Response::BodyCase> kinds;
    for (const auto& answer : client.answers) kinds.push_back(answer.body_case());
    using client::Response;
    EXPECT_THAT(kinds,
                ElementsAre(Response::kAccepted,
                            Response::kChunk,
                            Response::kChunk,
                            Response::kChunk,
                            Response::kFinished));
    EXPECT_EQ(client.text(5), "xyz");
}

// Two sessions may choose the same request_id; neither hears of the other's.
TEST_F(ClientSessionTest, TwoSessionsWithTheSameRequestIdAreApart) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& first = MemorySession::open(*gateway_, "first");
    MemorySession& second = MemorySession::open(*gateway_, "second");
    const uint64_t first_id = start(first, 1, 2);
    const uint64_t second_id = start(second, 1, 2);
    ASSERT_NE(first_id, second_id);
    say(first_id, "a");
    say(second_id, "yz");
    end(second_id);
    say(first_id, "b");
    end(first_id);
    EXPECT_EQ(first.text(1), "ab");
    EXPECT_EQ(second.text(1), "yz");
    // A Cancel reaches the requests of its own session only.
    const uint64_t id = start(first, 7, 5);
    second.ask(cancel(8, 7));
    EXPECT_TRUE(second.last(8)->has_done());
    EXPECT_FALSE(instance_.has_next());
    first.ask(cancel(8, 7));
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
}

// Goal: a client that stops reading loses its requests with an error and holds at most the limit
// and what one event adds, while another streams on; it may read the rest and ask again.
TEST_F(ClientSessionTest, SlowReaderIsBoundedAndHarmsItselfOnly) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& slow = MemorySession::open(*gateway_, "slow");
    MemorySession& good = MemorySession::open(*gateway_, "good");
    const uint64_t slow_id = start(slow, 1, 100'000);
    const uint64_t good_id = start(good, 1, 100'000);
    slow.read(0);
    size_t most_queued = 0;
    size_t num_said = 0;
    while (!instance_.has_next() && num_said < 100'000) {
        say(slow_id, "s");
        say(good_id, "g");
        ++num_said;
        most_queued = std::max(most_queued, slow.queued_bytes());
    }
    const control::SupervisorMessage told = instance_.next().second;
    ASSERT_EQ(told.cancel().sequence_id(), slow_id) << "after " << num_said << " tokens";
    EXPECT_GT(most_queued, kOutputBytes);
    EXPECT_LT(most_queued, kOutputBytes + 1024);
    EXPECT_EQ(gateway_->num_failed(), 1U);

    // What comes until the worker has stopped is not queued any more.
    const size_t queued = slow.queued_bytes();
    say(slow_id, "late");
    EXPECT_EQ(slow.queued_bytes(), queued);
    end(slow_id, Code::kCancelled);
    say(good_id, "!");
    EXPECT_EQ(good.text(1), std::string(num_said, 'g') + "!");

    slow.read(MemorySession::kReadsAll);
    EXPECT_THAT(slow.last(1)->error().message(), HasSubstr("the client reads too slowly"));
    EXPECT_EQ(slow.last(1)->error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    const uint64_t again = start(slow, 2, 1);
    say(again, "k");
    end(again);
    EXPECT_EQ(slow.text(2), "k");
    EXPECT_EQ(slow.num_closes, 0);
}

TEST_F(ClientSessionTest, ClientThatAsksAndNeverReadsIsClosedAtTwiceTheLimit) {
    bool is_destroyed = false;
    MemorySession& client = MemorySession::open(*gateway_, "deaf");
    client.is_destroyed = &is_destroyed;
    client.read(0);
    size_t most_queued = 0;
    for (uint64_t id = 1; client.is_open() && id < 1'000'000; ++id) {
        client.ask(ask_status(id));
        most_queued = std::max(most_queued, client.queued_bytes());
    }
    EXPECT_FALSE(client.is_open());
    EXPECT_LE(most_queued, 2 * kOutputBytes);
    EXPECT_FALSE(is_destroyed) << "not within its own call";
    EXPECT_TRUE(run_until(loop_, [&] { return is_destroyed; }));
}

// Goal: one answer beyond twice the limit costs its client the request and not the connection: it
// learns why when it reads on. Method: the log probabilities of a long prompt as one Chunk; turns
// of the gateway that are about others and about this client, which then asks on and reads nothing.
// Oracle: the error behind the Chunk for who reads; for who does not, the bytes at which it is cut
// off.
TEST_F(ClientSessionTest, AnAnswerBeyondTheLimitLeavesItsClientTheReason) {
    constexpr int kPromptTokens = 40'000;
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& other = MemorySession::open(*gateway_, "other");
    for (const bool reads_on : {true, false}) {
        MemorySession& client = MemorySession::open(*gateway_, "slow");
        client::Request request = generate(1, std::string(kPromptTokens, 'a'), 9);
        request.mutable_generate()->set_prompt_logprobs(true);
        client.ask(request);
        const uint64_t id = instance_.next().second.admit().sequence_id();
        client.read(0);
        control::Events events;
        events.add_prompt_logprobs()->set_sequence_id(id);
        events.mutable_prompt_logprobs(0)->set_first_position(1);
        for (int i = 1; i < kPromptTokens; ++i) events.mutable_prompt_logprobs(0)->add_values(-1);
        gateway_->on_events(0, events);
        EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
        end(id, Code::kCancelled);
        other.ask(ask_status(1));
        ASSERT_TRUE(client.is_open());
        client.read(0);
        ASSERT_TRUE(client.is_open());
        const size_t queued = client.queued_bytes();
        ASSERT_GT(queued, 2 * kOutputBytes);
        if (reads_on) {
            client.read(MemorySession::kReadsAll);
            ASSERT_TRUE(client.last(1)->has_error());
            EXPECT_THAT(client.last(1)->error().message(), HasSubstr("reads too slowly"));
            continue;
        }
        size_t most_queued = queued;
        for (uint64_t status = 2; client.is_open() && status < 1'000'000; ++status) {
            client.ask(ask_status(status));
            most_queued = std::max(most_queued, client.queued_bytes());
        }
        EXPECT_FALSE(client.is_open());
        EXPECT_GT(most_queued, queued + kOutputBytes / 2);
        EXPECT_LE(most_queued, queued + kOutputBytes);
    }
}

TEST_F(ClientSessionTest, DisconnectInMidStreamStopsItsRequestsAndFreesItsRoom) {
    gateway_->on_attention_ready(0, 128);
    MemorySession& leaver = MemorySession::open(*gateway_, "leaver");
    MemorySession& waiter = MemorySession::open(*gateway_, "waiter");
    const uint64_t id = start(leaver, 1, 100);
    leaver.ask(generate(2, "abc", 100));  // Waits: there is room for one.
    waiter.ask(generate(1, "xyz", 100));
    EXPECT_FALSE(instance_.has_next());
    say(id, "ab");
    leaver.close();
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    EXPECT_EQ(gateway_->num_in_flight(), 2U) << "the waiting one ended at once";
    say(id, "c");  // On its way while it left: nobody hears it.
    EXPECT_FALSE(instance_.has_next()) << "the room is in use until the worker lets go";
    end(id, Code::kCancelled);
    EXPECT_THAT(instance_.next().second.admit().tokens(), ElementsAre('x', 'y', 'z'));
}

// The write itself finds out: the session closes within the gateway's own flush, with other
// sessions of the same batch behind it.
TEST_F(ClientSessionTest, SessionThatClosesWhileItIsFlushedDisturbsNobody) {
    gateway_->on_attention_ready(0, 1 << 20);
    bool is_destroyed = false;
    MemorySession& leaver = MemorySession::open(*gateway_, "leaver");
    leaver.is_destroyed = &is_destroyed;
    MemorySession& stayer = MemorySession::open(*gateway_, "stayer");
    const uint64_t leaving = start(leaver, 1, 9);
    const uint64_t staying = start(stayer, 1, 9);
    leaver.closes_in_flush = true;
    control::Events events = token_event(leaving, 'x');
    events.MergeFrom(token_event(staying, 'y'));
    gateway_->on_events(0, events);
    EXPECT_EQ(stayer.text(1), "y");
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), leaving);
    EXPECT_FALSE(is_destroyed);
    EXPECT_TRUE(run_until(loop_, [&] { return is_destroyed; }));
    say(staying, "z");
    EXPECT_EQ(stayer.text(1), "yz");
}

TEST_F(ClientSessionTest, CancelInMidStreamKeepsTheSessionForMore) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& client = MemorySession::open(*gateway_, "one");
    const uint64_t id = start(client, 1, 50);
    say(id, "ab");
    client.ask(cancel(2, 1));
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    say(id, "late");
    end(id, Code::kCancelled);
    EXPECT_EQ(client.text(1), "ab");
    EXPECT_EQ(client.last(1)->finished().reason(), client::CANCELLED);
    EXPECT_EQ(client.last(1)->finished().num_output_tokens(), 2U) << "more than it heard";
    const uint64_t next = start(client, 1, 1);
    say(next, "n");
    end(next);
    EXPECT_EQ(client.last(1)->finished().reason(), client::LENGTH);
}

// Goal: a drain ends when the last byte has left, not when the last token was queued.
TEST_F(ClientSessionTest, DrainWaitsUntilTheClientHasReadItsAnswers) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& client = MemorySession::open(*gateway_, "slow");
    const uint64_t id = start(client, 1, 2);
    client.read(0);
    gateway_->drain();
    say(id, "xy");
    end(id);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(instance_.num_drains, 0) << "its last answers are unread";
    client.read(MemorySession::kReadsAll);
    EXPECT_EQ(instance_.num_drains, 1);
    EXPECT_TRUE(client.last(1)->has_finished());
}

// Goal: a session that closes as it is told something is not touched when it is destroyed. Method:
// two Drains of one client, whose write at their end finds it gone. Oracle: nobody flushes it
// later.
TEST_F(ClientSessionTest, AClientThatDiesAsItsTwoDrainsEndIsForgotten) {
    gateway_->on_attention_ready(0, 1 << 20);
    MemorySession& other = MemorySession::open(*gateway_, "other");
    MemorySession& drains = MemorySession::open(*gateway_, "drains");
    bool is_destroyed = false;
    drains.is_destroyed = &is_destroyed;
    const uint64_t id = start(other, 1, 1);
    for (const uint64_t request_id : {1, 2}) {
        client::Request drain;
        drain.set_request_id(request_id);
        drain.mutable_drain();
        drains.ask(drain);
    }
    drains.closes_in_flush = true;
    say(id, "x");
    end(id);
    EXPECT_FALSE(drains.is_open());
    EXPECT_FALSE(is_destroyed);
    const int flushes = drains.num_flushes;
    other.ask(ask_status(2));
    EXPECT_EQ(drains.num_flushes, flushes);
    EXPECT_TRUE(run_until(loop_, [&] { return is_destroyed; }));
    other.ask(ask_status(3));
    EXPECT_TRUE(other.last(3)->has_status());
}

// Goal: connections that do nothing keep nobody out, and those that do something are not closed for
// others. Method: a gateway of three places, an idle time of 0 or of an hour. Oracle: who is
// closed, and what they are told.
TEST_F(ClientSessionTest, AnIdleConnectionMakesPlaceAndABusyOneDoesNot) {
    gateway_->limit_connections(3);
    gateway_->on_attention_ready(0, 1024);
    MemorySession& busy = MemorySession::open(*gateway_, "busy");
    busy.ask(generate(1, "abc", 2));
    MemorySession& idle = MemorySession::open(*gateway_, "idle");
    MemorySession& drains = MemorySession::open(*gateway_, "drains");
    client::Request drain;
    drain.set_request_id(1);
    drain.mutable_drain();
    drains.ask(drain);
    MemorySession& fourth = MemorySession::open(*gateway_, "fourth");
    EXPECT_TRUE(fourth.is_open());
    EXPECT_FALSE(idle.is_open());
    ASSERT_NE(idle.last(0), nullptr);
    EXPECT_THAT(idle.last(0)->error().message(), HasSubstr("another client needs the place"));
    fourth.ask(generate(1, "abc", 2));
    MemorySession& status = MemorySession::open(*gateway_, "fifth");
    EXPECT_TRUE(status.is_open()) << "the fourth's request was refused (drain), so it is idle";
    EXPECT_FALSE(fourth.is_open());
    EXPECT_TRUE(busy.is_open());
    EXPECT_TRUE(drains.is_open());
}

// Goal: a connection that waited long for its answer is not idle once it has it. Method: a request
// that takes longer than the idle time, and a further connection right after its end. Oracle: who
// is refused.
TEST_F(ClientSessionTest, AConnectionIsIdleFromTheEndOfItsLastRequestOn) {
    config_.idle_timeout_ms = 300;
    gateway_->limit_connections(1);
    gateway_->on_attention_ready(0, 1024);
    MemorySession& first = MemorySession::open(*gateway_, "first");
    const uint64_t id = start(first, 1, 1);
    run_for(loop_, 600, [] { return false; });
    say(id, "x");
    end(id);
    EXPECT_TRUE(first.last(1)->has_finished());
    EXPECT_FALSE(MemorySession::open(*gateway_, "second").is_open());
    EXPECT_TRUE(first.is_open());
    run_for(loop_, 600, [] { return false; });
    EXPECT_TRUE(MemorySession::open(*gateway_, "third").is_open());
    EXPECT_FALSE(first.is_open());
}

// Goal: nobody loses an answer that is on its way, or a request that is, to a further connection.
// Method: a gateway of one place, whose session has not been heard of for longer than the idle
// time, but has something unread, or half a request. Oracle: who is refused.
TEST_F(ClientSessionTest, AConnectionIsNotIdleWhileAnAnswerOrARequestIsUnderWay) {
    config_.idle_timeout_ms = 300;
    gateway_->limit_connections(1);
    MemorySession& first = MemorySession::open(*gateway_, "first");
    first.has_sent_half = true;
    run_for(loop_, 600, [] { return false; });
    EXPECT_FALSE(MemorySession::open(*gateway_, "second").is_open());
    first.has_sent_half = false;
    first.read(0);
    first.ask(ask_status(1));
    ASSERT_GT(first.queued_bytes(), 1U);
    run_for(loop_, 600, [] { return false; });
    first.read(1);
    EXPECT_FALSE(MemorySession::open(*gateway_, "third").is_open()) << "it has just read";
    EXPECT_TRUE(first.is_open());
    run_for(loop_, 600, [] { return false; });
    EXPECT_TRUE(MemorySession::open(*gateway_, "fourth").is_open()) << "it reads no more";
    EXPECT_FALSE(first.is_open());
}

// Goal: connections that ask for nothing keep nobody out. Oracle: who is closed.
TEST_F(ClientSessionTest, ASilentConnectionGivesWayBeforeAnIdleOne) {
    config_.idle_timeout_ms = 3'600'000;
    gateway_->limit_connections(2);
    MemorySession& first = MemorySession::open(*gateway_, "first");
    first.ask(ask_status(1));
    first.read(first.queued_bytes());
    MemorySession& silent = MemorySession::open(*gateway_, "silent");
    EXPECT_FALSE(MemorySession::open(*gateway_, "third").is_open()) << "it has just come";
    run_for(loop_, 1100, [] { return false; });
    MemorySession& fourth = MemorySession::open(*gateway_, "fourth");
    EXPECT_TRUE(fourth.is_open());
    EXPECT_FALSE(silent.is_open());
    EXPECT_TRUE(first.is_open());
}

TEST_F(ClientSessionTest, WithoutAnIdleConnectionTheNextIsRefusedWithTheReason) {
    config_.idle_timeout_ms = 3'600'000;
    gateway_->limit_connections(1);
    MemorySession& first = MemorySession::open(*gateway_, "first");
    MemorySession& second = MemorySession::open(*gateway_, "second");
    EXPECT_TRUE(first.is_open());
    EXPECT_FALSE(second.is_open());
    ASSERT_NE(second.last(0), nullptr);
    EXPECT_EQ(second.last(0)->error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    EXPECT_THAT(second.last(0)->error().message(), HasSubstr("afdd serves 1 connections"));
    first.close();
    EXPECT_TRUE(MemorySession::open(*gateway_, "third").is_open());
}

// Goal: behind an upgrade there are no more connections than there are descriptors for. Method: two
// places, taken; another afdd hands over a third. Oracle: how many there are, and what it is told.
TEST_F(ClientSessionTest, AHandedConnectionCountsAsOneThatConnectsHere) {
    config_.idle_timeout_ms = 3'600'000;
    gateway_->limit_connections(2);
    const MemorySession& first = MemorySession::open(*gateway_, "first");
    const MemorySession& second = MemorySession::open(*gateway_, "second");
    auto session = std::make_unique<MemorySession>(*gateway_, "handed");
    const MemorySession& handed = *session;
    gateway_->adopt_handed(std::move(session));
    EXPECT_EQ(gateway_->num_connections(), 2U);
    EXPECT_TRUE(first.is_open());
    EXPECT_TRUE(second.is_open());
    ASSERT_NE(handed.last(0), nullptr);
    EXPECT_EQ(handed.last(0)->error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    EXPECT_THAT(handed.last(0)->error().message(),
                HasSubstr("afdd serves 2 connections (connections_max"));
}

}  // namespace
}  // namespace afd::daemon

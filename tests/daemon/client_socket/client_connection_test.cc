// SPDX-License-Identifier: Apache-2.0
//
// Connections of clients without a gateway: when the owner hears which request.
#include "daemon/client_socket/client_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

// Notes what it hears, in order.
struct NotingOwner final : SessionOwner {
    void adopt(std::unique_ptr<ClientSession> session) override {
        sessions.push_back(std::move(session));
    }
    void adopt_handed(std::unique_ptr<ClientSession> session) override {
        adopt(std::move(session));
    }
    void on_request(ClientSession&, const client::Request& request) override {
        heard.push_back(request.request_id());
        if (request.has_generate()) text = request.generate().text();
    }
    void on_refused(ClientSession&, const std::string& why) override { refusals.push_back(why); }
    void on_closed(ClientSession&) override { ++num_closed; }
    void on_progress(ClientSession&) override {}
    void on_answered(ClientSession&) override {}
    bool is_leaving() const override { return leaves; }

    bool leaves = false;
    std::vector<uint64_t> heard;
    std::string text;
    std::vector<std::string> refusals;
    int num_closed = 0;
    std::vector<std::unique_ptr<ClientSession>> sessions;
};

class ClientConnectionTest : public testing::Test {
  protected:
    static std::string status_frames(uint64_t first, uint64_t last) {
        std::string bytes;
        for (uint64_t id = first; id <= last; ++id) {
            client::Request request;
            request.set_request_id(id);
            request.mutable_status();
            append_frame(request, bytes);
        }
        return bytes;
    }

    static client::Request cancel(uint64_t request_id, uint64_t target) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_cancel()->set_target(target);
        return request;
    }

    EventLoop loop_;
    NotingOwner owner_;
};

// Goal: a client that sends thousands of requests at once does not hold the others. Method: its
// requests and one of another client wait before the loop turns. Oracle: how many of the first
// client's were heard before the other's; all are heard in the end, in their order.
TEST_F(ClientConnectionTest, ManyRequestsAtOnceDoNotHoldOtherClients) {
    constexpr uint64_t kOther = 1'000'000;
    constexpr uint64_t kMany = 2000;
    TestClient busy(loop_, owner_);
    TestClient other(loop_, owner_);
    busy.send_bytes(status_frames(1, kMany));
    other.send_bytes(status_frames(kOther, kOther));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == kMany + 1; }));
    const auto at = std::find(owner_.heard.begin(), owner_.heard.end(), kOther);
    EXPECT_LE(at - owner_.heard.begin(), 2 * TurnBudget::kMessagesMax);
    owner_.heard.erase(at);
    EXPECT_TRUE(std::is_sorted(owner_.heard.begin(), owner_.heard.end()));
}

// Goal: a prompt that is not UTF-8 reaches the owner, which refuses it alone; the connection goes
// on. It was closed, because protobuf refuses such a string.
TEST_F(ClientConnectionTest, PromptThatIsNotUtf8DoesNotCloseTheConnection) {
    TestClient client(loop_, owner_);
    client.send(generate(1, "bad \xff\xfe", 1));
    client.send_bytes(status_frames(2, 2));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 2; }));
    EXPECT_EQ(owner_.text, "bad \xff\xfe");
    EXPECT_EQ(owner_.num_closed, 0);
}

// Goal: an answer that no frame holds costs its own request and not the connection. Method: a trace
// that is too long, then a short answer. Oracle: what the client reads.
TEST_F(ClientConnectionTest, AnAnswerThatNoFrameHoldsIsAnError) {
    TestClient client(loop_, owner_);
    client.send_bytes(status_frames(1, 2));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 2; }));
    ClientSession& session = *owner_.sessions.front();
    client::Response answer;
    answer.set_request_id(1);
    answer.mutable_metrics()->set_text(std::string(kFrameBytesMax, 'x'));
    session.send(answer);
    answer.set_request_id(2);
    answer.mutable_metrics()->set_text("short");
    session.send(answer);
    session.flush();
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.last(2) != nullptr;
    }));
    EXPECT_EQ(client.last(2)->metrics().text(), "short");
    ASSERT_NE(client.last(1), nullptr);
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    EXPECT_THAT(client.last(1)->error().message(), testing::HasSubstr("and a message at most"));
}

// What was sent before the end of the stream is heard, also if it takes several turns.
TEST_F(ClientConnectionTest, RequestsBeforeTheEndOfTheStreamAreHeard) {
    TestClient client(loop_, owner_);
    client.send_bytes(status_frames(1, 500));
    client.close();
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.num_closed == 1; }));
    EXPECT_EQ(owner_.heard.size(), 500u);
}

// The first `num_bytes` of a frame that announces `size`.
std::string half_frame(uint32_t size, size_t num_bytes) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(size >> (8 * i)));
    return bytes + std::string(num_bytes - bytes.size(), 'x');
}

std::string refusal_read_by(TestClient& client) {
    client.receive();
    return client.last(0) == nullptr ? "" : client.last(0)->error().message();
}

// Goal: clients that send half a request do not fill the memory. Method: connections with a common
// budget, of which one fills most of it and another the rest. Oracle: the largest is told and
// closed, its bytes are free, and a client with a small half is served when its rest comes.
TEST_F(ClientConnectionTest, HalfRequestsBeyondTheBudgetCostTheLargestConnection) {
    constexpr size_t kBudget = 150'000;
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = kBudget, .timeout_ms = 60'000});
    TestClient small(loop_, owner_, budget);
    TestClient large(loop_, owner_, budget);
    TestClient medium(loop_, owner_, budget);
    const std::string whole = status_frames(1, 1);
    small.send_bytes(whole.substr(0, 5));
    large.send_bytes(half_frame(1 << 20, 90'000));
    ASSERT_TRUE(run_until(loop_, [&] { return budget->bytes() == 90'005; }));
    medium.send_bytes(half_frame(1 << 20, 70'000));
    ASSERT_TRUE(run_until(loop_, [&] { return !refusal_read_by(large).empty(); }));
    EXPECT_EQ(refusal_read_by(large),
              "its 90000 bytes of requests that are not complete or not yet read are the largest "
              "part of 160005 bytes that wait, at most 150000 are kept (input_buffer_kib); this "
              "connection is closed");
    ASSERT_TRUE(run_until(loop_, [&] {
        large.receive();
        return large.is_closed;
    }));
    EXPECT_EQ(budget->bytes(), 70'005u);
    EXPECT_EQ(owner_.refusals.size(), 1u);
    small.send_bytes(whole.substr(5));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 1; }));
    EXPECT_EQ(owner_.num_closed, 1);
    EXPECT_EQ(budget->bytes(), 70'000u);
}

TEST_F(ClientConnectionTest, WithHalfAFrameItIsWithinARequest) {
    TestClient client(loop_, owner_);
    const std::string frame = status_frames(1, 1);
    client.send_bytes(frame.substr(0, 3));
    EXPECT_TRUE(run_until(loop_, [&] { return owner_.sessions[0]->is_within_request(); }));
    client.send_bytes(frame.substr(3));
    EXPECT_TRUE(run_until(loop_, [&] { return !owner_.heard.empty(); }));
    EXPECT_FALSE(owner_.sessions[0]->is_within_request());
}

// Goal: half a request does not wait for ever, also if bytes trickle in; whole ones do not count.
// Method: a short time-out. Oracle: the words, and who is closed.
TEST_F(ClientConnectionTest, HalfRequestWaitsForItsTimeoutOnly) {
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 300});
    TestClient quiet(loop_, owner_, budget);
    TestClient trickling(loop_, owner_, budget);
    quiet.send_bytes(status_frames(1, 1));
    trickling.send_bytes(half_frame(1 << 20, 10));
    ASSERT_TRUE(run_until(loop_, [&] {
        if (refusal_read_by(trickling).empty()) trickling.send_bytes("x");
        return !refusal_read_by(trickling).empty();
    }));
    EXPECT_TRUE(refusal_read_by(trickling).ends_with(
        "has waited for its rest for input_timeout_ms = 300; this connection is closed"))
        << refusal_read_by(trickling);
    EXPECT_EQ(budget->bytes(), 0u);
    EXPECT_EQ(owner_.num_closed, 1);
    quiet.send_bytes(status_frames(2, 2));
    EXPECT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 2; }));
}

// Goal: a client does not pay for a time in which afdd itself stood still. Method: the rest of a
// request arrives in time, but the loop does not turn until the time-out is over. Oracle: it is
// heard; half a request that gets no rest is closed all the same.
TEST_F(ClientConnectionTest, RestThatArrivedWhileTheLoopStoodStillIsHeard) {
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 1000});
    TestClient innocent(loop_, owner_, budget);
    TestClient silent(loop_, owner_, budget);
    const std::string whole = status_frames(1, 1);
    innocent.send_bytes(whole.substr(0, 5));
    silent.send_bytes(whole.substr(0, 5));
    ASSERT_TRUE(run_until(loop_, [&] { return budget->bytes() == 10; }));
    innocent.send_bytes(whole.substr(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.num_closed == 1; }));
    EXPECT_EQ(owner_.heard, std::vector<uint64_t>{1});
    EXPECT_THAT(refusal_read_by(silent), testing::HasSubstr("input_timeout_ms = 1000"));
    EXPECT_EQ(refusal_read_by(innocent), "");
    EXPECT_EQ(budget->bytes(), 0u);
}

// Goal: what begins something waits for the next afdd, what concerns this one is served. Method: a
// owner that leaves. Oracle: what it hears, and the frames that are handed over.
TEST_F(ClientConnectionTest, WhileItsOwnerLeavesWhatIsNewIsKeptForTheNext) {
    TestClient client(loop_, owner_);
    client.send(generate(1, "begun here", 1));
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 1; }));
    owner_.leaves = true;
    client.send(generate(2, "new", 1));
    client.send(cancel(3, 2));
    client.send(cancel(4, 1));
    client.send_bytes(status_frames(5, 5));
    const std::string half = status_frames(6, 6).substr(0, 5);
    client.send_bytes(half);
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == 3; }));
    EXPECT_EQ(owner_.heard, (std::vector<uint64_t>{1, 4, 5}));

    client::Response last;
    last.set_request_id(1);
    owner_.sessions[0]->send(last);
    std::optional<HandedConnection> handed = owner_.sessions[0]->hand_over();
    ASSERT_TRUE(handed.has_value());
    EXPECT_EQ(handed->door, kSocketDoor);
    std::string kept;
    append_frame(generate(2, "new", 1), kept);
    append_frame(cancel(3, 2), kept);
    EXPECT_EQ(handed->unread, kept + half);
    EXPECT_FALSE(owner_.sessions[0]->is_open());
    EXPECT_EQ(owner_.num_closed, 1);

    // The next one's session serves them, and says what was not said.
    NotingOwner next;
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
    ClientConnection there(
        loop_, std::move(handed->socket), ClientIdentity{"test", "test client"}, next, budget);
    there.begin_with(handed->unread, handed->unsent);
    client.send_bytes(status_frames(6, 6).substr(5));
    ASSERT_TRUE(run_until(loop_, [&] { return next.heard.size() == 3; }));
    EXPECT_EQ(next.heard, (std::vector<uint64_t>{2, 3, 6}));
    there.flush();
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.answers.size() == 1;
    }));
    EXPECT_EQ(client.answers[0].request_id(), 1u);
    EXPECT_FALSE(client.is_closed);
    there.close();
}

// Goal: a client that sends on and on to an owner that leaves fills no memory. Oracle: the bytes
// that are kept; when the owner stays after all, every request is heard, in its order.
TEST_F(ClientConnectionTest, WhatIsKeptForTheNextIsBoundedAndServedIfThereIsNone) {
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 24, .timeout_ms = 60'000});
    TestClient client(loop_, owner_, budget);
    owner_.leaves = true;
    constexpr uint64_t kMany = 16;
    for (uint64_t id = 1; id <= kMany; ++id) {
        client.send(generate(id, std::string(10'000, 'x'), 1));
        run_for(loop_, 1, [] { return false; });
    }
    EXPECT_TRUE(owner_.heard.empty());
    // Seven are more than 64 KiB; what was read with the last of them is kept, too.
    EXPECT_GT(budget->bytes(), 64u << 10);
    EXPECT_LT(budget->bytes(), 80u << 10) << "of 160,000 that were sent";
    owner_.leaves = false;
    owner_.sessions[0]->stay();
    ASSERT_TRUE(run_until(loop_, [&] { return owner_.heard.size() == kMany; }));
    EXPECT_TRUE(std::is_sorted(owner_.heard.begin(), owner_.heard.end()));
    EXPECT_EQ(budget->bytes(), 0u);
}

}  // namespace
}  // namespace afd::daemon

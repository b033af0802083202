// SPDX-License-Identifier: Apache-2.0
//
// One connection to the mock: several requests at once, and more than there is room for.
#include "clients/connection.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "tests/clients/mock_afdd.h"

namespace afd::client {
namespace {

using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::steady_answer;
using std::chrono::milliseconds;

TEST(Connection, CarriesSeveralRequestsAtOnce) {
    // The first request is the slowest: its answers must come, complete, after the others'.
    MockAfdd server([](size_t index, const Generate&) {
        return steady_answer(3, milliseconds(index == 0 ? 1'000 : 1), milliseconds(1));
    });
    Result<Connection> connection =
        Connection::connect({server.socket_path(), ""}, Clock::now() + milliseconds(5000));
    ASSERT_TRUE(connection.ok()) << connection.error().message;
    for (uint64_t id = 1; id <= 3; ++id) {
        Request request;
        request.set_request_id(id);
        request.mutable_generate()->set_text("p");
        ASSERT_TRUE(connection.value().send(request).ok());
    }
    std::vector<uint64_t> finished;
    std::vector<Response> responses;
    size_t num_chunks = 0;
    while (finished.size() < 3) {
        ASSERT_TRUE(connection.value().receive(responses).ok());
        for (const Response& response : responses) {
            num_chunks += response.has_chunk();
            if (response.has_finished()) finished.push_back(response.request_id());
        }
        responses.clear();
    }
    EXPECT_EQ(num_chunks, 9u);
    EXPECT_EQ(finished.back(), 1u);
}

TEST(Connection, WhatWaitsForRoomArrivesWholeAndInOrder) {
    constexpr size_t kNumRequests = 400;
    const auto text_of = [](size_t i) { return std::to_string(i) + std::string(20'000, 'x'); };
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.stall_once(0, milliseconds(0), milliseconds(1000));
    Result<Connection> made =
        Connection::connect({server.socket_path(), ""}, deadline_after(milliseconds(5000)));
    ASSERT_TRUE(made.ok()) << made.error().message;
    Connection& connection = made.value();
    bool has_waited = false;
    for (size_t i = 0; i < kNumRequests; ++i) {
        Request request;
        request.set_request_id(i + 1);
        request.mutable_generate()->set_text(text_of(i));
        ASSERT_TRUE(connection.send(request).ok());
        has_waited |= (connection.events() & POLLOUT) != 0;
    }
    EXPECT_TRUE(has_waited);
    // Answers are read meanwhile, or the mock waits for room itself.
    std::vector<Response> responses;
    while (server.generates().size() < kNumRequests) {
        pollfd item = {connection.fd(), connection.events(), 0};
        ASSERT_GE(poll(&item, 1, 100), 0);
        ASSERT_TRUE(connection.flush().ok());
        ASSERT_TRUE(connection.receive(responses).ok());
    }
    EXPECT_TRUE((connection.events() & POLLOUT) == 0);
    const std::vector<Generate> came = server.generates();
    for (size_t i = 0; i < kNumRequests; ++i) {
        EXPECT_EQ(came[i].text(), text_of(i));
    }
}

}  // namespace
}  // namespace afd::client

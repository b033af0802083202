// SPDX-License-Identifier: Apache-2.0
#include "daemon/client_socket/socket_front_end.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/daemon/gateway/gateway_fixture.h"
#include "tests/daemon/gateway/noting_heir.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using SocketFrontEndTest = GatewayTest;

client::Request ask_status(uint64_t request_id) {
    client::Request request;
    request.set_request_id(request_id);
    request.mutable_status();
    return request;
}

// Goal: an upgrade costs no client its connection, however full the next afdd is. Method: a
// connection in the middle of a frame that its client has not read, handed to a gateway of one
// place, which a request holds. Oracle: the client reads every answer once, and is served on.
TEST_F(SocketFrontEndTest, AHandedConnectionNeedsNoPlaceAndHearsTheRest) {
    constexpr uint64_t kAnswers = 300;
    config_.idle_timeout_ms = 3'600'000;
    TestClient client(loop_, *gateway_, nullptr, 4096);
    for (uint64_t id = 1; id <= kAnswers; ++id) {
        client.send(ask_status(id));
        run_for(loop_, 1, [] { return false; });
    }
    NotingHeir heir;
    gateway_->leave_to(heir);
    ASSERT_TRUE(run_until(loop_, [&] { return heir.connections.size() == 1; }));
    ASSERT_FALSE(heir.connections[0].unsent.empty()) << "all is sent: this tests nothing";

    ServedModel model;
    model.vocab_size = kByteVocabulary;
    model.context_length = 4096;
    model.tokenizer = &tokenizer_;
    ScriptedInstance instance;
    Config config = config_;
    config.connections_max = 1;
    Gateway next(loop_, config, model, std::vector<TraceSource>(), instance, instance);
    next.on_attention_ready(0, 1024);
    TestClient holder(loop_, next);
    holder.send(generate(1, "abc", 2));
    ASSERT_TRUE(run_until(loop_, [&] { return next.num_in_flight() == 1; }));
    const test::TemporaryDirectory directory;
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
    const auto door = SocketFrontEnd::open(loop_, directory.path("a.sock"), next, budget);
    ASSERT_TRUE(door.ok()) << door.error().message;
    door.value()->adopt(std::move(heir.connections[0]));
    client.send(ask_status(kAnswers + 1));
    EXPECT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.answers.size() == kAnswers + 1 || client.is_closed;
    }));
    ASSERT_EQ(client.answers.size(), kAnswers + 1);
    for (uint64_t id = 1; id <= kAnswers + 1; ++id) {
        EXPECT_EQ(client.answers[id - 1].request_id(), id);
        EXPECT_TRUE(client.answers[id - 1].has_status()) << id;
    }
    EXPECT_FALSE(client.is_closed);

    // Whoever is let in only now finds no place.
    TestClient late(loop_, next);
    EXPECT_TRUE(run_until(loop_, [&] {
        late.receive();
        return late.is_closed;
    }));
}

// Goal: an upgrade leaves the socket file to the next afdd, and one that fails leaves none behind.
TEST_F(SocketFrontEndTest, ItsFileIsOfWhoServesIt) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("a.sock");
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
    for (const bool fails : {false, true}) {
        auto door = SocketFrontEnd::open(loop_, path, *gateway_, budget);
        ASSERT_TRUE(door.ok()) << door.error().message;
        door.value()->pause();
        door.value()->leave();
        if (fails) door.value()->go_on();
        std::move(door).value().reset();
        EXPECT_EQ(std::filesystem::exists(path), !fails);
    }
}

// Goal: a next afdd that has the socket and fails before it serves leaves the file to the one that
// serves on.
TEST_F(SocketFrontEndTest, WhoHasNotBegunToServeLeavesTheFile) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("a.sock");
    const auto budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
    const auto door = SocketFrontEnd::open(loop_, path, *gateway_, budget);
    ASSERT_TRUE(door.ok()) << door.error().message;
    for (const bool serves : {false, true}) {
        UniqueFd socket(::fcntl(door.value()->listening_socket(), F_DUPFD_CLOEXEC, 0));
        auto next = SocketFrontEnd::open(loop_, path, *gateway_, budget, std::move(socket));
        ASSERT_TRUE(next.ok()) << next.error().message;
        next.value()->pause();
        if (serves) next.value()->go_on();
        std::move(next).value().reset();
        EXPECT_EQ(std::filesystem::exists(path), !serves);
    }
}

}  // namespace
}  // namespace afd::daemon

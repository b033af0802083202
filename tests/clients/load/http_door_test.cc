// SPDX-License-Identifier: Apache-2.0
//
// Goal: a load run over HTTP loses no request and counts no failure as an answer, whatever happens
// to its connections. Method: a server in this process with scripted bytes. Oracle: counts by hand.
#include "clients/load/http_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "clients/load/level_run.h"
#include "tests/clients/scripted_server.h"

namespace afd::client {
namespace {

using afd::test::ScriptedAnswer;
using afd::test::ScriptedServer;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr const char* kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string chunk(const std::string& data) {
    char size[20];
    std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
    return size + data + "\r\n";
}

std::string token(const char* reason) {
    return chunk(std::string(R"(data: {"choices":[{"text":"a","token_ids":[1],"finish_reason":)") +
                 reason + "}]}\n\n");
}

std::string good() {
    return kHead + token("null") + token("\"length\"") + chunk("data: [DONE]\n\n") + "0\r\n\r\n";
}

class HttpDoorTest : public ::testing::Test {
  protected:
    HttpDoorTest() : cancellation_(Cancellation::create().value()) {
        workload_.prompts = {"a"};
        workload_.max_tokens_low = workload_.max_tokens_high = 2;
    }

    // One connection is made to find the address.
    void start(ScriptedServer::Script script,
               ScriptedServer::Reads reads = ScriptedServer::Reads::kRequests) {
        server_ = std::make_unique<ScriptedServer>(std::move(script), reads);
        HttpTarget target;
        target.url = parse_http_url("http://127.0.0.1:" + std::to_string(server_->port())).value();
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        target.peer = find_peer(target.url, deadline, cancellation_).value();
        door_ = HttpDoor::create(std::move(target)).value();
    }

    LevelResult run(uint32_t concurrency, uint64_t num_requests, milliseconds timeout) {
        LevelExtent extent;
        extent.num_requests = num_requests;
        LevelRun level_run(*door_, workload_, {concurrency, 0}, extent, timeout);
        return level_run.run(next_request_id_, cancellation_, observer_);
    }

    Workload workload_;
    Cancellation cancellation_;
    std::unique_ptr<ScriptedServer> server_;
    std::unique_ptr<HttpDoor> door_;
    LevelObserver observer_;
    uint64_t next_request_id_ = 1;
};

constexpr milliseconds kPatience{60'000};

TEST_F(HttpDoorTest, ConnectionsAreUsedAgainAlsoByTheNextLevel) {
    start([](size_t) { return ScriptedAnswer{good()}; });
    for (int level = 0; level < 2; ++level) {
        const LevelResult result = run(3, 50, kPatience);
        EXPECT_EQ(result.num_with(Outcome::kOk), 50u);
        EXPECT_EQ(result.num_output_tokens(), 100u);
        EXPECT_EQ(result.itl_us.count(), 50u);
    }
    EXPECT_LE(server_->num_connections(), 7u);
}

TEST_F(HttpDoorTest, RequestOnAConnectionThatTheServerClosedIsAskedAgain) {
    // Its end is on its way when the next request is sent, or is noticed before.
    start([](size_t) { return ScriptedAnswer{good(), true}; });
    const LevelResult result = run(4, 100, kPatience);
    EXPECT_EQ(result.num_with(Outcome::kOk), 100u);
    EXPECT_GE(server_->num_connections(), 100u);
}

// Goal: a usage that is not what came does not spoil the measurements. Method: three texts, of
// which usage tells 0, 2 and 1. Oracle: a gap less than tokens, by hand.
TEST_F(HttpDoorTest, UsageBelowWhatCameIsTakenForWhatItIs) {
    start([](size_t index) {
        const std::string text = R"(data: {"choices":[{"text":"a","finish_reason":)";
        const std::string usage =
            R"(data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":)" +
            std::to_string(index == 0 ? 0 : 3 - index) +
            R"(,"prompt_tokens_details":{"cached_tokens":5}}})";
        return ScriptedAnswer{kHead + chunk(text + "null}]}\n\n") + chunk(text + "null}]}\n\n") +
                              chunk(text + "\"stop\"}]}\n\n") + chunk(usage + "\n\n") +
                              chunk("data: [DONE]\n\n") + "0\r\n\r\n"};
    });
    const LevelResult result = run(1, 3, kPatience);
    EXPECT_EQ(result.num_with(Outcome::kOk), 3u);
    EXPECT_EQ(result.num_guessed, 1u);
    EXPECT_EQ(result.num_output_tokens(), 3u + 2 + 1);
    EXPECT_EQ(result.itl_us.count(), 2u + 1 + 0);
    EXPECT_EQ(result.itl_spread_us.count(), 2u + 1 + 0);
    EXPECT_EQ(result.num_prompt_tokens(), 21u);
    EXPECT_EQ(result.num_cached_tokens(), 15u);
}

TEST_F(HttpDoorTest, AnswerThatIsCutOffFailsAndTheOthersDoNot) {
    start([](size_t index) {
        return index % 3 == 0 ? ScriptedAnswer{kHead + token("null"), true}
                              : ScriptedAnswer{good()};
    });
    const LevelResult result = run(1, 6, kPatience);
    EXPECT_EQ(result.num_with(Outcome::kOk), 4u);
    const auto errors = result.errors();
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors.begin()->first, "cut off");
    EXPECT_EQ(errors.begin()->second.count, 2u);
    EXPECT_THAT(errors.begin()->second.sample, HasSubstr("in the middle of its answer"));
}

TEST_F(HttpDoorTest, FailureLeavesTheConnectionToOthersWhereItsAnswerIsWhole) {
    const std::string refusal = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nfull";
    start([&](size_t index) { return ScriptedAnswer{index == 0 ? refusal : good()}; });
    const LevelResult result = run(1, 3, kPatience);
    EXPECT_EQ(result.num_with(Outcome::kOk), 2u);
    EXPECT_EQ(result.errors().begin()->first, "refused (HTTP 429)");
    EXPECT_EQ(result.errors().begin()->second.sample, "full");
    EXPECT_EQ(server_->num_connections(), 2u);
}

TEST_F(HttpDoorTest, RequestThatIsAnsweredBeforeItsEndCostsTheConnection) {
    // More than the sockets hold, and the server answers without reading it.
    const std::string refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig";
    start([&](size_t) { return ScriptedAnswer{refusal}; }, ScriptedServer::Reads::kNothing);
    workload_.prompts = {std::string(size_t{16} << 20, 'x')};
    const LevelResult result = run(1, 2, kPatience);
    EXPECT_EQ(result.errors().begin()->first, "HTTP 413");
    EXPECT_EQ(result.errors().begin()->second.count, 2u);
    EXPECT_EQ(server_->num_connections(), 3u);
}

TEST_F(HttpDoorTest, SilentAnswerIsGivenUpWithItsConnection) {
    // Longer than a busy machine keeps the server from the answers that do come.
    constexpr milliseconds kLimit{5'000};
    start([](size_t index) { return ScriptedAnswer{index == 1 ? kHead + token("null") : good()}; });
    const LevelResult result = run(1, 4, kLimit);
    EXPECT_EQ(result.num_with(Outcome::kOk), 3u);
    EXPECT_EQ(result.errors().begin()->second.code, Code::kDeadlineExceeded);
    EXPECT_EQ(server_->num_connections(), 3u);
}

TEST_F(HttpDoorTest, InterruptKeepsWhatWasMeasured) {
    start([](size_t index) {
        return ScriptedAnswer{index >= 2 ? std::string(kHead) + token("null") : good()};
    });
    observer_ = [&](const LevelProgress& progress) {
        if (progress.num_ok == 2 && progress.num_tokens > 4) cancellation_.request();
    };
    const LevelResult result = run(2, 100, kPatience);
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.num_with(Outcome::kOk), 2u);
    EXPECT_EQ(result.num_with(Outcome::kCancelled), 2u);
}

TEST_F(HttpDoorTest, ServerThatIsGoneFailsEachRequest) {
    start([](size_t) { return ScriptedAnswer{good()}; });
    EXPECT_EQ(run(1, 1, kPatience).num_with(Outcome::kOk), 1u);
    server_.reset();
    const LevelResult result = run(2, 4, kPatience);
    EXPECT_EQ(result.num_with(Outcome::kFailed), 4u);
    EXPECT_EQ(result.errors().begin()->first, "cannot connect");
    EXPECT_THAT(result.errors().begin()->second.sample, HasSubstr("connection refused"));
}

}  // namespace
}  // namespace afd::client

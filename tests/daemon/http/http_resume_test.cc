// SPDX-License-Identifier: Apache-2.0
//
// Streams that are resumed over HTTP. Oracle: what the first connection has read and what the
// second one reads are together what a third one reads from the start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/http/answer/event_numbers.h"
#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kAsked =
    R"({"prompt":"abc","max_tokens":6,"stream":true,"resumable_ms":60000,)"
    R"("stream_options":{"include_usage":true}})";

class HttpResumeTest : public HttpSessionTest {
  protected:
    HttpResumeTest() {
        config_.resume_grace_ms = 60'000;
        config_.resume_buffer_kib = 1024;
        config_.detached_requests_max = 4;
    }

    // The id, from the head, which comes before any token.
    std::string resume_id(HttpClient& client) {
        EXPECT_TRUE(run_until(loop_, [&] {
            client.receive();
            return client.in.find("\r\n\r\n") != std::string::npos;
        }));
        const HttpClient::Answer head{200, client.in.substr(0, client.in.find("\r\n\r\n") + 2), ""};
        return HttpClient::header(head, "X-Afd-Resume");
    }

    void wait_for(HttpClient& client, const std::string& part) {
        EXPECT_TRUE(run_until(loop_, [&] {
            client.receive();
            return client.in.find(part) != std::string::npos;
        })) << client.in;
    }

    static void resume(HttpClient& client, const std::string& id, const std::string& last = "") {
        client.get("/v1/resume/" + id, last.empty() ? "" : "Last-Event-ID: " + last + "\r\n");
    }
};

TEST(EventNumbers, NumbersEventsFromOneAndLeavesOutThoseReceived) {
    EventNumbers all(0);
    EXPECT_EQ(all.take("data: a\n\ndata: b\n\n"), "id: 1\ndata: a\n\nid: 2\ndata: b\n\n");
    EXPECT_EQ(all.take(": ping\n\n"), ": ping\n\n");
    EXPECT_EQ(all.take("data: c\n\n"), "id: 3\ndata: c\n\n");
    EventNumbers rest(2);
    EXPECT_EQ(rest.take("data: a\n\n"), "");
    EXPECT_TRUE(rest.is_behind_client());
    EXPECT_EQ(rest.take("data: b\n\ndata: c\n\n"), "id: 3\ndata: c\n\n");
    EXPECT_FALSE(rest.is_behind_client());
}

TEST_F(HttpResumeTest, BothPartsAreTheWholeStream) {
    const auto first = connect();
    first->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    const std::string name = resume_id(*first);
    EXPECT_EQ(name.size(), 32U) << "before the first token: " << first->in;
    say(id, "xy");
    wait_for(*first, "id: 2\n");
    first->close();
    run_for(loop_, 20, [] { return false; });
    EXPECT_FALSE(instance_.has_next()) << "it is not cancelled";
    say(id, "zu");
    const auto second = connect();
    resume(*second, name, "2");
    EXPECT_EQ(resume_id(*second), name);
    wait_for(*second, "id: 4\n");
    say(id, "vw");
    end(id);
    const Answer rest = next(*second);
    EXPECT_EQ(rest.status, 200);
    EXPECT_THAT(rest.body, StartsWith("id: 3\ndata: "));
    EXPECT_THAT(rest.body, HasSubstr(R"("usage":{"prompt_tokens":3,"completion_tokens":6)"));
    EXPECT_THAT(rest.body, EndsWith("id: 9\ndata: [DONE]\n\n"));
    const auto third = connect();
    resume(*third, name);
    const Answer whole = next(*third);
    EXPECT_THAT(whole.body, StartsWith("id: 1\ndata: "));
    EXPECT_THAT(whole.body, EndsWith(rest.body));
    EXPECT_EQ(whole.body.find("id: 3\n"), whole.body.size() - rest.body.size());
    resume(*third, name, "9");
    const Answer nothing = next(*third);
    EXPECT_EQ(nothing.status, 200);
    EXPECT_EQ(nothing.body, "");
    resume(*third, name, "10");
    const Answer beyond = next(*third);
    EXPECT_EQ(beyond.status, 400);
    EXPECT_THAT(beyond.body, HasSubstr("Last-Event-ID = 10: the stream has ended"));
    resume(*third, name, "8");
    EXPECT_EQ(next(*third).body, "id: 9\ndata: [DONE]\n\n") << "it is kept, and so is the client";
}

TEST_F(HttpResumeTest, HalfACharacterIsNotLost) {
    const auto first = connect();
    first->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    const std::string name = resume_id(*first);
    // Half a character: its event is empty, and its text comes with the next one.
    say(id, "a\xc3");
    wait_for(*first, "id: 2\n");
    first->close();
    run_for(loop_, 20, [] { return false; });
    const auto second = connect();
    resume(*second, name, "2");
    say(id, "\xa4");
    wait_for(*second, "id: 3\n");
    EXPECT_THAT(second->in, HasSubstr("\xc3\xa4"));
}

TEST_F(HttpResumeTest, TheConnectionThatHadItIsToldWhoHasItNow) {
    const auto first = connect();
    first->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    const std::string name = resume_id(*first);
    say(id, "xy");
    const auto second = connect();
    resume(*second, name, "1");
    const Answer lost = next(*first);
    EXPECT_THAT(lost.body, HasSubstr(R"("code":"resumed_elsewhere")"));
    EXPECT_EQ(lost.body.find("id: 3"), std::string::npos)
        << "an error is no event that could be said again";
    say(id, "zuvw");
    end(id);
    EXPECT_THAT(next(*second).body, StartsWith("id: 2\n"));
}

// Goal: a client hears why in words of its own protocol. Method: a stream that has made more than
// output_buffer_kib.
TEST_F(HttpResumeTest, AStreamThatIsTooLongToBeMadeAnewSaysSo) {
    const auto first = connect();
    first->post(kCompletions,
                R"({"prompt":"abc","max_tokens":4000,"stream":true,"resumable_ms":60000})");
    const uint64_t id = next_admitted();
    const std::string name = resume_id(*first);
    for (int i = 0; i < 300; ++i) {
        say(id, "0123456789");
        wait_for(*first, "id: " + std::to_string(10 * (i + 1)) + "\n");
    }
    first->close();
    run_for(loop_, 20, [] { return false; });
    const auto second = connect();
    resume(*second, name, "3000");
    const Answer answer = next(*second);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr(R"("param":null,"code":"resume_too_long")"));
    EXPECT_THAT(answer.body, HasSubstr("output_buffer_kib"));
}

TEST_F(HttpResumeTest, WhatCannotBeResumedSaysWhy) {
    const auto client = connect();
    resume(*client, "0123456789abcdef0123456789abcdef");
    Answer answer = next(*client);
    EXPECT_EQ(answer.status, 404);
    EXPECT_THAT(answer.body, HasSubstr(R"("code":"resume_id_not_found")"));
    client->send("HEAD /v1/resume/abc HTTP/1.1\r\nHost: localhost\r\n\r\n");
    answer = next(*client, true);
    EXPECT_EQ(answer.status, 405);
    EXPECT_EQ(HttpClient::header(answer, "Allow"), "GET, OPTIONS");
    resume(*client, "abc", "x");
    answer = next(*client);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr("Last-Event-ID must be"));
    for (const char* body : {R"({"prompt":"a","resumable_ms":5})",
                             R"({"prompt":"a","resumable_ms":5,"stream":true,"n":2})",
                             R"({"prompt":["a","b"],"resumable_ms":5,"stream":true})",
                             R"({"prompt":"a","resumable_ms":5,"stream":true,"echo":true})"}) {
        client->post(kCompletions, body);
        answer = next(*client);
        EXPECT_EQ(answer.status, 400) << body;
        EXPECT_THAT(answer.body, HasSubstr("resumable_ms is for streams of one choice"));
    }
}

// A place that is not there yet would be an event that is left out when it comes.
TEST_F(HttpResumeTest, AnEventThatIsNotThereYetIsRefusedAndTheRequestGoesOn) {
    const auto first = connect();
    first->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    const std::string name = resume_id(*first);
    say(id, "xy");
    first->close();
    run_for(loop_, 20, [] { return false; });
    const auto second = connect();
    resume(*second, name, "3");
    const Answer answer = next(*second);
    EXPECT_EQ(answer.status, 400) << answer.body;
    expect_closed(*second);
    run_for(loop_, 20, [] { return false; });
    EXPECT_FALSE(instance_.has_next());
    const auto third = connect();
    resume(*third, name, "2");
    say(id, "zuvw");
    end(id);
    EXPECT_THAT(next(*third).body, StartsWith("id: 3\n"));
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// HTTP connections over the real gateway and scripted workers. Goal: whatever a client sends, and
// however it goes away, it gets the answer that is defined, and costs nobody else. Method: bytes
// through a socket pair; the test says what the workers answer. Oracle: status, body, whether the
// connection goes on, and what the workers were told.
// What is beyond a limit: http_session_limits_test.
#include "daemon/http/http_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/chat/template/chatml_template.h"
#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Answer = HttpClient::Answer;

TEST_F(HttpSessionTest, AnswersACompletionInOnePiece) {
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"abc","max_tokens":3})", "X-Request-Id: mine-1\r\n");
    const uint64_t id = next_admitted();
    say(id, "xyz");
    end(id);
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(HttpClient::header(answer, "Content-Type"), "application/json");
    EXPECT_EQ(HttpClient::header(answer, "X-Request-Id"), "mine-1");
    const json body = json::parse(answer.body);
    EXPECT_EQ(body["choices"][0]["text"], "xyz");
    EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
}

TEST_F(HttpSessionTest, StreamsEventsAsTokensCome) {
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"abc","max_tokens":3,"stream":true,"zebra":1})");
    const uint64_t id = next_admitted();
    say(id, "\xc3");
    say(id, "\xa9");
    ASSERT_TRUE(run_until(loop_, [&] {
        client->receive();
        return client->in.find("\"text\":\"\xc3\xa9\"") != std::string::npos;
    })) << "the first character waits for the end";
    say(id, "z");
    end(id);
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(HttpClient::header(answer, "Content-Type"), "text/event-stream; charset=utf-8");
    EXPECT_EQ(HttpClient::header(answer, "Cache-Control"), "no-cache");
    EXPECT_EQ(HttpClient::header(answer, "X-Accel-Buffering"), "no");
    EXPECT_EQ(HttpClient::header(answer, "X-Ignored-Params"), "zebra");
    EXPECT_TRUE(HttpClient::header(answer, "X-Request-Id").starts_with("req-"));
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200) << "the connection goes on behind a stream";
}

TEST_F(HttpSessionTest, StreamsToHttp10UntilTheEndOfTheConnection) {
    const auto client = connect();
    const std::string body = R"({"prompt":"a","max_tokens":1,"stream":true})";
    client->send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                 "\r\n\r\n" + body);
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    expect_closed(*client);
    const Answer answer = next(*client);
    EXPECT_EQ(answer.head.find("chunked"), std::string::npos) << answer.head;
    EXPECT_TRUE(answer.body.starts_with("data: {")) << answer.body;
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpSessionTest, ServesPipelinedRequestsInTheirOrder) {
    const auto client = connect();
    client->send(HttpClient::post_bytes(kCompletions, R"({"prompt":"a","max_tokens":1})") +
                 "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" +
                 HttpClient::post_bytes("/tokenize", R"({"prompt":"hi"})"));
    const uint64_t id = next_admitted();
    EXPECT_FALSE(client->next()) << "the second one has overtaken the first";
    say(id, "x");
    end(id);
    EXPECT_EQ(json::parse(next(*client).body)["object"], "text_completion");
    EXPECT_EQ(json::parse(next(*client).body)["data"][0]["id"], "tiny");
    EXPECT_EQ(json::parse(next(*client).body)["tokens"], json({'h', 'i'}));
}

TEST_F(HttpSessionTest, CancelsWhatAClientThatHasGoneAskedFor) {
    for (const bool is_half_closed : {false, true}) {
        const auto client = connect();
        client->post(kCompletions, R"({"prompt":"a","max_tokens":9,"stream":true})");
        const uint64_t id = next_admitted();
        say(id, "x");
        if (is_half_closed) {
            client->shut_write();
        } else {
            client->close();
        }
        ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
        EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
        end(id);
        ASSERT_TRUE(run_until(loop_, [&] { return gateway_->num_in_flight() == 0; }));
        if (is_half_closed) expect_closed(*client);
    }
}

TEST_F(HttpSessionTest, AnswersBeforeItNoticesThatTheClientClosedItsSide) {
    const auto client = connect();
    client->get("/v1/models");
    client->shut_write();
    EXPECT_EQ(next(*client).status, 200);
    expect_closed(*client);
}

// Goal: a model that goes on behind the one call that it may make is stopped. Method: a model that
// writes two. Oracle: what the worker is told, and the answer.
TEST_F(HttpSessionTest, StopsAModelBehindTheOnlyCallThatItMayMake) {
    services_->model.chat =
        std::make_shared<model::ChatmlTemplate>("", model::ChatmlThinking::kNone, true);
    const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n";
    for (const char* stream : {"false", "true"}) {
        const auto client = connect();
        client->post("/v1/chat/completions",
                     std::string(R"({"messages":[{"role":"user","content":"Go"}],"stream":)") +
                         stream +
                         R"(,"tools":[{"type":"function","function":{"name":"f"}}],)"
                         R"("parallel_tool_calls":false})");
        const uint64_t id = next_admitted();
        say(id, call);
        ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); })) << stream;
        EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
        say(id, call);
        end(id, Code::kCancelled);
        const Answer answer = next(*client);
        EXPECT_EQ(answer.status, 200) << answer.body;
        EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"tool_calls")"));
        const size_t first = answer.body.find(R"("name":"f")");
        ASSERT_NE(first, std::string::npos) << answer.body;
        EXPECT_EQ(answer.body.find(R"("name":"f")", first + 1), std::string::npos) << answer.body;
        client->get("/v1/models");
        EXPECT_EQ(next(*client).status, 200);
    }
}

// A prompt that fills the context has no room to be scored in; one token less has.
TEST_F(HttpSessionTest, ScoresPromptsThatLeaveRoomForOneToken) {
    const auto client = connect();
    const auto score = [&](size_t num_tokens) {
        client->post(kCompletions,
                     R"({"prompt":")" + std::string(num_tokens, 'a') +
                         R"(","echo":true,"logprobs":0,"max_tokens":0})");
    };
    score(4096);
    const Answer refused = next(*client);
    EXPECT_EQ(refused.status, 400);
    const json error = json::parse(refused.body)["error"];
    EXPECT_EQ(error["param"], "prompt");
    EXPECT_EQ(error["message"],
              "the prompt has 4096 tokens, and to score it takes one more: at most 4096 fit, the "
              "context length of the model");
    score(4095);
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    EXPECT_EQ(next(*client).status, 200);
}

TEST_F(HttpSessionTest, ErrorBeforeTheFirstTokenHasAStatus) {
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"a","max_tokens":9,"stream":true})");
    const uint64_t id = next_admitted();
    end(id, Code::kUnavailable, "the FFN worker is gone");
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(HttpClient::header(answer, "Retry-After"), "5");
    EXPECT_EQ(json::parse(answer.body)["error"]["code"], "worker_lost");
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200);
}

TEST_F(HttpSessionTest, ErrorBehindTheFirstTokenIsAnEventAndTheEnd) {
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"a","max_tokens":9,"n":2,"stream":true})");
    const uint64_t first = next_admitted();
    const uint64_t second = next_admitted();
    say(first, "x");
    end(second, Code::kInternal, "a bug");
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr(R"("type":"server_error")"));
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
    expect_closed(*client);
    // The other choice is not worth going on with.
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), first);
}

TEST_F(HttpSessionTest, NeedsAKeyIfThereIsOne) {
    const auto keys = ApiKeys::load("", "0123456789abcdef");
    ASSERT_TRUE(keys.ok());
    services_->keys = keys.value();
    const auto client = connect();
    client->get("/v1/models");
    Answer answer = next(*client);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(HttpClient::header(answer, "WWW-Authenticate"), "Bearer");
    EXPECT_EQ(json::parse(answer.body)["error"]["code"], "invalid_api_key");
    client->get("/v1/models", "Authorization: Bearer 0123456789abcdeF\r\n");
    EXPECT_EQ(next(*client).status, 401);
    client->get("/health?deep=1");
    EXPECT_EQ(next(*client).status, 401);
    client->get("/v1/models", "Authorization: Bearer 0123456789abcdef\r\n");
    EXPECT_EQ(next(*client).status, 200);
    for (const char* open : {"/live", "/ready", "/health"}) {
        client->get(open);
        EXPECT_EQ(next(*client).status, 200) << open;
    }
}

TEST_F(HttpSessionTest, ProbesTellLoadingServingAndDraining) {
    const auto client = connect();
    const auto ask = [&](const std::string& path) {
        client->get(path);
        const Answer answer = next(*client);
        return std::to_string(answer.status) + " " +
               json::parse(answer.body)["status"].get<std::string>();
    };
    EXPECT_EQ(ask("/ready"), "200 ok");
    instance_.state = "starting";
    EXPECT_EQ(ask("/ready"), "503 loading");
    EXPECT_EQ(ask("/live"), "200 ok");
    instance_.state = "halted";
    EXPECT_EQ(ask("/ready"), "503 halted");
    EXPECT_EQ(ask("/live"), "200 ok");
    instance_.state = "failed";
    EXPECT_EQ(ask("/ready"), "503 failed");
    EXPECT_EQ(ask("/live"), "503 failed");
    instance_.state = "ready";
    gateway_->drain();
    EXPECT_EQ(ask("/health"), "503 draining");
    EXPECT_EQ(ask("/live"), "200 ok");
    client->post(kCompletions, R"({"prompt":"a"})");
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(json::parse(answer.body)["error"]["code"], "draining");
}

TEST_F(HttpSessionTest, DeepProbeRunsOneToken) {
    const auto client = connect();
    client->get("/health?deep=1");
    uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    EXPECT_EQ(next(*client).status, 200);
    client->get("/health?deep=1");
    id = next_admitted();
    end(id, Code::kDeadlineExceeded, "nobody answered");
    EXPECT_EQ(next(*client).status, 504);
    for (const char* path : {"/health?verbose&deep=1", "/ready?deep=true"}) {
        client->get(path);
        id = next_admitted();
        say(id, "x");
        end(id);
        EXPECT_EQ(next(*client).status, 200) << path;
    }
    client->get("/health?deeper=1&deep=0");
    EXPECT_EQ(next(*client).status, 200);
    EXPECT_FALSE(instance_.has_next());
}

TEST_F(HttpSessionTest, HeadAndOptionsHaveNoBody) {
    const auto client = connect();
    client->send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(HttpClient::header(next(*client, true), "Content-Length"), "0");
    client->send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(HttpClient::header(next(*client), "Allow"), "POST, OPTIONS");
    client->get("/v1/models/tiny");
    EXPECT_EQ(json::parse(next(*client).body)["max_model_len"], 3000) << "what is not refused";
    client->get("/v1/models/t%69%6Ey");
    EXPECT_EQ(json::parse(next(*client).body)["id"], "tiny");
    client->get("/v1/models/tiny%2");
    EXPECT_EQ(next(*client).status, 404);
    client->get("/v1/models/other");
    EXPECT_EQ(next(*client).status, 404);
    EXPECT_TRUE(client->in.empty());
}

TEST_F(HttpSessionTest, SaysThatItWaitsForTheBody) {
    const auto client = connect();
    client->send(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        "Content-Length: 15\r\n\r\n");
    EXPECT_EQ(next(*client).status, 100);
    client->send(R"({"prompt":"hi"})");
    EXPECT_EQ(json::parse(next(*client).body)["count"], 2);
}

TEST_F(HttpSessionTest, DetokenizesWhatTokenizeGave) {
    const auto client = connect();
    client->post("/detokenize", R"({"tokens":[228,189,160]})");
    EXPECT_EQ(json::parse(next(*client).body)["prompt"], "\xe4\xbd\xa0");
    client->post("/detokenize", R"({"tokens":[104,105,256]})");
    EXPECT_EQ(json::parse(next(*client).body)["prompt"], "hi<|end|>");
    client->post("/detokenize", R"({"tokens":[104,105,256],"skip_special_tokens":true})");
    EXPECT_EQ(json::parse(next(*client).body)["prompt"], "hi");
    client->post("/tokenize", R"({"prompt":"hi","return_token_strs":true})");
    EXPECT_EQ(HttpClient::header(next(*client), "X-Ignored-Params"), "return_token_strs");
    client->post("/detokenize", R"({"tokens":[257]})");
    EXPECT_THAT(next(*client).body, HasSubstr("tokens[0] = 257: must be below"));
    client->post("/tokenize", R"({"prompt":")" + std::string(5000, 'a') + R"("})");
    EXPECT_THAT(next(*client).body, HasSubstr("context_length_exceeded"));
}

}  // namespace
}  // namespace afd::daemon

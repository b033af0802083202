// SPDX-License-Identifier: Apache-2.0
//
// What clients send that is wrong, too much, too slow or half. Goal, method and oracle: as in
// http_session_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "model/chat/template/chatml_template.h"
#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_F(HttpSessionTest, ReadsAheadUpToABoundOnly) {
    services_ = make_services({.bytes_max = size_t{8} << 20, .timeout_ms = 60'000});
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"a","max_tokens":1})");
    const uint64_t id = next_admitted();
    std::string many;
    for (int i = 0; i < 2000; ++i) many += "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client->send(many);
    run_for(loop_, 50, [] { return false; });
    EXPECT_LE(services_->budget->bytes(), HttpSession::kAheadBytesMax + (64U << 10));
    say(id, "x");
    end(id);
    EXPECT_EQ(json::parse(next(*client).body)["object"], "text_completion");
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(next(*client).status, 200) << i;
    EXPECT_EQ(services_->budget->bytes(), 0U);
}

// Goal: one choice that is refused refuses the call, and the others do not run on. Method: more
// choices than the queue holds. Oracle: 429, and the gateway is empty.
TEST_F(HttpSessionTest, FullQueueRefusesTheWholeCall) {
    config_.max_sequences = 8;
    const auto client = connect();
    client->post(kCompletions, R"({"prompt":"a","max_tokens":9,"n":16})");
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 429);
    EXPECT_EQ(HttpClient::header(answer, "Retry-After"), "1");
    EXPECT_EQ(json::parse(answer.body)["error"]["type"], "rate_limit_error");
    std::vector<uint64_t> admitted;
    ASSERT_TRUE(run_until(loop_, [&] {
        while (instance_.has_next()) {
            const auto message = instance_.next().second;
            if (message.has_admit()) admitted.push_back(message.admit().sequence_id());
            if (message.has_cancel()) end(message.cancel().sequence_id());
        }
        return gateway_->num_in_flight() == 0;
    }));
    EXPECT_EQ(admitted.size(), 8U);
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200);
}

// Goal: a client that does not read ends itself only. Method: a small socket buffer, a stream
// beyond output_buffer_kib, and nobody who reads; another client. Oracle: the worker is told to
// stop, the slow client finds the error at the end of what it reads later, the other is served.
TEST_F(HttpSessionTest, SlowReaderIsEndedWithAnError) {
    const auto slow = connect(4096);
    const auto other = connect();
    slow->post(kCompletions, R"({"prompt":"a","max_tokens":4000,"stream":true})");
    const uint64_t id = next_admitted();
    for (int i = 0; i < 3000 && !instance_.has_next(); ++i) say(id, "x");
    ASSERT_TRUE(instance_.has_next()) << "it may leave everything unread";
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    end(id);
    other->get("/v1/models");
    EXPECT_EQ(next(*other).status, 200);
    const Answer answer = next(*slow);
    EXPECT_THAT(answer.body, HasSubstr("the client reads too slowly"));
    EXPECT_THAT(answer.body, HasSubstr(R"("code":"client_too_slow")"));
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
    expect_closed(*slow);
}

// What a worker says of `num` tokens of a prompt, from token 1 on, or of one token behind it.
control::Events scored_prompt(uint64_t id, uint32_t num, uint32_t num_top) {
    control::Events events;
    control::PromptLogprobsEvent& run = *events.add_prompt_logprobs();
    run.set_sequence_id(id);
    run.set_first_position(1);
    for (uint32_t i = 0; i < num * num_top; ++i) {
        if (i % num_top == 0) run.add_values(-1.5F);
        run.add_top_ids(i % num_top);
        run.add_top_logprobs(-0.123456F);
    }
    return events;
}
control::Events scored_token(uint64_t id, uint32_t num_top) {
    control::Events events = token_event(id, 'x');
    for (uint32_t i = 0; i < num_top; ++i) {
        events.mutable_tokens(0)->add_top_ids(i);
        events.mutable_tokens(0)->add_top_logprobs(-0.123456F);
    }
    return events;
}

// Goal: what a stream says of a long prompt at once is no sign of a slow reader; who then does not
// read what comes behind it is one. Method: log probabilities beyond three times output_buffer_kib,
// in one piece, to a client that reads them as they come, and to one that reads when its request
// has ended. Oracle: the whole stream for the former; for the latter the error behind what there
// was until then, and the end mark.
TEST_F(HttpSessionTest, ALongScoredPromptInAStreamIsNoSlowReader) {
    constexpr uint32_t kTop = 20;
    json body = {{"echo", true}, {"logprobs", kTop}, {"stream", true}};
    for (uint32_t i = 0; i < 1000; ++i) body["prompt"].push_back('a' + i % 26);
    for (const bool reads : {true, false}) {
        const int num_tokens = reads ? 3 : 2000;
        body["max_tokens"] = num_tokens;
        const auto client = connect(4096);
        client->post(kCompletions, body.dump());
        const uint64_t id = next_admitted();
        gateway_->on_events(0, scored_prompt(id, 999, kTop));
        ASSERT_FALSE(instance_.has_next()) << "it is told to stop";
        for (int i = 0; i < num_tokens && !instance_.has_next(); ++i) {
            gateway_->on_events(0, scored_token(id, kTop));
        }
        if (!reads) {
            ASSERT_TRUE(instance_.has_next()) << "it may leave everything unread";
            EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
        }
        end(id);
        run_for(loop_, 20, [] { return false; });
        EXPECT_EQ(gateway_->num_connections(), 1U);
        const Answer answer = next(*client);
        EXPECT_GT(answer.body.size(), 3 * config_.output_buffer_kib * 1024);
        EXPECT_THAT(answer.body, HasSubstr(R"("token_logprobs":[null,-1.5,)"));
        EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
        const bool has_error = answer.body.find("client_too_slow") != std::string::npos;
        EXPECT_EQ(has_error, !reads);
        if (!reads) expect_closed(*client);
    }
}

// An answer beyond twice output_buffer_kib, at once.
TEST_F(HttpSessionTest, LargeWholeAnswerIsNoSlowReader) {
    const auto client = connect(4096);
    client->post(kCompletions,
                 R"({"prompt":"a","max_tokens":4000,"n":4,"logprobs":0,"return_token_ids":true})");
    for (int i = 0; i < 4; ++i) {
        const uint64_t id = next_admitted();
        say(id, std::string(4000, 'x'));
        end(id);
    }
    run_for(loop_, 20, [] { return false; });
    const Answer answer = next(*client);
    EXPECT_GT(answer.body.size(), 2 * config_.output_buffer_kib * 1024);
    EXPECT_EQ(json::parse(answer.body)["choices"][3]["token_ids"].size(), 4000U);
}

// Goal: a long answer that nobody takes is not kept for ever, and one that is taken slowly is not
// cut off. Method: whole answers beyond output_buffer_kib; a client that takes nothing, and one
// that takes a part several times in each unread_ms, for longer than two of those. Oracle: the
// connection of the former is gone, and the latter has its whole answer.
TEST_F(HttpSessionTest, AWholeAnswerIsKeptWhileItIsTaken) {
    services_->unread_ms = 400;
    for (const bool takes : {false, true}) {
        const auto client = connect(4096);
        client->post(
            kCompletions,
            R"({"prompt":"a","max_tokens":4000,"n":2,"logprobs":0,"return_token_ids":true})");
        for (int i = 0; i < 2; ++i) {
            const uint64_t id = next_admitted();
            say(id, std::string(4000, 'x'));
            // The time of the loop, from which the answer's counts.
            run_for(loop_, 1, [] { return false; });
            end(id);
        }
        EXPECT_EQ(gateway_->num_connections(), 1U);
        if (!takes) {
            EXPECT_TRUE(run_until(loop_, [&] { return gateway_->num_connections() == 0; }));
            continue;
        }
        const uint64_t begin_ms = loop_.now_ms();
        uint64_t last_ms = begin_ms;
        std::optional<Answer> answer;
        ASSERT_TRUE(run_until(loop_, [&] {
            if (loop_.now_ms() - last_ms < services_->unread_ms / 5) return false;
            last_ms = loop_.now_ms();
            answer = client->next();
            return answer.has_value() || client->is_closed;
        }));
        ASSERT_TRUE(answer.has_value()) << "cut off";
        EXPECT_EQ(json::parse(answer->body)["choices"][1]["token_ids"].size(), 4000U);
        EXPECT_GT(loop_.now_ms() - begin_ms, 2 * services_->unread_ms) << "this tests nothing";
    }
}

// Goal: a connection in use keeps its place, also if the gateway hears nothing of what it is used
// for. Method: a gateway of one place and no idle time; half a body, its answer from elsewhere than
// the gateway, an answer that is not read. Oracle: who is refused, and the whole answers.
TEST_F(HttpSessionTest, AConnectionInUseKeepsItsPlace) {
    config_.idle_timeout_ms = 0;
    gateway_->limit_connections(1);
    const auto first = connect(4096);
    const std::string asked = HttpClient::post_bytes("/tokenize", R"({"prompt":"hi"})");
    first->send(asked.substr(0, asked.size() - 5));
    ASSERT_TRUE(run_until(loop_, [&] { return services_->budget->bytes() > 0; }));
    EXPECT_EQ(next(*connect()).status, 429) << "half a body";
    first->send(asked.substr(asked.size() - 5));
    EXPECT_EQ(json::parse(next(*first).body)["count"], 2);

    first->post(kCompletions,
                R"({"prompt":"a","max_tokens":4000,"logprobs":0,"return_token_ids":true})");
    const uint64_t id = next_admitted();
    say(id, std::string(4000, 'x'));
    end(id);
    config_.idle_timeout_ms = 300;
    EXPECT_EQ(next(*connect()).status, 429) << "an answer that is being read";
    EXPECT_EQ(json::parse(next(*first).body)["choices"][0]["token_ids"].size(), 4000U);

    run_for(loop_, 600, [] { return false; });
    first->post("/tokenize", R"({"prompt":"hi"})");
    EXPECT_EQ(next(*first).status, 200);
    EXPECT_EQ(next(*connect()).status, 429) << "it has just been answered";
    config_.idle_timeout_ms = 0;
    const auto last = connect();
    last->get("/v1/models");
    EXPECT_EQ(next(*last).status, 200);
    expect_closed(*first);
}

// Goal: a session that only waits for its last bytes to leave ends when its client has gone.
// Method: a whole answer to the last request of a connection, of which the client reads nothing
// before it closes, which resets the connection. Oracle: the connection is gone, and a drain has
// its end.
TEST_F(HttpSessionTest, AClientThatResetsWhileItsLastAnswerWaitsIsGone) {
    const auto client = connect(4096);
    client->post(kCompletions,
                 R"({"prompt":"a","max_tokens":4000,"logprobs":0,"return_token_ids":true})",
                 "Connection: close\r\n");
    const uint64_t id = next_admitted();
    say(id, std::string(4000, 'x'));
    end(id);
    gateway_->drain();
    run_for(loop_, 20, [] { return false; });
    EXPECT_EQ(gateway_->num_connections(), 1U);
    EXPECT_EQ(instance_.num_drains, 0) << "all of it has left: this tests nothing";
    client->close();
    EXPECT_TRUE(run_until(loop_, [&] { return gateway_->num_connections() == 0; }));
    EXPECT_TRUE(run_until(loop_, [&] { return instance_.num_drains == 1; }));
}

// Goal: a text that the tokenizer cannot split is refused for good at every door: who tries it
// again would for ever. The door of the socket: request_test.cc.
TEST_F(HttpSessionTest, ATextBeyondTheTokenizerIsABadRequest) {
    tokenizer_ = make_byte_tokenizer(doubling_normalizer());
    services_->model.chat =
        std::make_shared<model::ChatmlTemplate>("", model::ChatmlThinking::kNone, false);
    const std::string chat = R"({"messages":[{"role":"user","content":"a"}]})";
    const std::tuple<const char*, std::string, const char*> requests[] = {
        {kCompletions, R"({"prompt":"a"})", "prompt"},
        {kCompletions, R"({"prompt":"a","add_special_tokens":false})", "prompt"},
        {"/v1/chat/completions", chat, "messages"},
        {"/tokenize", R"({"prompt":"a"})", "prompt"},
        {"/tokenize", chat, "messages"}};
    const auto client = connect();
    for (const auto& [path, body, param] : requests) {
        client->post(path, body);
        const Answer answer = next(*client);
        EXPECT_EQ(answer.status, 400) << path << body << answer.body;
        EXPECT_EQ(HttpClient::header(answer, "Retry-After"), "") << path << body;
        EXPECT_EQ(json::parse(answer.body)["error"]["param"], param) << path << body;
        EXPECT_THAT(answer.body, HasSubstr("tokenizer.json replaces")) << path << body;
    }
}

struct BadRequest {
    const char* name;
    std::string bytes;
    int status;
    const char* message;
    bool closes;
};

std::vector<BadRequest> answered_requests() {
    const auto post = [](const std::string& body, const std::string& headers = "") {
        return HttpClient::post_bytes(kCompletions, body, headers);
    };
    std::string stops = R"("s0")";
    for (int i = 1; i < 10'000; ++i) stops += ",\"s" + std::to_string(i) + "\"";
    return {
        {"Garbage", "\x01\x02\x03", 400, "no HTTP request", true},
        {"FoldedHeader", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400, "folded", true},
        {"LongTrailer",
         "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
         "2\r\n{}\r\n0\r\nA: " +
             std::string(70'000, 'x') + "\r\n\r\n",
         431,
         "behind the last one, has more than 16384 bytes",
         true},
        {"OtherEncoding",
         "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n"
         "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
         501,
         "other than 'chunked'",
         true},
        {"TooLarge", post(std::string(200'001, ' ')), 413, "more than 200000 bytes", true},
        {"UnknownPath", "GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no /nope", false},
        {"WrongMethod",
         "GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
         405,
         "takes POST, OPTIONS",
         false},
        {"OtherHost", "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "Host", false},
        {"OtherHostThatBeginsLikeThisOne",
         "GET /v1/models HTTP/1.1\r\nHost: 127.evil.example:8000\r\n\r\n",
         403,
         "Host",
         false},
        {"OtherHostWithAnAddressInIt",
         "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n",
         403,
         "Host",
         false},
        {"OtherSite",
         "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
         403,
         "page of another site",
         false},
        {"Text",
         "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
         "Content-Length: 2\r\n\r\n{}",
         415,
         "must be application/json",
         false},
        {"Compressed", post("{}", "Content-Encoding: gzip\r\n"), 415, "Content-Encoding", false},
        {"EmptyBody", post(""), 400, "the body is empty", false},
        {"NoJson", post("{"), 400, "not valid JSON near byte", false},
        {"NoUtf8", post("{\"prompt\":\"\xff\"}"), 400, "not valid JSON near byte", false},
        {"WrongType", post(R"({"prompt":"a","n":"x"})"), 400, "n is a string", false},
        {"AbsurdNumber", post(R"({"prompt":"a","temperature":1e300})"), 400, "temperature", false},
        {"AbsurdTokens",
         post(R"({"prompt":"a","max_tokens":2147483647})"),
         400,
         "together at most 4096 fit",
         false},
        {"TokenOutOfVocabulary", post(R"({"prompt":[999999]})"), 400, "token_ids[0]", false},
        {"EmptyPrompt", post(R"({"prompt":""})"), 400, "the prompt is empty", false},
        {"LongPrompt",
         post(R"({"prompt":")" + std::string(5000, 'a') + R"("})"),
         400,
         "at most 4096 fit",
         false},
        {"ManyStops", post(R"({"prompt":"a","stop":[)" + stops + "]}"), 400, "stop", false},
        {"OtherModel", post(R"({"prompt":"a","model":"b"})"), 404, "served is 'tiny'", false},
    };
}

TEST_F(HttpSessionTest, AnswersBadRequestsAndServesOn) {
    for (const BadRequest& request : answered_requests()) {
        const auto client = connect();
        client->send(request.bytes);
        const Answer answer = next(*client);
        EXPECT_EQ(answer.status, request.status) << request.name << ": " << answer.body;
        const json body = json::parse(answer.body, nullptr, false);
        ASSERT_TRUE(body.is_object()) << request.name << ": " << answer.body;
        EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(request.message))
            << request.name;
        EXPECT_TRUE(body["error"].contains("param") && body["error"].contains("code"));
        if (request.closes) {
            expect_closed(*client);
            EXPECT_EQ(HttpClient::header(answer, "Connection"), "close") << request.name;
        } else {
            client->get("/v1/models");
            EXPECT_EQ(next(*client).status, 200) << request.name;
            client->close();
        }
        EXPECT_EQ(gateway_->num_in_flight(), 0U) << request.name;
    }
}

// Half a request ends with 408, also if bytes trickle in; a stream on another connection goes on.
TEST_F(HttpSessionTest, HalfRequestWaitsForItsTimeoutOnly) {
    services_ = make_services({.bytes_max = size_t{1} << 20, .timeout_ms = 200});
    const auto stream = connect();
    stream->post(kCompletions, R"({"prompt":"a","max_tokens":9,"stream":true})");
    const uint64_t id = next_admitted();
    const auto slow = connect();
    slow->send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 190000\r\n\r\n");
    std::optional<Answer> answer;
    int turn = 0;
    ASSERT_TRUE(run_until(loop_, [&] {
        answer = slow->next();
        if (!answer && !slow->is_closed && ++turn % 50 == 0) slow->send("x");
        return answer.has_value();
    }));
    EXPECT_EQ(answer->status, 408);
    EXPECT_THAT(answer->body, HasSubstr("input_timeout_ms = 200"));
    say(id, "x");
    end(id);
    EXPECT_EQ(next(*stream).status, 200);
    EXPECT_EQ(services_->budget->bytes(), 0U);
}

TEST_F(HttpSessionTest, LargestHalfRequestPaysWhenTheBudgetIsFull) {
    services_ = make_services({.bytes_max = 150'000, .timeout_ms = 60'000});
    const std::string head =
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
    const auto large = connect();
    const auto small = connect();
    large->send(head + std::string(90'000, ' '));
    ASSERT_TRUE(run_until(loop_, [&] { return services_->budget->bytes() >= 90'000; }));
    small->send(head + std::string(70'000, ' '));
    const Answer answer = next(*large);
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr("(input_buffer_kib)"));
    expect_closed(*large);
    small->send(std::string(30'000, ' '));
    EXPECT_EQ(next(*small).status, 400);
}

TEST_F(HttpSessionTest, OneConnectionTooManyHearsWhy) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 5; ++i) clients.push_back(connect());
    const Answer answer = next(*clients.back());
    EXPECT_EQ(answer.status, 429);
    EXPECT_THAT(answer.body, HasSubstr("connections_max"));
    expect_closed(*clients.back());
    clients[0]->get("/v1/models");
    EXPECT_EQ(next(*clients[0]).status, 200);
}

}  // namespace
}  // namespace afd::daemon

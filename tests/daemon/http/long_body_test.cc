// SPDX-License-Identifier: Apache-2.0
//
// Bodies that are too long for the loop. Goal: while one is read, other connections are answered;
// then it is answered as a short one, and a client that is gone leaves nothing behind. Method: the
// thread that reads is held until the test lets it go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/chat/template/qwen_coder_template.h"
#include "tests/daemon/gateway/held_thread.h"
#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Answer = HttpClient::Answer;

class LongBodyTest : public HttpSessionTest {
  protected:
    static constexpr uint32_t kContext = 1 << 14;

    LongBodyTest() : thread_(loop_) {
        ServedModel served;
        served.vocab_size = kByteVocabulary;
        served.context_length = kContext;
        served.stop_ids = {kEndOfText};
        served.tokenizer = &tokenizer_;
        served.texts = &thread_.texts();
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, served, std::vector<TraceSource>(), instance_, instance_);
        gateway_->on_attention_ready(0, 1 << 20);
        services_->model.context_length = kContext;
        ApiModel model = services_->model;
        model.tokenizer = &thread_.texts().tokenizer;
        services_->texts = &thread_.texts();
        services_->model_of_thread = std::make_shared<const ApiModel>(std::move(model));
    }

    // More than the loop reads itself, and less than the context has.
    static std::string ids_body(size_t num_ids) {
        json body = {{"max_tokens", 1}, {"prompt", json::array()}};
        for (size_t i = 0; i < num_ids; ++i) body["prompt"].push_back('a' + i % 26);
        return body.dump();
    }

    HeldThread thread_;
};

TEST_F(LongBodyTest, OthersAreAnsweredWhileOneIsRead) {
    const auto client = connect();
    const auto other = connect();
    client->send(HttpClient::post_bytes(kCompletions, ids_body(2000)) +
                 HttpClient::post_bytes("/tokenize", R"({"prompt":"ab"})"));
    other->get("/v1/models");
    EXPECT_EQ(next(*other).status, 200);
    client->receive();
    EXPECT_EQ(client->in, "");
    thread_.release();
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], 2000);
    EXPECT_EQ(json::parse(next(*client).body)["tokens"], json({97, 98})) << "what was behind it";
}

// Goal: tools have schemas, and of a template whose calls are not JSON these are looked through
// while the body is read: a short body may take long. Oracle: what the worker is told, and when.
TEST_F(LongBodyTest, ToolsAreReadByTheThread) {
    ApiModel model = *services_->model_of_thread;
    model.chat = std::make_shared<model::QwenCoderTemplate>();
    services_->model.chat = model.chat;
    services_->model_of_thread = std::make_shared<const ApiModel>(std::move(model));
    const auto client = connect();
    const auto other = connect();
    client->post("/v1/chat/completions",
                 R"({"max_tokens":1,"messages":[{"role":"user","content":"Hi"}],"tools":[)"
                 R"({"type":"function","function":{"name":"f","parameters":)"
                 R"({"allOf":[{"$ref":"#"},{"$ref":"#"}],"properties":{"a":{}}}}}]})");
    other->get("/v1/models");
    EXPECT_EQ(next(*other).status, 200);
    EXPECT_FALSE(instance_.has_next()) << "the loop has read the tools";
    thread_.release();
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    EXPECT_EQ(next(*client).status, 200);
}

// Its body is read by the thread, and its text with it.
TEST_F(LongBodyTest, LongTextOfACompletion) {
    thread_.release();
    const auto client = connect();
    client->post(kCompletions, json{{"prompt", std::string(6000, 'z')}, {"max_tokens", 1}}.dump());
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], 6000);
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200) << "the connection goes on";
}

// Goal: however many texts a call has, and choices of each, the loop reads none of them. Method: a
// loop's tokenizer to which every text is too much. Oracle: each text is a prompt, and counts once.
TEST_F(LongBodyTest, ManyShortTextsOfACompletion) {
    tokenizer_ = make_byte_tokenizer(doubling_normalizer());
    thread_.release();
    json body = {{"max_tokens", 1}, {"n", 2}, {"prompt", json::array()}};
    for (int i = 0; i < 4; ++i) body["prompt"].push_back(std::string(1500, 'a'));
    const auto client = connect();
    client->post(kCompletions, body.dump());
    for (int i = 0; i < 8; ++i) {
        const uint64_t id = next_admitted();
        say(id, "x");
        end(id);
    }
    const Answer answer = next(*client);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(json::parse(answer.body)["choices"].size(), 8U);
    EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], 6000);
}

// Goal: a stream says by which id it is resumed also when its prompt is read elsewhere. Oracle: the
// head, which comes before any token, and not before there is an id; and what has none is refused
// with its status.
TEST_F(LongBodyTest, AResumableStreamOfALongTextTellsItsId) {
    config_.resume_grace_ms = 60'000;
    config_.resume_buffer_kib = 1024;
    config_.detached_requests_max = 4;
    json body = {{"prompt", std::string(6000, 'z')}, {"max_tokens", 1}, {"stream", true}};
    body["resumable_ms"] = 60'000;
    const auto client = connect();
    client->post(kCompletions, body.dump());
    run_for(loop_, 20, [] { return false; });
    client->receive();
    EXPECT_EQ(client->in, "");
    thread_.release();
    const uint64_t id = next_admitted();
    ASSERT_TRUE(run_until(loop_, [&] {
        client->receive();
        return client->in.find("\r\n\r\n") != std::string::npos;
    }));
    say(id, "x");
    end(id);
    Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(HttpClient::header(answer, "X-Afd-Resume").size(), 32U) << answer.head;
    body["prompt"] = std::string(kContext + 1, 'z');
    client->post(kCompletions, body.dump());
    answer = next(*client);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("at most 16384 fit"));
}

TEST_F(LongBodyTest, TokensOfALongText) {
    thread_.release();
    const auto client = connect();
    client->post("/tokenize",
                 json{{"prompt", std::string(4000, 'z')}, {"pad", std::string(4000, ' ')}}.dump());
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(json::parse(answer.body)["count"], 4000);
}

TEST_F(LongBodyTest, ClientThatIsGoneLeavesNothingBehind) {
    {
        const auto client = connect();
        client->post(kCompletions, ids_body(2000));
        const auto other = connect();
        other->get("/v1/models");
        EXPECT_EQ(next(*other).status, 200);
        EXPECT_EQ(services_->model_of_thread.use_count(), 2) << "the body waits to be read";
    }
    // Also while the thread is busy with something else.
    EXPECT_TRUE(run_until(loop_, [&] { return services_->model_of_thread.use_count() == 1; }));
    const auto last = connect();
    last->post(kCompletions, ids_body(3000));
    thread_.release();
    EXPECT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
    EXPECT_EQ(instance_.next().second.admit().tokens_size(), 3000);
    EXPECT_FALSE(instance_.has_next());
}

// Goal: bodies that wait to be read are bounded, and who pays hears why. Method: bodies of which
// one alone is within what all connections may hold. Oracle: the largest is answered, and the
// others as if it had never come; nothing of it goes on.
TEST_F(LongBodyTest, BodiesThatWaitToBeReadAreBounded) {
    services_->budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = 100'000, .timeout_ms = 60'000});
    const auto client = connect();
    client->post(kCompletions,
                 json{{"prompt", std::string(90'000, 'z')}, {"max_tokens", 1}}.dump(),
                 "X-Request-Id: the-large-one\r\n");
    ASSERT_TRUE(run_until(loop_, [&] { return services_->budget->bytes() > 90'000; }));
    const auto small = connect();
    small->post(kCompletions, json{{"prompt", std::string(12'000, 'y')}, {"max_tokens", 1}}.dump());
    const Answer refusal = next(*client);
    EXPECT_EQ(refusal.status, 503);
    EXPECT_EQ(HttpClient::header(refusal, "Retry-After"), "1");
    EXPECT_EQ(HttpClient::header(refusal, "X-Request-Id"), "the-large-one");
    EXPECT_THAT(refusal.body, HasSubstr("(input_buffer_kib)"));
    EXPECT_THAT(refusal.body, HasSubstr(R"("code":"overloaded")"));
    expect_closed(*client);
    thread_.release();
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    EXPECT_EQ(next(*small).status, 200);
    EXPECT_EQ(services_->budget->bytes(), 0U);
    EXPECT_FALSE(instance_.has_next());
}

// A body near the limit of one, for many choices: it counts once.
TEST_F(LongBodyTest, ManyChoicesOfALongText) {
    services_->budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = 16'000, .timeout_ms = 60'000});
    const auto client = connect();
    client->post(kCompletions,
                 json{{"prompt", std::string(12'000, 'z')}, {"max_tokens", 1}, {"n", 8}}.dump());
    run_for(loop_, 20, [] { return false; });
    thread_.release();
    for (int i = 0; i < 8; ++i) {
        const uint64_t id = next_admitted();
        say(id, "x");
        end(id);
    }
    EXPECT_EQ(next(*client).status, 200);
}

// Goal: also while it is generated, what a client sends ahead is bounded, and it hears why. Oracle:
// the answer before the first token, and the end of the stream behind it.
TEST_F(LongBodyTest, WhatIsSentAheadIsBounded) {
    services_->budget = std::make_shared<InputBudget>(
        InputBudget::Limits{.bytes_max = 10'000, .timeout_ms = 60'000});
    for (const bool has_begun : {false, true}) {
        const auto client = connect();
        client->post(kCompletions, R"({"prompt":"a","max_tokens":9,"stream":true})");
        const uint64_t id = next_admitted();
        if (has_begun) say(id, "x");
        client->send(HttpClient::post_bytes("/tokenize", std::string(20'000, ' ')));
        expect_closed(*client);
        EXPECT_THAT(client->in, testing::StartsWith(has_begun ? "HTTP/1.1 200" : "HTTP/1.1 503"));
        EXPECT_THAT(client->in, testing::Not(HasSubstr("[DONE]")));
        ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
        EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
        end(id);
        EXPECT_EQ(gateway_->num_in_flight(), 0U);
    }
}

// Goal: a drain does not end while a request that has come is read, and half a one holds nothing
// up. Method: a completion and a text to tokenize, both with the thread, at the begin of a drain.
// Oracle: the drain ends when both are answered, the one as what comes too late, the other as ever.
TEST_F(LongBodyTest, ADrainWaitsForTheAnswer) {
    const auto half = connect();
    half->send(HttpClient::post_bytes(kCompletions, ids_body(2000)).substr(0, 6000));
    const auto completion = connect();
    completion->post(kCompletions, ids_body(2000));
    const auto text = connect();
    text->post("/tokenize", json{{"prompt", std::string(5000, 'z')}}.dump());
    // The bodies, and what was read of the half.
    ASSERT_TRUE(run_until(loop_, [&] { return services_->budget->bytes() > 16'000; }));
    gateway_->drain();
    run_for(loop_, 20, [] { return false; });
    EXPECT_EQ(instance_.num_drains, 0);
    thread_.release();
    const Answer refusal = next(*completion);
    EXPECT_EQ(refusal.status, 503);
    EXPECT_THAT(refusal.body, HasSubstr(R"("code":"draining")"));
    const Answer tokens = next(*text);
    EXPECT_EQ(tokens.status, 200);
    EXPECT_EQ(json::parse(tokens.body)["count"], 5000);
    EXPECT_TRUE(run_until(loop_, [&] { return instance_.num_drains == 1; }));
}

TEST_F(LongBodyTest, ErrorsNameTheField) {
    thread_.release();
    const auto client = connect();
    client->post(kCompletions, ids_body(20'000));
    const Answer answer = next(*client);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr("the prompt has 20000 tokens"));
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200) << "the connection goes on";
}

}  // namespace
}  // namespace afd::daemon

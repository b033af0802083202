// SPDX-License-Identifier: Apache-2.0
//
// What is asked of every request, over real connections. Goal: what HTTP says in any letters is
// taken in any letters, and a page of another site gets what http_origins gives it. Method:
// requests that differ in what is looked at. Oracle: the status and the headers of the answers.
#include "daemon/http/request_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;
using CheckedAnswer = HttpClient::Answer;

constexpr const char* kAllowOrigin = "Access-Control-Allow-Origin";

struct Spelling {
    const char* name;
    std::string bytes;
    int status;
};

std::vector<Spelling> spellings() {
    const auto post = [](const std::string& type) {
        return "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + type +
               "\r\nContent-Length: 15\r\n\r\n{\"prompt\":\"hi\"}";
    };
    const auto get = [](const std::string& target, const std::string& host) {
        return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
    };
    return {
        {"MediaType", post("Application/JSON"), 200},
        {"MediaTypeWithBlanks", post("application/json ; charset=utf-8"), 200},
        {"FormInCapitals", post("Application/X-WWW-Form-Urlencoded"), 200},
        {"OtherMediaType", post("application/jsonx"), 415},
        {"HostInCapitals", get("/v1/models", "LocalHost:8000"), 200},
        {"OtherHost", get("/v1/models", "localhost.evil.example"), 403},
        {"WholeTarget", get("http://localhost:8000/v1/models", "evil.example"), 200},
        {"WholeTargetInCapitals", get("HTTP://127.0.0.1/v1/models?a=b", "localhost"), 200},
        {"WholeTargetOfAnotherHost", get("http://evil.example/v1/models", "localhost"), 403},
        {"WholeTargetWithoutPath", get("http://localhost", "localhost"), 200},
        {"WholeServer", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
        {"WholeServerToGet", get("*", "localhost"), 404},
    };
}

TEST_F(HttpSessionTest, TakesWordsOfHttpInAnyLetters) {
    for (const Spelling& spelling : spellings()) {
        const auto client = connect();
        client->send(spelling.bytes);
        const CheckedAnswer answer = next(*client);
        EXPECT_EQ(answer.status, spelling.status) << spelling.name << ": " << answer.body;
    }
    const auto client = connect();
    client->send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(HttpClient::header(next(*client), "Allow"), "GET, HEAD, POST, OPTIONS");
}

TEST_F(HttpSessionTest, TakesTheSchemeOfAKeyInAnyLetters) {
    services_->keys = ApiKeys::load("", "0123456789abcdef").value();
    const auto client = connect();
    for (const char* scheme : {"Bearer ", "bearer ", "BEARER  "}) {
        client->get("/v1/models", std::string("Authorization: ") + scheme + "0123456789abcdef\r\n");
        EXPECT_EQ(next(*client).status, 200) << scheme;
    }
    client->get("/v1/models", "Authorization: Bearer0123456789abcdef\r\n");
    EXPECT_EQ(next(*client).status, 401);
}

// Goal: a proxy on this machine may pass on the name that its clients use; without keys that name
// may be one that a page of another site made lead here.
TEST_F(HttpSessionTest, WithKeysAnyHostIsServed) {
    const auto client = connect();
    client->send("GET /live HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    const CheckedAnswer refused = next(*client);
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("or set http_keys"));
    services_->keys = ApiKeys::load("", "0123456789abcdef").value();
    client->send(
        "GET /v1/models HTTP/1.1\r\nHost: api.example.com\r\n"
        "Authorization: Bearer 0123456789abcdef\r\n\r\n");
    EXPECT_EQ(next(*client).status, 200);
    client->send("GET /v1/models HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    EXPECT_EQ(next(*client).status, 401);
}

TEST_F(HttpSessionTest, NamesThePathThatWasMeant) {
    const auto client = connect();
    const auto message_for = [&](const std::string& path) {
        client->get(path);
        const CheckedAnswer answer = next(*client);
        EXPECT_EQ(answer.status, 404) << path;
        return nlohmann::json::parse(answer.body)["error"]["message"].get<std::string>();
    };
    EXPECT_EQ(message_for("/chat/completions"),
              "there is no /chat/completions; did you mean /v1/chat/completions?");
    EXPECT_EQ(message_for("/v1/v1/models"), "there is no /v1/v1/models; did you mean /v1/models?");
    EXPECT_EQ(message_for("/v1/chat/completion"),
              "there is no /v1/chat/completion; did you mean /v1/chat/completions?");
    EXPECT_EQ(message_for("/metricz"), "there is no /metricz; did you mean /metrics?");
    EXPECT_EQ(message_for("/v1/audio/transcriptions/of/mine"),
              "there is no /v1/audio/transcriptions/of/mine");
}

// Oracle: RFC 9110, 5.6.7 (a server with a clock sends Date).
TEST_F(HttpSessionTest, AnswersHaveADate) {
    const auto client = connect();
    client->get("/live");
    EXPECT_THAT(HttpClient::header(next(*client), "Date"),
                testing::MatchesRegex("[A-Z][a-z][a-z], [0-9][0-9] [A-Z][a-z][a-z] 20[0-9][0-9] "
                                      "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] GMT"));
}

// HTTP/1.0 knows no "100 Continue": its client would take it for the answer.
TEST_F(HttpSessionTest, TellsNobodyOfHttp10ToContinue) {
    const auto client = connect();
    client->send("POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n");
    client->send(R"({"prompt":"hi"})");
    EXPECT_EQ(next(*client).status, 200);
}

TEST_F(HttpSessionTest, APageOfAListedSiteMayAsk) {
    services_->origins = OriginList::parse("https://chat.example, http://localhost:3000").value();
    const auto client = connect();
    const std::string asked =
        "Access-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n\r\n";
    const auto preflight = [&](const std::string& origin) {
        client->send("OPTIONS /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin + "\r\n" +
                     asked);
        return next(*client);
    };
    const auto post = [&](const std::string& origin) {
        client->post("/tokenize", R"({"prompt":"hi"})", "Origin: " + origin + "\r\n");
        return next(*client);
    };
    for (const char* origin : {"https://chat.example", "http://localhost:3000"}) {
        const CheckedAnswer answer = preflight(origin);
        EXPECT_EQ(answer.status, 200) << origin;
        EXPECT_EQ(HttpClient::header(answer, kAllowOrigin), origin);
        EXPECT_EQ(HttpClient::header(answer, "Access-Control-Allow-Methods"), "POST, OPTIONS");
        EXPECT_EQ(HttpClient::header(answer, "Access-Control-Allow-Headers"),
                  "authorization,content-type,x-stainless-os");
        EXPECT_EQ(HttpClient::header(answer, "Vary"), "Origin");
        const CheckedAnswer posted = post(origin);
        EXPECT_EQ(posted.status, 200) << origin;
        EXPECT_EQ(HttpClient::header(posted, kAllowOrigin), origin);
        EXPECT_THAT(HttpClient::header(posted, "Access-Control-Expose-Headers"),
                    HasSubstr("X-Request-Id"));
    }
    for (const char* origin : {"https://chat.example.evil", "http://chat.example", "null"}) {
        for (const CheckedAnswer& answer : {preflight(origin), post(origin)}) {
            EXPECT_EQ(answer.status, 403) << origin;
            EXPECT_EQ(HttpClient::header(answer, kAllowOrigin), "") << origin;
            EXPECT_THAT(answer.body, HasSubstr("which http_origins does not list"));
        }
    }
    // Its own page needs no list, and no headers.
    const CheckedAnswer own = post("http://LOCALHOST");
    EXPECT_EQ(own.status, 200);
    EXPECT_EQ(HttpClient::header(own, kAllowOrigin), "");
    services_->origins = OriginList::parse("*").value();
    EXPECT_EQ(HttpClient::header(post("null"), kAllowOrigin), "null");
}

// Goal: a stream and an error can be read by the page, too.
TEST_F(HttpSessionTest, APageReadsStreamsAndErrors) {
    services_->origins = OriginList::parse("https://chat.example").value();
    const auto client = connect();
    const std::string origin = "Origin: https://chat.example\r\n";
    client->post(kCompletions, R"({"prompt":"a","max_tokens":1,"stream":true})", origin);
    const uint64_t id = next_admitted();
    say(id, "x");
    end(id);
    EXPECT_EQ(HttpClient::header(next(*client), kAllowOrigin), "https://chat.example");
    client->post(kCompletions, "{}", origin);
    const CheckedAnswer refused = next(*client);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(HttpClient::header(refused, kAllowOrigin), "https://chat.example");
    client->get("/v1/models");
    EXPECT_EQ(HttpClient::header(next(*client), kAllowOrigin), "");
}

// A cache must tell apart what is one answer for each page and for each form.
TEST_F(HttpSessionTest, APageIsToldOfAllThatAnAnswerVariesWith) {
    services_->origins = OriginList::parse("https://chat.example").value();
    const auto client = connect();
    client->get("/metrics");
    EXPECT_EQ(HttpClient::header(next(*client), "Vary"), "Accept");
    client->get("/metrics", "Origin: https://chat.example\r\n");
    EXPECT_EQ(HttpClient::header(next(*client), "Vary"), "Accept, Origin");
}

// Every path that takes GET takes HEAD; the others say what they take. Neither has a body.
TEST_F(HttpSessionTest, HeadIsOfWhatTakesGet) {
    const auto client = connect();
    for (const auto& [path, route] : fixed_routes()) {
        client->send("HEAD " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        const CheckedAnswer answer = next(*client, true);
        EXPECT_EQ(answer.status, route.is_post ? 405 : 200) << path;
        EXPECT_NE(HttpClient::header(answer, "Content-Length"), "0") << path;
        EXPECT_TRUE(client->in.empty()) << path << ": " << client->in;
        client->send("OPTIONS " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        const CheckedAnswer options = next(*client);
        EXPECT_EQ(HttpClient::header(options, "Allow"),
                  route.is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS")
            << path;
        EXPECT_EQ(options.body, "") << path;
    }
}

// What comes to clients in any case: the name of the model is bytes of a command line.
TEST_F(HttpSessionTest, AnyNameOfAModelIsAnswered) {
    services_->model.id = "m\xff";
    const auto client = connect();
    client->get("/v1/models");
    const CheckedAnswer answer = next(*client);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(nlohmann::json::parse(answer.body)["data"][0]["id"], "m\uFFFD");
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// What afd-load makes of the bytes of a server of the OpenAI API. Method: texts and bytes, whole
// and cut at every place. Oracle: the standards that the headers name; counts by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "clients/http/event_stream_reader.h"
#include "clients/http/http_response_reader.h"
#include "clients/http/http_url.h"
#include "clients/http/tcp_peer.h"
#include "clients/load/completion_stream.h"
#include "clients/load/http_target.h"
#include "tests/clients/scripted_server.h"

namespace afd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HttpUrl, BaseAddressesWithAndWithoutV1AreOne) {
    for (const char* text : {"http://host:8000", "http://host:8000/", "http://host:8000/v1/"}) {
        const Result<HttpUrl> url = parse_http_url(text);
        ASSERT_TRUE(url.ok()) << text;
        EXPECT_EQ(url.value().authority(), "host:8000");
        EXPECT_EQ(url.value().path("chat/completions"), "/v1/chat/completions");
    }
    EXPECT_EQ(parse_http_url("http://host").value().port, 80);
    EXPECT_EQ(parse_http_url("http://host/a/b/v1").value().path("models"), "/a/b/v1/models");
    const HttpUrl ipv6 = parse_http_url("http://[::1]:81").value();
    EXPECT_EQ(ipv6.host, "::1");
    EXPECT_EQ(ipv6.authority(), "[::1]:81");
}

TEST(HttpUrl, RefusalsSayWhatToWrite) {
    const std::pair<const char*, const char*> cases[] = {
        {"", "does not begin with http://"},
        {"127.0.0.1:8000", "does not begin with http://"},
        {"https://host", "let a program that does end the TLS on this machine"},
        {"http://", "no host"},
        {"http://:80", "no host"},
        {"http://[::1", "no host"},
        {"http://host:0", "a port that is not 1 to 65535"},
        {"http://host:65536", "a port that is not 1 to 65535"},
        {"http://host:http", "a port that is not 1 to 65535"},
        {"http://host:", "a port that is not 1 to 65535"},
        {"http://ho st", "blanks"},
        {"http://host\r\nX: y", "blanks"},
        {"http://me@host", "has no place in it"},
        {"http://host/v1?a=b", "has no place in it"},
        {"http://host/v1/chat/completions", "names one endpoint"},
    };
    for (const auto& [text, why] : cases) {
        const Result<HttpUrl> url = parse_http_url(text);
        ASSERT_FALSE(url.ok()) << text;
        EXPECT_THAT(url.error().message, HasSubstr(why)) << text;
    }
}

// As the reader gives them if the bytes come in pieces of `size`.
std::vector<std::string> events_of(const std::string& bytes, size_t size) {
    EventStreamReader reader;
    std::vector<std::string> events;
    for (size_t i = 0; i < bytes.size(); i += size) {
        EXPECT_TRUE(reader.append(std::string_view(bytes).substr(i, size), events).ok());
    }
    return events;
}

TEST(EventStreamReader, EventsAreTheSameHoweverTheBytesAreCut) {
    const std::string bytes =
        "\xef\xbb\xbf"
        "data: one\n\n: a comment\r\ndata:two\r\ndata: lines\r\n\r\nevent: x\rid: 7\rdata\r\r"
        "\n\nid: nothing\n\ndata:  \xe2\x82\xac\n\ndata: never ends\n";
    for (size_t size = 1; size <= bytes.size(); ++size) {
        EXPECT_THAT(events_of(bytes, size), ElementsAre("one", "two\nlines", "", " \xe2\x82\xac"))
            << size;
    }
}

TEST(EventStreamReader, EventWithoutAnEndIsRefused) {
    EventStreamReader reader;
    std::vector<std::string> events;
    const std::string part(size_t{1} << 20, 'x');
    Result<> read;
    for (int i = 0; i < 17 && read.ok(); ++i) read = reader.append(part, events);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, HasSubstr("more than 16777216 bytes"));
}

TEST(HttpResponseReader, ChunkedBodyIsTheSameHoweverTheBytesAreCut) {
    const std::string bytes =
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\n\xe2\x82\r\n1;x=y\r\n\xac\r\n0\r\n\r\n"
        "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    for (size_t size = 1; size <= bytes.size(); ++size) {
        HttpResponseReader reader;
        std::vector<std::string> bodies(1);
        std::vector<int> statuses;
        for (size_t i = 0; i < bytes.size(); i += size) {
            const Result<> read = reader.append(std::string_view(bytes).substr(i, size));
            ASSERT_TRUE(read.ok()) << read.error().message << size << " " << i;
            // What lies behind a response is read once that is taken.
            while (reader.has_head()) {
                bodies.back() += reader.take_body();
                if (!reader.is_done()) break;
                statuses.push_back(reader.head().status);
                bodies.emplace_back();
                reader.next();
                ASSERT_TRUE(reader.append("").ok());
            }
        }
        EXPECT_THAT(statuses, ElementsAre(200, 429)) << size;
        EXPECT_THAT(bodies, ElementsAre("\xe2\x82\xac", "no", "")) << size;
    }
}

TEST(HttpResponseReader, EndOfTheConnectionEndsWhatHasNoOtherEnd) {
    HttpResponseReader open;
    ASSERT_TRUE(open.append("HTTP/1.0 200 OK\r\n\r\nall").ok());
    EXPECT_FALSE(open.is_done());
    ASSERT_TRUE(open.end().ok());
    EXPECT_TRUE(open.is_done());
    EXPECT_FALSE(open.head().keeps_alive);
    EXPECT_EQ(open.take_body(), "all");

    HttpResponseReader cut;
    ASSERT_TRUE(cut.append("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").ok());
    EXPECT_THAT(cut.end().error().message, HasSubstr("in the middle of its answer"));
    HttpResponseReader empty;
    EXPECT_THAT(empty.end().error().message, HasSubstr("without an answer"));
    HttpResponseReader garbage;
    EXPECT_THAT(garbage.append("SSH-2.0-OpenSSH\r\n\r\n").error().message,
                HasSubstr("the server's bytes are no HTTP"));
}

struct Outcomes {
    std::vector<uint64_t> num_tokens;
    std::string failure;  // Its kind, and its message.
    DoorEvent finished;
};

Outcomes follow(const std::vector<std::string>& events) {
    CompletionStream stream;
    Outcomes outcomes;
    const auto note = [&](const std::optional<Failure>& failure) {
        if (failure) outcomes.failure = failure->kind + ": " + failure->error.message;
        return failure.has_value();
    };
    for (const std::string& data : events) {
        uint64_t num_tokens = 0;
        if (note(stream.take(data, num_tokens))) return outcomes;
        outcomes.num_tokens.push_back(num_tokens);
    }
    if (stream.is_over()) note(stream.finish(outcomes.finished));
    return outcomes;
}

TEST(CompletionStream, TokenIdsAreCounted) {
    const Outcomes outcomes =
        follow({R"({"choices":[{"text":"","token_ids":[1]}]})",
                R"({"choices":[{"text":"ab","token_ids":[2,3],"finish_reason":null}]})",
                R"({"choices":[{"text":"c","finish_reason":"length"}]})",
                R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,)"
                R"("prompt_tokens_details":{"cached_tokens":4}}})",
                "[DONE]"});
    EXPECT_EQ(outcomes.failure, "");
    EXPECT_THAT(outcomes.num_tokens, ElementsAre(1, 2, 0, 0, 0));
    EXPECT_EQ(outcomes.finished.num_tokens, 3u);
    EXPECT_EQ(outcomes.finished.num_prompt_tokens, 5u);
    EXPECT_EQ(outcomes.finished.num_cached_tokens, 4u);
    EXPECT_EQ(outcomes.finished.reason, DoorEvent::Reason::kLength);
    EXPECT_FALSE(outcomes.finished.is_count_guessed);
}

TEST(CompletionStream, TextsOfChatsAreCountedAndCorrectedByUsage) {
    const Outcomes outcomes =
        follow({R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
                R"({"choices":[{"delta":{"reasoning_content":"hm"}}],"usage":null})",
                R"({"choices":[{"delta":{"content":"yes","tool_calls":[]}}]})",
                R"({"choices":[{"delta":{"content":"","tool_calls":[],"refusal":{}}}]})",
                R"({"choices":[{"delta":{"tool_calls":[{}]}}]})",
                R"({"choices":[{"delta":{},"finish_reason":"stop"}]})",
                R"({"choices":[],"usage":{"completion_tokens":9}})",
                "[DONE]"});
    EXPECT_THAT(outcomes.num_tokens, ElementsAre(0, 1, 1, 0, 1, 0, 0, 0));
    EXPECT_EQ(outcomes.finished.num_tokens, 9u);
    EXPECT_FALSE(outcomes.finished.is_count_guessed);

    const Outcomes guessed =
        follow({R"({"choices":[{"text":"a","finish_reason":"stop"}]})", "[DONE]"});
    EXPECT_EQ(guessed.finished.num_tokens, 1u);
    EXPECT_TRUE(guessed.finished.is_count_guessed);

    // No count where there is text, and one where there is none.
    const std::string none = R"({"choices":[],"usage":{"completion_tokens":0}})";
    const Outcomes untold =
        follow({R"({"choices":[{"text":"a","finish_reason":"stop"}]})", none, "[DONE]"});
    EXPECT_EQ(untold.finished.num_tokens, 1u);
    EXPECT_TRUE(untold.finished.is_count_guessed);
    const Outcomes empty =
        follow({R"({"choices":[{"text":"","finish_reason":"stop"}]})", none, "[DONE]"});
    EXPECT_EQ(empty.finished.num_tokens, 0u);
    EXPECT_FALSE(empty.finished.is_count_guessed);
}

TEST(CompletionStream, WhatIsNoWholeAnswerHasAKindOfItsOwn) {
    const std::pair<std::vector<std::string>, const char*> cases[] = {
        {{R"({"error":{"message":"no room","code":500}})"}, "error in band: no room"},
        {{R"({"object":"error","message":"no room"})"}, "error in band: no room"},
        {{R"({"error":"no room"})"}, "error in band: no room"},
        {{"{\"choices\":[{\"text\":\"\xe2\x82\"}]}"}, "malformed answer: an event is no JSON"},
        {{"[]"}, "malformed answer: an event is no JSON object"},
        {{R"({"id":"x"})"}, "malformed answer: an event has no choices and no error"},
        {{R"({"choices":[{"text":"a"}]})", "[DONE]"}, "no finish reason: the answer ended"},
        {{R"({"choices":[{"text":"a","token_ids":[1],"finish_reason":"stop"}],)"
          R"("usage":{"completion_tokens":2}})",
          "[DONE]"},
         "malformed answer: events with 1 token ids, but a usage of 2"},
    };
    for (const auto& [events, failure] : cases) {
        EXPECT_THAT(follow(events).failure, HasSubstr(failure));
    }
}

TEST(HttpTarget, RequestsAreThoseOfTheApi) {
    HttpTarget target;
    target.url = parse_http_url("http://host:8000/p").value();
    target.options.model = "m";
    target.options.api_key = "k";
    Workload workload;
    workload.prompts = {"a\"b\xff"};
    const std::string completion = completion_request(target, workload, {0, 0, 7, 9});
    EXPECT_THAT(completion, ::testing::StartsWith("POST /p/v1/completions HTTP/1.1\r\n"));
    EXPECT_THAT(completion, HasSubstr("\r\nAuthorization: Bearer k\r\n"));
    EXPECT_THAT(completion,
                HasSubstr(R"("prompt":"a\"b)"
                          "\xef\xbf\xbd\""));
    for (const char* field : {R"("max_tokens":7)",
                              R"("seed":9)",
                              R"("return_token_ids":true)",
                              R"("stream_options":{"include_usage":true})"}) {
        EXPECT_THAT(completion, HasSubstr(field));
    }
    EXPECT_THAT(completion, ::testing::Not(HasSubstr("ignore_eos")));
    target.options.is_chat = true;
    target.takes_token_ids = target.takes_usage = false;
    workload.ignore_eos = true;
    const std::string chat = completion_request(target, workload, {0, 0, 7, 9});
    EXPECT_THAT(chat, ::testing::StartsWith("POST /p/v1/chat/completions HTTP/1.1\r\n"));
    EXPECT_THAT(chat, HasSubstr(R"("role":"user")"));
    EXPECT_THAT(chat, HasSubstr(R"("ignore_eos":true)"));
    EXPECT_THAT(chat, ::testing::Not(HasSubstr("return_token_ids")));
}

// Goal: an address that does not answer leaves time for the next ones. Oracle: of 60 s, by hand.
TEST(TcpPeer, EachAddressHasItsPartOfTheTimeThatIsLeft) {
    using std::chrono::milliseconds;
    using std::chrono::seconds;
    const auto now = std::chrono::steady_clock::now();
    const auto deadline = now + seconds(60);
    EXPECT_EQ(deadline_of_first(3, now, deadline), now + seconds(20));
    EXPECT_EQ(deadline_of_first(2, now + seconds(20), deadline), now + seconds(40));
    EXPECT_EQ(deadline_of_first(2, now + seconds(1), deadline), now + milliseconds(30'500));
    EXPECT_EQ(deadline_of_first(1, now + seconds(40), deadline), deadline);
}

// Goal: who measures a server that hangs learns which server, at what, and what to change.
TEST(HttpTarget, ASilentServerIsToldWithWhatItWasAsked) {
    const std::string models =
        "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"data\":[{\"id\":\"m\"}]}";
    for (const bool has_models : {false, true}) {
        const test::ScriptedServer server([&](size_t index) {
            return test::ScriptedAnswer{has_models && index == 0 ? models : ""};
        });
        const Result<Cancellation> cancellation = Cancellation::create();
        ASSERT_TRUE(cancellation.ok());
        HttpOptions options;
        options.url = "http://127.0.0.1:" + std::to_string(server.port());
        Workload workload;
        workload.prompts = {"a"};
        const Result<HttpTarget> target =
            inspect_target(options, workload, std::chrono::milliseconds(200), cancellation.value());
        ASSERT_FALSE(target.ok());
        EXPECT_EQ(target.error().code, Code::kDeadlineExceeded);
        EXPECT_EQ(target.error().message,
                  "127.0.0.1:" + std::to_string(server.port()) + " was asked \"" +
                      (has_models ? "POST /v1/completions" : "GET /v1/models") +
                      "\": no answer in time; it hangs, or needs more than 200 ms "
                      "(--request-timeout)");
    }
}

TEST(HttpTarget, ErrorTextIsWhatTheServerSays) {
    EXPECT_EQ(error_text(R"({"error":{"message":"a"}})"), "a");
    EXPECT_EQ(error_text(R"({"error":"Unauthorized"})"), "Unauthorized");
    EXPECT_EQ(error_text(R"({"detail":"Not Found"})"), "Not Found");
    EXPECT_EQ(error_text("<html>\nno\xff</html>"), "<html> no?</html>");
    EXPECT_EQ(error_text(""), "without a reason");
    EXPECT_EQ(error_text(R"({"error":{"message":"a\u001b[2J\nb"}})"), "a [2J b");
    EXPECT_EQ(error_text(std::string(5000, 'x')).size(), 303u);
    EXPECT_EQ(error_text(R"({"error":{"message":7}})"), "7");
    EXPECT_EQ(error_text("{\"detail\":\n[{\"msg\":\"\u00fc\"}]}"),
              "{\"detail\": [{\"msg\":\"\u00fc\"}]}");
}

// Goal: no server ends the program by an answer of many levels, each of which may cost stack.
// Oracle: the process lives; the beginning of the bytes is shown.
TEST(HttpTarget, ErrorsMayBeNestedAsDeepAsTheyLike) {
    constexpr size_t kLevels = 300'000;
    const std::string nested = std::string(kLevels, '[') + std::string(kLevels, ']');
    for (const char* begin : {R"({"error":{"message":)", R"({"error":{"detail":)"}) {
        const std::string body = begin + nested + "}}";
        const std::string shown = body.substr(0, 300) + "...";
        EXPECT_EQ(error_text(body), shown);
        EXPECT_EQ(follow({body}).failure, "error in band: " + shown);
    }
    EXPECT_EQ(error_text(R"({"error":)" + nested + "}").substr(0, 12), R"({"error":[[[)");
    EXPECT_THAT(follow({R"({"choices":[{"delta":{"content":)" + nested + "}}]}", "[DONE]"}).failure,
                HasSubstr("no finish reason"));
}

}  // namespace
}  // namespace afd::client

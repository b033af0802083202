// SPDX-License-Identifier: Apache-2.0
//
// Goal: every sequence of bytes gets a defined answer. Method: tables of requests and of garbage,
// whole and byte by byte. Oracle: the fields of the request; the status and the words of a refusal.
#include "daemon/http/message/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace afd::daemon {
namespace {

using testing::HasSubstr;

constexpr size_t kBodyBytesMax = 1000;

std::string repeated(const std::string& text, size_t count) {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += text;
    return all;
}

struct BadBytes {
    const char* name;
    std::string bytes;
    int status;
    const char* message;
};

// What is wrong in a body of chunks, and in how it is announced.
std::vector<BadBytes> refusals_of_chunks() {
    const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
    const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
    return {
        {"LongChunkedBody", chunked + "3e9\r\n", 413, "more than 1000 bytes (http_body_kib)"},
        {"BadChunk", chunked + "xyz\r\n", 400, "malformed HTTP"},
        // Beast throws at a field of 64 KiB.
        {"LongTrailer",
         chunked + "1\r\na\r\n0\r\nA: " + std::string(70'000, 'x') + "\r\n\r\n",
         431,
         "behind the last one, has more than 16384 bytes"},
        {"TrailersWithoutEnd",
         chunked + "1\r\na\r\n0\r\n" + repeated("A:\r\n", 50'000),
         431,
         "behind the last one, has more than 16384 bytes"},
        {"ManyTrailers",
         chunked + "1\r\na\r\n0\r\n" + repeated("A:\r\n", 99) + "\r\n",
         431,
         "more than 100 header lines, with those behind the body"},
        {"LongLineOfAChunk",
         chunked + "1;a=" + std::string(20'000, 'x') + "\r\na\r\n0\r\n\r\n",
         431,
         "the line of a chunk, or what"},
        {"OtherEncoding",
         post + "Transfer-Encoding: identity\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
         501,
         "other than 'chunked'"},
        {"AlmostChunked",
         post + "Transfer-Encoding: xchunked\r\n\r\n",
         501,
         "other than 'chunked'"},
        {"CompressedChunks",
         post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
         501,
         "other than 'chunked'"},
        {"TwoEncodings",
         post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         501,
         "other than 'chunked'"},
        {"EncodingAndLength",
         post + "Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
         501,
         "other than 'chunked'"},
    };
}

std::vector<BadBytes> refusals() {
    const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
    std::vector<BadBytes> all = {
        {"TlsHello", "\x16\x03\x01\x02\x00", 400, "without TLS"},
        {"NoVersion", "GET /\r\n\r\n", 400, "malformed HTTP: bad"},
        {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "only HTTP/1.1"},
        {"Http09", "GET / HTTP/0.9\r\n\r\n", 505, "only HTTP/1.1"},
        {"NoHost", "GET / HTTP/1.1\r\n\r\n", 400, "exactly one Host"},
        {"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "exactly one Host"},
        {"BareCarriageReturn", "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400, "malformed HTTP"},
        {"SmuggledChunks",
         "GET / HTTP/1.1\r\nHost: a\r\nX-A:\rTransfer-Encoding: chunked\r\n\r\n",
         400,
         "malformed HTTP"},
        {"SpaceBeforeColon",
         "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
         400,
         "malformed HTTP: bad field"},
        {"FoldedLine", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400, "folded"},
        {"LengthAndChunks",
         post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         400,
         "malformed HTTP"},
        {"TwoLengths", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400, "malformed"},
        {"NegativeLength", post + "Content-Length: -3\r\n\r\n", 400, "malformed HTTP: bad Content"},
        {"HugeLength",
         post + "Content-Length: 99999999999999999999999\r\n\r\n",
         400,
         "malformed HTTP: bad Content"},
        {"LongBody", post + "Content-Length: 1001\r\n\r\n", 413, "more than 1000 bytes (http_body"},
        {"LongHeader", "GET /" + std::string(20000, 'a'), 431, "more than 16384 bytes"},
        {"ManyHeaders",
         "GET / HTTP/1.1\r\nHost: a\r\n" + repeated("A: b\r\n", 200) + "\r\n",
         431,
         "more than 100 header lines"},
    };
    for (const BadBytes& refusal : refusals_of_chunks()) all.push_back(refusal);
    return all;
}

TEST(RequestReader, RefusesWithTheStatusAndTheReason) {
    for (const BadBytes& refusal : refusals()) {
        RequestReader reader(kBodyBytesMax);
        reader.append(refusal.bytes);
        EXPECT_FALSE(reader.next().has_value()) << refusal.name;
        ASSERT_TRUE(reader.refusal().has_value()) << refusal.name;
        EXPECT_EQ(reader.refusal()->status, refusal.status) << refusal.name;
        EXPECT_THAT(reader.refusal()->message, HasSubstr(refusal.message)) << refusal.name;
        EXPECT_EQ(reader.held_bytes(), 0U) << refusal.name;
        reader.append("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        EXPECT_FALSE(reader.next().has_value()) << refusal.name << " went on behind garbage";
    }
}

// Goal: empty lines before a request, as many as somebody likes to send, cost what their bytes do.
// 8 MiB of them would take an hour if each moved those behind it.
TEST(RequestReader, EmptyLinesCostWhatTheirBytesDo) {
    RequestReader reader(kBodyBytesMax);
    reader.append(repeated("\r\n", size_t{4} << 20));
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_FALSE(reader.refusal().has_value());
    EXPECT_EQ(reader.held_bytes(), 0U);
    reader.append("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(reader.next().has_value());
}

// The same bytes, one at a time: the same status, whichever byte shows it.
TEST(RequestReader, RefusesByteByByteToo) {
    for (const BadBytes& refusal : refusals()) {
        RequestReader reader(kBodyBytesMax);
        for (size_t i = 0; i < refusal.bytes.size() && !reader.refusal(); ++i) {
            reader.append(refusal.bytes.substr(i, 1));
            EXPECT_FALSE(reader.next().has_value()) << refusal.name;
        }
        ASSERT_TRUE(reader.refusal().has_value()) << refusal.name;
        EXPECT_EQ(reader.refusal()->status, refusal.status) << refusal.name;
    }
}

const std::string kTwoRequests =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
    "Content-Type: application/json\r\nX-Request-Id: mine\r\nContent-Length: 5\r\n\r\nhello"
    "\r\nPOST /tokenize HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: Chunked\r\n\r\n"
    "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
    "GET /live HTTP/1.0\r\n\r\n";

void expect_the_two(std::vector<HttpRequest>& requests) {
    ASSERT_EQ(requests.size(), 3U);
    EXPECT_EQ(requests[0].method, "POST");
    EXPECT_EQ(requests[0].path, "/v1/completions");
    EXPECT_EQ(requests[0].query, "x=1");
    EXPECT_EQ(requests[0].host, "localhost");
    EXPECT_EQ(requests[0].authorization, "Bearer k");
    EXPECT_EQ(requests[0].content_type, "application/json");
    EXPECT_EQ(requests[0].request_id, "mine");
    EXPECT_EQ(requests[0].body, "hello");
    EXPECT_TRUE(requests[0].keeps_alive);
    EXPECT_EQ(requests[1].path, "/tokenize");
    EXPECT_EQ(requests[1].body, "abcde");
    EXPECT_EQ(requests[2].path, "/live");
    EXPECT_FALSE(requests[2].is_http_1_1);
    EXPECT_FALSE(requests[2].keeps_alive);
}

TEST(RequestReader, GivesPipelinedRequestsInTheirOrder) {
    RequestReader reader(kBodyBytesMax);
    reader.append(kTwoRequests);
    std::vector<HttpRequest> requests;
    while (auto request = reader.next()) requests.push_back(*std::move(request));
    expect_the_two(requests);
    EXPECT_EQ(reader.held_bytes(), 0U);
}

TEST(RequestReader, GivesTheSameByteByByte) {
    RequestReader reader(kBodyBytesMax);
    std::vector<HttpRequest> requests;
    for (const char byte : kTwoRequests) {
        reader.append({&byte, 1});
        while (auto request = reader.next()) requests.push_back(*std::move(request));
        ASSERT_FALSE(reader.refusal()) << reader.refusal()->message;
    }
    expect_the_two(requests);
}

// Goal: what stands behind a body is read over, as much as there may be of it. Method: trailers
// that would be headers of weight, beside one and ahead of another request. Oracle: the requests.
TEST(RequestReader, TrailersAreNoHeaders) {
    const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::string trailers = "Authorization: Bearer k\r\nHost: b\r\nConnection: close\r\nA: " +
                                 std::string(RequestReader::kHeaderBytesMax - 100, 'x') +
                                 "\r\n\r\n";
    for (const size_t first_bytes : {size_t{1}, head.size(), head.size() + 7, size_t{100'000}}) {
        const std::string bytes =
            head + "2\r\nab\r\n0\r\n" + trailers + "GET /live HTTP/1.1\r\nHost: a\r\n\r\n";
        RequestReader reader(kBodyBytesMax);
        reader.append(bytes.substr(0, first_bytes));
        std::optional<HttpRequest> request = reader.next();
        reader.append(bytes.substr(std::min(first_bytes, bytes.size())));
        if (!request) request = reader.next();
        ASSERT_TRUE(request) << first_bytes << ": " << reader.refusal()->message;
        EXPECT_EQ(request->body, "ab");
        EXPECT_EQ(request->host, "a");
        EXPECT_EQ(request->authorization, "");
        EXPECT_TRUE(request->keeps_alive);
        const std::optional<HttpRequest> next = reader.next();
        ASSERT_TRUE(next) << first_bytes;
        EXPECT_EQ(next->path, "/live");
    }
}

TEST(RequestReader, CountsWhatItHolds) {
    RequestReader reader(kBodyBytesMax);
    reader.append("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n");
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.held_bytes(), 47U);
    reader.append("\r\n" + std::string(500, 'x'));
    EXPECT_FALSE(reader.next());
    EXPECT_GE(reader.held_bytes(), 500U);
    reader.append(std::string(400, 'x'));
    EXPECT_TRUE(reader.next());
    EXPECT_EQ(reader.held_bytes(), 0U);
}

TEST(RequestReader, SaysOnceThatAClientWaitsForContinue) {
    const std::string head =
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    RequestReader reader(kBodyBytesMax);
    reader.append(head);
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.take_continue());
    EXPECT_FALSE(reader.take_continue());
    reader.append("ab");
    EXPECT_TRUE(reader.next());
    // The body has come along: nobody waits.
    reader.append(head + "ab");
    EXPECT_TRUE(reader.next());
    EXPECT_FALSE(reader.take_continue());
}

// Goal: no bytes bring it down. Method: valid requests with bytes replaced, removed and inserted at
// random, in parts of random length. Oracle: it ends, and holds no more than it was given.
TEST(RequestReader, SurvivesMutatedRequests) {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = kTwoRequests;
        for (int i = 0; i < 1 + round % 8; ++i) {
            const size_t at = random() % bytes.size();
            const char byte = static_cast<char>(random() % 256);
            switch (random() % 3) {
                case 0:
                    bytes[at] = byte;
                    break;
                case 1:
                    bytes.erase(at, 1);
                    break;
                default:
                    bytes.insert(at, 1, byte);
            }
        }
        RequestReader reader(kBodyBytesMax);
        for (size_t at = 0; at < bytes.size();) {
            const size_t size = 1 + random() % 60;
            reader.append(bytes.substr(at, size));
            at += size;
            while (reader.next()) {
            }
            ASSERT_LE(reader.held_bytes(), bytes.size() + 1);
        }
    }
}

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Goal: an answer is head and body, in that order, behind what waits already; a long body is not
// copied on the way. Method: bodies with room for a head. Oracle: the bytes, and where they lie.
#include "daemon/http/message/http_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

HttpResponse of_body(size_t size) {
    std::string body;
    body.reserve(size + 1024);
    body.assign(size, 'a');
    return HttpResponse::json(std::move(body));
}

TEST(HttpResponse, ALongBodyIsNotCopied) {
    constexpr size_t kSize = size_t{1} << 20;
    HttpResponse response = of_body(kSize);
    const char* const place = response.body.data();
    std::string out;
    append_response(std::move(response), {}, out);
    EXPECT_EQ(out.data(), place);
    EXPECT_THAT(out.substr(0, 1024), StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(out.substr(0, 1024), HasSubstr("Content-Length: 1048576\r\n"));
    EXPECT_EQ(out.find("\r\n\r\n") + 4 + kSize, out.size());
    EXPECT_EQ(out.substr(out.size() - kSize), std::string(kSize, 'a'));
}

TEST(HttpResponse, ComesBehindWhatWaits) {
    std::string out = "before";
    append_response(of_body(3), {}, out);
    EXPECT_THAT(out, StartsWith("beforeHTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(out, EndsWith("\r\n\r\naaa"));
}

TEST(HttpResponse, ToHeadHasNoBody) {
    std::string out;
    append_response(of_body(3), {.is_to_head = true}, out);
    EXPECT_THAT(out, HasSubstr("Content-Length: 3\r\n"));
    EXPECT_THAT(out, EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace afd::daemon

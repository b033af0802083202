// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/http_response.h"

#include <fmt/core.h>

#include <array>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/serializer.hpp>
#include <ctime>
#include <utility>

namespace afd::daemon {

namespace {

namespace http = boost::beast::http;

using Head = http::response<http::empty_body>;

// As HTTP writes the time (RFC 9110, 5.6.7), in English whatever the locale.
std::string date_of(std::time_t time) {
    constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array kMonths = {
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm utc{};
    ::gmtime_r(&time, &utc);
    return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                       kDays[static_cast<size_t>(utc.tm_wday)],
                       utc.tm_mday,
                       kMonths[static_cast<size_t>(utc.tm_mon)],
                       utc.tm_year + 1900,
                       utc.tm_hour,
                       utc.tm_min,
                       utc.tm_sec);
}

Head head_of(int status,
             const std::string& content_type,
             const std::vector<HttpResponse::Header>& headers,
             const ResponseFrame& frame) {
    Head head;
    head.version(frame.is_http_1_1 ? 11 : 10);
    head.result(static_cast<unsigned>(status));
    head.set(http::field::date, date_of(std::time(nullptr)));
    head.set(http::field::content_type, content_type);
    // Once each, but for what an answer and the checks of its request both add to.
    for (const auto& [name, value] : headers) {
        const bool is_joined = name == "Vary" && head.count(name) > 0;
        head.set(name, is_joined ? std::string(head[name]) + ", " + value : value);
    }
    head.keep_alive(!frame.closes);
    return head;
}

void append_head(Head& head, std::string& out) {
    http::response_serializer<http::empty_body> serializer(head);
    serializer.split(true);
    while (!serializer.is_header_done()) {
        boost::beast::error_code error;
        serializer.next(error, [&](boost::beast::error_code&, const auto& buffers) {
            size_t size = 0;
            for (const boost::asio::const_buffer part : boost::beast::buffers_range_ref(buffers)) {
                out.append(static_cast<const char*>(part.data()), part.size());
                size += part.size();
            }
            serializer.consume(size);
        });
    }
}

}  // namespace

HttpResponse HttpResponse::json(std::string body) {
    HttpResponse response;
    response.body = std::move(body);
    return response;
}

HttpResponse HttpResponse::of(const ApiError& error) {
    HttpResponse response = json(error_json(error));
    response.status = error.status;
    if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (error.retry_after_s > 0) {
        response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
    }
    return response;
}

void append_response(HttpResponse response, const ResponseFrame& frame, std::string& out) {
    Head head = head_of(response.status, response.content_type, response.headers, frame);
    head.content_length(response.body.size());
    if (frame.is_to_head || !out.empty()) {
        append_head(head, out);
        if (!frame.is_to_head) out += response.body;
        return;
    }
    std::string written;
    append_head(head, written);
    out = std::move(response.body);
    out.insert(0, written);
}

void append_stream_head(const std::vector<HttpResponse::Header>& headers,
                        const ResponseFrame& frame,
                        std::string& out) {
    Head head = head_of(200, "text/event-stream; charset=utf-8", headers, frame);
    head.set(http::field::cache_control, "no-cache");
    // nginx would collect the events of a stream before it passes them on.
    head.set("X-Accel-Buffering", "no");
    if (frame.is_http_1_1) head.chunked(true);
    append_head(head, out);
}

void append_stream_part(std::string_view bytes, const ResponseFrame& frame, std::string& out) {
    if (!frame.is_http_1_1) {
        out += bytes;
        return;
    }
    out += fmt::format("{:x}\r\n", bytes.size());
    out += bytes;
    out += "\r\n";
}

void append_stream_end(const ResponseFrame& frame, std::string& out) {
    if (frame.is_http_1_1) out += "0\r\n\r\n";
}

}  // namespace afd::daemon

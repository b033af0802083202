// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/request_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <cctype>
#include <exception>
#include <iterator>
#include <utility>

#include "daemon/http/message/http_word.h"
#include "proto/arrived_body.h"

namespace afd::daemon {

namespace {

namespace http = boost::beast::http;

constexpr std::string_view kHeaderEnd = "\r\n\r\n";

bool has_folded_line(std::string_view header) {
    return header.find("\r\n ") != std::string_view::npos ||
           header.find("\r\n\t") != std::string_view::npos;
}

size_t num_lines(std::string_view header) {
    return static_cast<size_t>(std::count(header.begin(), header.end(), '\n'));
}

std::string text_of(boost::beast::string_view view) {
    return {view.data(), view.size()};
}

// Where the host begins in a target with a scheme, which proxies get, and servers have to
// take (RFC 9112, 3.2.2); nothing: it has neither.
std::optional<size_t> host_begin(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (begins_with_word(target, scheme)) return scheme.size();
    }
    return std::nullopt;
}

// The host that a target names stands for the Host header's.
void take_target(std::string_view target, HttpRequest& request) {
    if (const std::optional<size_t> begin = host_begin(target)) {
        target.remove_prefix(*begin);
        const size_t size = std::min(target.find_first_of("/?"), target.size());
        request.host = target.substr(0, size);
        target.remove_prefix(size);
    }
    const size_t mark = std::min(target.find('?'), target.size());
    request.path = target.substr(0, mark);
    if (request.path.empty()) request.path = "/";
    if (mark < target.size()) request.query = target.substr(mark + 1);
}

}  // namespace

struct RequestReader::Parser {
    http::request_parser<ArrivedBody> http;
    HttpRequest request;  // All but its body, once the header is complete.
    bool wants_continue = false;
};

RequestReader::RequestReader(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

RequestReader::~RequestReader() = default;

void RequestReader::append(std::string_view bytes) {
    if (!refusal_) in_.append(bytes);
}

std::optional<HttpRequest> RequestReader::next() {
    if (refusal_) return std::nullopt;
    if (parser_ == nullptr && !begin()) return std::nullopt;
    parse();
    if (refusal_ || !parser_->http.is_done()) return std::nullopt;
    return take();
}

// Whether the whole header of a request is there: until then nothing is parsed.
bool RequestReader::begin() {
    // An empty line before a request is the end of a body that its client counted wrongly
    // (RFC 9112, 2.2).
    size_t num_empty = 0;
    while (std::string_view(in_).substr(num_empty).starts_with("\r\n")) num_empty += 2;
    in_.erase(0, num_empty);
    if (in_.empty() || in_ == "\r") return false;
    if (std::isalpha(static_cast<unsigned char>(in_.front())) == 0) {
        refuse(400, "", "these bytes are no HTTP request; this port speaks HTTP/1.1 without TLS");
        return false;
    }
    const size_t end = in_.find(kHeaderEnd, num_scanned_);
    const size_t size = end == std::string::npos ? in_.size() : end + kHeaderEnd.size();
    if (size > kHeaderBytesMax) {
        refuse(431,
               "header_too_large",
               fmt::format("the header has more than {} bytes", kHeaderBytesMax));
        return false;
    }
    num_scanned_ = size < kHeaderEnd.size() ? 0 : size - kHeaderEnd.size() + 1;
    if (end == std::string::npos) return false;
    num_scanned_ = 0;
    const std::string_view header = std::string_view(in_).substr(0, size);
    if (num_lines(header) > kHeadersMax + 2) {
        refuse(431,
               "header_too_large",
               fmt::format("there are more than {} header lines", kHeadersMax));
        return false;
    }
    if (has_folded_line(header)) {
        refuse(400, "", "a header line is folded over two lines, which HTTP/1.1 no longer allows");
        return false;
    }
    parser_ = std::make_unique<Parser>();
    // The header is looked at before anything behind it is read.
    parser_->http.eager(false);
    parser_->http.header_limit(kHeaderBytesMax);
    parser_->http.body_limit(body_bytes_max_);
    return true;
}

// Beast bounds a header and the data of chunks, and nothing else of a body: it takes the line of a
// chunk, and all trailers at once, when they are complete, whatever their size. So it never sees
// more than a header's bytes; what does not fit is too large.
void RequestReader::parse() {
    size_t done = 0;
    while (done < in_.size() && !parser_->http.is_done()) {
        const bool had_header = parser_->http.is_header_done();
        const std::string_view part = std::string_view(in_).substr(done, kHeaderBytesMax);
        const std::optional<size_t> size = put(part);
        if (!size) return;
        done += *size;
        if (!had_header && parser_->http.is_header_done()) {
            take_header();
            if (refusal_) return;
        }
        if (*size > 0) continue;
        if (part.size() < kHeaderBytesMax) break;
        refuse(431,
               "header_too_large",
               fmt::format("the line of a chunk, or what stands behind the last one, has more than "
                           "{} bytes",
                           kHeaderBytesMax));
        return;
    }
    in_.erase(0, done);
    const auto& message = parser_->http.get();
    if (parser_->http.is_done() &&
        static_cast<size_t>(std::distance(message.begin(), message.end())) > kHeadersMax) {
        refuse(431,
               "header_too_large",
               fmt::format("there are more than {} header lines, with those behind the body",
                           kHeadersMax));
    }
}

std::optional<size_t> RequestReader::put(std::string_view bytes) {
    boost::beast::error_code error;
    size_t size = 0;
    // A field of 64 KiB is std::length_error. None gets here; what else Beast may not take costs
    // this request only.
    try {
        size = parser_->http.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    } catch (const std::exception& thrown) {
        refuse(400, "", std::string("malformed HTTP: ") + thrown.what());
        return std::nullopt;
    }
    if (!error || error == http::error::need_more) return size;
    if (error == http::error::body_limit) {
        refuse(413,
               "body_too_large",
               fmt::format("the body has more than {} bytes (http_body_kib)", body_bytes_max_));
    } else if (error == http::error::bad_version) {
        refuse(505, "", "only HTTP/1.1 and HTTP/1.0 are served");
    } else {
        refuse(400, "", "malformed HTTP: " + error.message());
    }
    return std::nullopt;
}

// The header is complete, and nothing of the body is read.
void RequestReader::take_header() {
    const auto& head = parser_->http.get();
    if (head.version() == 11 && head.count(http::field::host) != 1) {
        refuse(400, "", "an HTTP/1.1 request has exactly one Host header");
        return;
    }
    // Beast takes a request in any other encoding as one without a body. What comes next would then
    // be a request to us, and its body to a proxy in front of us.
    const auto encodings = head.equal_range(http::field::transfer_encoding);
    if (!std::all_of(encodings.first, encodings.second, [](const auto& field) {
            return boost::beast::iequals(field.value(), "chunked");
        })) {
        refuse(501, "", "a Transfer-Encoding other than 'chunked' is not served");
        return;
    }
    // HTTP/1.0 has no such answer.
    parser_->wants_continue = !parser_->http.is_done() && head.version() == 11 &&
                              boost::beast::iequals(head[http::field::expect], "100-continue");
    HttpRequest& request = parser_->request;
    request.method = text_of(head.method_string());
    request.host = text_of(head[http::field::host]);
    take_target(text_of(head.target()), request);
    request.authorization = text_of(head[http::field::authorization]);
    request.content_type = text_of(head[http::field::content_type]);
    request.accept = text_of(head[http::field::accept]);
    request.origin = text_of(head[http::field::origin]);
    request.asked_method = text_of(head["Access-Control-Request-Method"]);
    request.asked_headers = text_of(head["Access-Control-Request-Headers"]);
    request.request_id = text_of(head["X-Request-Id"]);
    request.last_event_id = text_of(head["Last-Event-ID"]);
    request.has_content_encoding = head.count(http::field::content_encoding) > 0;
    request.is_http_1_1 = head.version() == 11;
    request.keeps_alive = head.keep_alive();
    parser_->http.eager(true);
}

bool RequestReader::take_continue() {
    return parser_ != nullptr && std::exchange(parser_->wants_continue, false);
}

HttpRequest RequestReader::take() {
    HttpRequest request = std::move(parser_->request);
    request.body = std::move(parser_->http.get().body());
    parser_.reset();
    if (in_.empty()) in_ = std::string();
    return request;
}

size_t RequestReader::held_bytes() const {
    return in_.size() + (parser_ == nullptr ? 0 : parser_->http.get().body().size() + 1);
}

void RequestReader::clear() {
    parser_.reset();
    in_ = std::string();
    num_scanned_ = 0;
}

void RequestReader::refuse(int status, std::string code, std::string message) {
    clear();
    refusal_ = ApiError{.status = status, .code = std::move(code), .message = std::move(message)};
}

}  // namespace afd::daemon

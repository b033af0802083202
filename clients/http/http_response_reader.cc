// SPDX-License-Identifier: Apache-2.0
#include "clients/http/http_response_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <limits>
#include <utility>

#include "proto/arrived_body.h"

namespace afd::client {
namespace {

namespace http = boost::beast::http;

std::string text_of(boost::beast::string_view view) {
    return {view.data(), view.size()};
}

afd::Error malformed(const boost::beast::error_code& error) {
    return {Code::kDataLoss, "the server's bytes are no HTTP: " + error.message()};
}

}  // namespace

struct HttpResponseReader::Parser {
    Parser() {
        http.eager(true);
        http.header_limit(kHeaderBytesMax);
        http.body_limit(std::numeric_limits<uint64_t>::max());
    }

    http::response_parser<ArrivedBody> http;
};

HttpResponseReader::HttpResponseReader() : parser_(std::make_unique<Parser>()) {}

HttpResponseReader::~HttpResponseReader() = default;

Result<> HttpResponseReader::append(std::string_view bytes) {
    in_.append(bytes);
    return parse();
}

Result<> HttpResponseReader::parse() {
    size_t done = 0;
    while (done < in_.size() && !parser_->http.is_done()) {
        boost::beast::error_code error;
        const size_t size =
            parser_->http.put(boost::asio::buffer(in_.data() + done, in_.size() - done), error);
        done += size;
        if (error == http::error::need_more) break;
        if (error) return malformed(error);
        if (size == 0) break;
        // One that only says that another will come (1xx).
        if (parser_->http.is_done() && parser_->http.get().result_int() < 200) next();
    }
    in_.erase(0, done);
    return {};
}

Result<> HttpResponseReader::end() {
    if (is_done()) return {};
    boost::beast::error_code error;
    // Of a body without a length and without chunks, this is how it ends.
    if (parser_->http.got_some()) parser_->http.put_eof(error);
    if (!error && is_done()) return {};
    return afd::Error{Code::kUnavailable,
                      parser_->http.got_some()
                          ? "the server closed the connection in the middle of its answer"
                          : "the server closed the connection without an answer"};
}

bool HttpResponseReader::has_head() const {
    return parser_->http.is_header_done();
}

HttpHead HttpResponseReader::head() const {
    const auto& message = parser_->http.get();
    std::string content_type = text_of(message[http::field::content_type]);
    std::transform(content_type.begin(), content_type.end(), content_type.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return {static_cast<int>(message.result_int()),
            std::move(content_type),
            text_of(message[http::field::server]),
            parser_->http.keep_alive()};
}

std::string HttpResponseReader::take_body() {
    return std::exchange(parser_->http.get().body(), {});
}

bool HttpResponseReader::is_done() const {
    return parser_->http.is_done();
}

void HttpResponseReader::next() {
    parser_ = std::make_unique<Parser>();
}

}  // namespace afd::client

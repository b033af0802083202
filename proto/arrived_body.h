// SPDX-License-Identifier: Apache-2.0
#pragma once

// ArrivedBody: the body of an HTTP message for a parser of Boost.Beast, as a string that grows with
// what arrives. Beast's own reserves what Content-Length announces, which may be anything. The
// daemon reads requests with it, the clients answers; whoever reads a stream takes the bytes out of
// the string as they come.

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace afd {

struct ArrivedBody {
    using value_type = std::string;

    // What Beast asks of a body that is parsed (its documents call it a body reader).
    class reader {
      public:
        template <bool is_request, class Fields>
        reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
        void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& error) {
            error = {};
        }
        template <class Buffers>
        std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
            error = {};
            const size_t before = body_.size();
            for (auto it = boost::asio::buffer_sequence_begin(buffers);
                 it != boost::asio::buffer_sequence_end(buffers);
                 ++it) {
                const boost::asio::const_buffer part = *it;
                body_.append(static_cast<const char*>(part.data()), part.size());
            }
            return body_.size() - before;
        }
        void finish(boost::beast::error_code& error) { error = {}; }

      private:
        value_type& body_;
    };
};

}  // namespace afd

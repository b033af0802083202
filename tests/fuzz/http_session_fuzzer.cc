// SPDX-License-Identifier: Apache-2.0
//
// A connection of HTTP from its begin to its end. Input: the bytes of the client, before them how
// large the pieces are in which they come. They go through a socket to an HttpSession at a gateway,
// whose worker answers what it is given. Oracle: what comes back is a row of HTTP answers by a
// parser of its own, whose JSON and events are valid; nothing is in flight at the end; what the
// session holds of half a request is bounded.

#include <sys/socket.h>

#include <array>
#include <charconv>
#include <map>
#include <string>

#include "daemon/http/http_session.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/http_model.h"

namespace afd::daemon {
namespace {

constexpr size_t kBodyBytesMax = 20'000;
constexpr uint32_t kTokensMax = 24;

// Answers: a head, and a body with a length, in chunks, or to the end of the connection.
class Answers {
  public:
    explicit Answers(std::string_view bytes) : rest_(bytes) {}

    bool take() {
        if (rest_.empty()) return false;
        const size_t end = rest_.find("\r\n\r\n");
        AFD_ASSERT(rest_.starts_with("HTTP/1.") && end != std::string_view::npos,
                   "no head: %.*s",
                   static_cast<int>(std::min<size_t>(rest_.size(), 200)),
                   rest_.data());
        const std::string_view head = rest_.substr(0, end + 2);
        rest_.remove_prefix(end + 4);
        if (head.starts_with("HTTP/1.1 100 ")) return true;
        const std::string_view type = field(head, "Content-Type");
        const std::string body = body_of(head);
        if (type.starts_with("application/json") && !body.empty()) fuzz::must_be_json(body);
        if (type.starts_with("text/event-stream")) fuzz::must_be_events(body);
        return true;
    }

  private:
    static std::string_view field(std::string_view head, const std::string& name) {
        const size_t at = head.find("\r\n" + name + ": ");
        if (at == std::string_view::npos) return {};
        const std::string_view value = head.substr(at + name.size() + 4);
        return value.substr(0, value.find("\r\n"));
    }

    std::string_view cut(size_t size) {
        AFD_ASSERT(size <= rest_.size(), "%zu bytes of %zu", rest_.size(), size);
        const std::string_view part = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return part;
    }

    static size_t number(std::string_view text, int base) {
        size_t value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
        AFD_ASSERT(end.ptr == text.data() + text.size() && !text.empty(), "no number");
        return value;
    }

    std::string body_of(std::string_view head) {
        if (const std::string_view length = field(head, "Content-Length"); !length.empty()) {
            // To HEAD it comes without its body.
            const bool is_to_head = rest_.empty() || rest_.starts_with("HTTP/1.");
            return std::string(cut(is_to_head ? 0 : number(length, 10)));
        }
        if (field(head, "Transfer-Encoding") != "chunked") return std::string(cut(rest_.size()));
        std::string body;
        while (true) {
            const size_t size = number(cut(std::min(rest_.find("\r\n"), rest_.size())), 16);
            AFD_ASSERT(cut(2) == "\r\n", "no line of a chunk");
            body += cut(size);
            AFD_ASSERT(cut(2) == "\r\n", "no end of a chunk");
            if (size == 0) return body;
        }
    }

    std::string_view rest_;
};

// An attention worker that says bytes of its own choice, up to an end of one kind or another.
void answer(fuzz::GatewayAround& around, const control::Admit& admit) {
    const uint64_t id = admit.sequence_id();
    around.gateway().on_events(0, started_event(id));
    const uint32_t num_left = admit.max_total_tokens() - static_cast<uint32_t>(admit.tokens_size());
    for (uint32_t i = 0; i < std::min(num_left, kTokensMax); ++i) {
        auto events = token_event(id, (static_cast<uint32_t>(id) * 89 + i * 37) % kEndOfText);
        for (uint32_t k = 0; k < admit.num_top_logprobs(); ++k) {
            events.mutable_tokens(0)->add_top_ids(k);
            events.mutable_tokens(0)->add_top_logprobs(-1.5F);
        }
        around.gateway().on_events(0, events);
    }
    const bool is_whole = num_left <= kTokensMax;
    around.gateway().on_events(
        0, end_event(id, is_whole ? Code::kOk : Code::kUnavailable, "it is gone"));
}

class Connection {
  public:
    Connection() {
        std::array<int, 2> fds{};
        AFD_ASSERT(
            ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0,
            "no sockets");
        socket_.reset(fds[0]);
        services_ = std::make_shared<HttpServices>(around_.loop());
        services_->model = fuzz::http_model();
        services_->body_bytes_max = kBodyBytesMax;
        services_->budget = std::make_shared<InputBudget>(
            InputBudget::Limits{.bytes_max = size_t{1} << 20, .timeout_ms = 600'000});
        around_.gateway().adopt(std::make_unique<HttpSession>(around_.loop(),
                                                              UniqueFd(fds[1]),
                                                              ClientIdentity{"http", "fuzz"},
                                                              around_.gateway(),
                                                              services_));
    }

    void send(std::string_view bytes) {
        while (!bytes.empty() && !is_over_) {
            const ssize_t size = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
            // Full: it is read on when it has answered. Closed: it says no more.
            const bool is_full = size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
            turn();
            if (size < 0 && !is_full) return;
        }
    }

    // Until nothing moves.
    void settle() {
        for (int still = 0; still < 3; ++still) {
            if (turn()) still = -1;
        }
    }

    void end() {
        settle();
        Answers answers(received_);
        while (answers.take()) {
        }
        socket_.reset();
        settle();
        around_.gateway().on_attention_gone(0, {});
        AFD_ASSERT(around_.gateway().num_in_flight() == 0,
                   "%zu requests of a client that has gone",
                   around_.gateway().num_in_flight());
    }

  private:
    // A turn of afdd's loop, of its worker and of the client. Whether something happened.
    bool turn() {
        uv_run(around_.loop().uv(), UV_RUN_NOWAIT);
        bool moved = false;
        while (around_.instance().has_next()) {
            const control::SupervisorMessage message = around_.instance().next().second;
            if (message.has_admit()) answer(around_, message.admit());
            moved = true;
        }
        std::array<char, 65536> bytes;
        ssize_t size = 0;
        while (socket_.valid() &&
               (size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0)) > 0) {
            received_.append(bytes.data(), static_cast<size_t>(size));
            moved = true;
        }
        is_over_ |= socket_.valid() && size == 0;
        return moved;
    }

    fuzz::GatewayAround around_;
    std::shared_ptr<HttpServices> services_;
    UniqueFd socket_;
    std::string received_;
    bool is_over_ = false;
};

}  // namespace
}  // namespace afd::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // More of the same says nothing new.
    if (size > size_t{64} << 10) return 0;
    afd::fuzz::FuzzInput input(data, size);
    const size_t piece = size_t{1} << (input.take<uint8_t>() % 16);
    std::string_view rest = input.text();
    afd::daemon::Connection connection;
    // The first of them, so that a long input is not a thousand turns.
    for (int i = 0; i < 40 && !rest.empty(); ++i) {
        connection.send(rest.substr(0, piece));
        rest.remove_prefix(std::min(piece, rest.size()));
    }
    connection.send(rest);
    connection.end();
    return 0;
}

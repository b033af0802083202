// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpSession: the session of a client that speaks HTTP/1.1 over a stream socket.
//
// One request at a time: it is answered in full before the next one of the connection is looked at
// (a client that wants many at once opens as many connections). What a client sends meanwhile is
// kept up to a bound, and then not read. A client that closes its side has gone: what runs for it
// is cancelled, also if it would still read.
//
// A completion is an HttpExchange. The status line waits for the first token, so that what fails
// before it has an HTTP status; what fails later is an event, and the end of the connection. That
// of a resumable stream waits only until there is an id to tell. Bytes that are no HTTP, requests
// that stay half sent, and what the InputBudget does not hold are answered with why, and cost only
// this connection; of an answer that has begun its end is all that can be said. So it is when its
// client takes nothing of what OutputLimit does not count.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/http/http_exchange.h"
#include "daemon/http/http_services.h"
#include "daemon/http/message/http_response.h"
#include "daemon/http/message/request_reader.h"
#include "daemon/http/route.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/stream_socket.h"
#include "daemon/loop/turn_budget.h"
#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class HttpSession final : public ClientSession, private InputBudget::Holder {
  public:
    // What a client may send ahead while it is being answered; the rest stays in the kernel.
    static constexpr size_t kAheadBytesMax = size_t{64} << 10;
    // What a whole answer, and what a stream says of its prompt, counts as in queued_bytes(),
    // however long: it is what one request made it, all at once, and its client may take its time.
    static constexpr size_t kUncountedBytes = 1;
    static constexpr std::string_view kNoHandler = "none";
    // A stream that is silent for this long says that it lives.
    static constexpr uint64_t kPingMs = 15'000;

    // REQUIRES: `loop` and `owner` outlive the object.
    HttpSession(EventLoop& loop,
                UniqueFd socket,
                ClientIdentity identity,
                SessionOwner& owner,
                std::shared_ptr<HttpServices> services);
    ~HttpSession() override { services_->budget->hold(*this, 0); }

    const ClientIdentity& identity() const override { return identity_; }
    std::string_view request_name() const override;
    std::shared_ptr<const SessionForm> form() const override;
    void on_resumed(uint64_t request_id, const std::shared_ptr<const SessionForm>& form) override;
    void send(const client::Response& response) override;
    void flush() override;
    size_t queued_bytes() const override;
    // Half a request has a deadline, unless it waits behind an answer.
    bool is_within_request() const override {
        return is_busy() || (is_written() && reader_.held_bytes() > 0);
    }
    bool is_reading_request() const override { return is_busy() && served_->body != nullptr; }
    void close() override { leave(false); }
    bool is_open() const override { return socket_.is_open(); }
    // A request of which a part was read is answered here.
    std::optional<HandedConnection> hand_over() override;
    void stay() override { next_turn_.ask(); }

    // The connection comes from another afdd, which has read and not said these bytes. Before its
    // owner has it (SessionOwner::adopt_handed()).
    void begin_with(std::string_view unread, std::string_view unsent);

  private:
    // The request that is being answered: from its first look on until its answer is queued.
    struct Served {
        std::string id = {};
        ResponseFrame frame = {};
        std::vector<HttpResponse::Header> page_headers = {};  // RequestVerdict::headers.
        // For metrics. None of `begun`: it is no request, but what came instead of one.
        std::string method = {};
        std::string_view handler = kNoHandler;
        std::optional<std::chrono::steady_clock::time_point> begun = {};
        std::unique_ptr<BackgroundThread::Job> body = {};  // A long body is being read.
        size_t body_bytes = 0;                             // Of that one.
        std::optional<HttpExchange> exchange = {};         // Of a completion.
        uint64_t num_received = 0;                         // Events that who resumes has.
        bool is_submitting = false;
        std::unique_ptr<Timer> ping = {};  // Of a stream.
        bool has_streamed = false;         // Since the last ping was due.
        std::string events = {};           // Of one Response.
    };

    // --- the connection ---
    void on_ready(int events);
    void on_turn();
    void on_half_request_timeout();
    void on_unread();
    void read();
    // What is read and can be served now; false: the rest waits for another turn.
    bool serve(TurnBudget& budget);
    // Answers why, the request that is being answered or what came instead of one, and ends the
    // connection. REQUIRES: nothing of an answer has begun.
    void refuse(const ApiError& error);
    void end_with(const ApiError& error);
    void give_up(const std::string& why) override;
    void settle();
    void note_half_request();
    void note_written();
    void watch();
    bool is_busy() const { return served_ != nullptr; }
    bool is_written() const { return socket_.unsent_bytes() == 0; }
    // What comes next is for the afdd that takes the place of this one.
    bool is_leaving() const { return owner_.is_leaving() && !reader_.is_within_request(); }
    void end();
    // Closes; `politely`: the client gets the time to read what was sent.
    void leave(bool politely);

    // --- the request that is answered, in http_session_answers.cc ---
    void handle(HttpRequest request);
    void dispatch(const Route& route, HttpRequest& request);
    // What a body asks for is read and taken now, or, of a long one, when the thread has read it.
    template <typename Asked>
    void read_body(HttpRequest& request, Asked (*reader)(std::string_view, const ApiModel&));
    void take(ApiResult<GenerationCall> call) { start(std::move(call)); }
    void take(HttpResponse response) { respond(std::move(response)); }
    void respond_with_status(Endpoint endpoint, std::string_view accept);
    void start(ApiResult<GenerationCall> call);
    void submit();
    void resume(const HttpRequest& request);
    // A completion is being answered.
    bool is_generating() const { return served_ != nullptr && served_->exchange.has_value(); }
    // REQUIRES: is_generating().
    HttpExchange& exchange() { return *served_->exchange; }
    void begin_pings();
    void on_ping();
    void go_on();
    void refuse_place(std::string_view why);
    void begin_stream();
    void stream(std::string_view events);
    void finish();
    void finish_stream(bool has_failed);
    void cancel_rest(const HttpExchange& exchange);
    void cancel_later(const std::vector<uint64_t>& ids);
    void respond(HttpResponse response);
    // Adds the headers that every answer to the request has.
    void add_common_headers(std::vector<HttpResponse::Header>& headers) const;
    // The answer is queued: the request is over.
    void end_answer(int status);
    // The request is over, with this status or none; for metrics and log.
    void note_answer(int status) const;
    // What the gateway answers within the call, as to GetStatus.
    client::Response ask(client::Request request);

    EventLoop& loop_;
    StreamSocket socket_;
    ClientIdentity identity_;
    SessionOwner& owner_;
    const std::shared_ptr<HttpServices> services_;
    RequestReader reader_;
    Timer half_request_;    // Ends the wait for the rest of a request.
    Timer unread_;          // Looks whether the client takes what is not counted.
    NextTurn next_turn_;    // Asked: requests are read and not served, or some are to be cancelled.
    bool is_late_ = false;  // The time of half a request is over; what arrived is read once more.
    bool is_ending_ = false;  // Nothing is served any more; closes when all is written.
    bool is_serving_ = false;
    size_t uncounted_bytes_ = 0;      // Of what is queued; what leaves is of the others first.
    int64_t taken_bytes_ = 0;         // Of the socket, when unread_ looked.
    bool has_served_ = false;         // A request, ever, here or in the afdd before this one.
    std::unique_ptr<Served> served_;  // Null: none is being answered.
    uint64_t asked_id_ = 0;           // What ask() waits for; 0: nothing.
    client::Response asked_;          // What it has heard.
    std::vector<uint64_t> cancels_;   // Generates whose answers nobody waits for.
    uint64_t next_id_ = 1;
    std::unique_ptr<FdWatcher> watcher_;
};

}  // namespace afd::daemon

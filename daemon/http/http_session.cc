// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_session.h"

#include <array>
#include <charconv>
#include <utility>

#include "daemon/http/answer/health_answers.h"
#include "daemon/http/answer/metrics_answer.h"
#include "daemon/http/answer/model_answers.h"
#include "daemon/http/answer/page.h"
#include "daemon/http/http_form.h"
#include "daemon/http/request_checks.h"
#include "daemon/program/logging.h"
#include "proto/check.h"

namespace afd::daemon {

namespace {

constexpr size_t kSocketReadBytes = size_t{64} << 10;
constexpr int kSocketReadsPerTurn = 16;
// Timers run before sockets are read: after a halt of this process the rest of a request may have
// arrived long ago.
constexpr uint64_t kLateRestMs = 500;

}  // namespace

HttpSession::HttpSession(EventLoop& loop,
                         UniqueFd socket,
                         ClientIdentity identity,
                         SessionHost& host,
                         std::shared_ptr<HttpServices> services)
    : socket_(std::move(socket)),
      identity_(std::move(identity)),
      host_(host),
      services_(std::move(services)),
      reader_(services_->body_bytes_max),
      timer_(loop, [this] { on_timer(); }),
      next_turn_(loop, [this] { on_turn(); }),
      watcher_(std::make_unique<FdWatcher>(
          loop, socket_.get(), [this](int events) { on_ready(events); })) {
    watch();
}

void HttpSession::on_ready(int events) {
    if ((events & UV_WRITABLE) != 0) {
        flush();
        if (is_open()) host_.on_progress(*this);
    }
    if ((events & UV_READABLE) != 0 && is_open()) read();
}

void HttpSession::on_turn() {
    for (const uint64_t id : std::exchange(cancels_, {})) {
        if (!is_open()) return;
        client::Request request;
        request.set_request_id(next_id_++);
        request.mutable_cancel()->set_target(id);
        host_.on_request(*this, request);
    }
    if (is_open()) read();
}

void HttpSession::read() {
    TurnBudget budget;
    std::array<char, kSocketReadBytes> bytes;
    // What waits from the last turn first.
    bool has_served_all = serve(budget);
    for (int i = 0; has_served_all && is_open() && i < kSocketReadsPerTurn; ++i) {
        if (is_ending_ || (is_busy() && reader_.held_bytes() > kAheadBytesMax)) break;
        const std::optional<std::string_view> arrived = socket_.receive(bytes);
        if (!arrived) {
            close();
            return;
        }
        if (arrived->empty()) break;
        reader_.append(*arrived);
        has_served_all = serve(budget);
    }
    if (!is_open()) return;
    if (!has_served_all) next_turn_.ask();
    settle();
}

void HttpSession::settle() {
    note_half_request();
    watch();
    // What the host knows nothing of may have kept the session from leaving.
    if (is_open() && is_leaving()) host_.on_progress(*this);
}

bool HttpSession::serve(TurnBudget& budget) {
    // An answer that is not written yet holds back the next request, so that one client's answers
    // do not pile up.
    is_serving_ = true;
    while (is_open() && !is_ending_ && !is_busy() && is_written() && !is_leaving()) {
        if (!budget.take()) {
            is_serving_ = false;
            return false;
        }
        std::optional<HttpRequest> request = reader_.next();
        if (reader_.take_continue()) socket_.output() += kContinue;
        if (request) {
            timer_.stop();
            handle(*std::move(request));
        } else if (reader_.refusal()) {
            refuse(*reader_.refusal());
        }
        flush();
        if (!request) break;
    }
    is_serving_ = false;
    return true;
}

void HttpSession::handle(HttpRequest request) {
    frame_ = {.is_http_1_1 = request.is_http_1_1,
              .closes = !request.keeps_alive,
              .is_to_head = request.method == "HEAD"};
    request_id_ = request_id_of(request);
    has_served_ = true;
    const std::optional<Route> route = find_route(request.path);
    method_ = request.method;
    handler_ = route ? route->handler : kNoHandler;
    begun_ = std::chrono::steady_clock::now();
    RequestVerdict verdict = judge(request, route, *services_);
    if (!verdict.key.empty()) identity_.account = "key " + verdict.key;
    if (verdict.response) {
        respond(*std::move(verdict.response));
    } else if (is_deep_check(request, *route)) {
        exchange_.emplace(HttpExchange::probe(services_->model, next_id_));
        submit();
    } else {
        dispatch(*route, request);
    }
}

void HttpSession::dispatch(const Route& route, HttpRequest& request) {
    const ApiModel& model = services_->model;
    switch (route.endpoint) {
        case Endpoint::kModels:
            respond(answer_models(model));
            return;
        case Endpoint::kModel:
            respond(answer_model(model, std::string_view(request.path).substr(kModelsPath.size())));
            return;
        case Endpoint::kTokenize:
            read_body(request, answer_tokenize);
            return;
        case Endpoint::kDetokenize:
            read_body(request, answer_detokenize);
            return;
        case Endpoint::kCompletions:
            read_body(request, read_completion);
            return;
        case Endpoint::kChat:
            read_body(request, read_chat);
            return;
        case Endpoint::kResume:
            resume(request);
            return;
        case Endpoint::kLive:
        case Endpoint::kReady:
        case Endpoint::kMetrics:
            respond_with_status(route.endpoint, request.accept);
            return;
        case Endpoint::kPage:
            respond(answer_page());
            return;
    }
}

void HttpSession::respond_with_status(Endpoint endpoint, std::string_view accept) {
    client::Request request;
    if (endpoint == Endpoint::kMetrics) {
        request.mutable_metrics();
    } else {
        request.mutable_status();
    }
    const client::Response answer = ask(std::move(request));
    if (!is_open()) return;
    if (answer.has_metrics()) {
        respond(answer_metrics(answer.metrics().text(), accept));
    } else if (answer.has_error()) {
        respond(HttpResponse::of(api_error(answer.error())));
    } else {
        respond(endpoint == Endpoint::kLive ? answer_live(answer.status())
                                            : answer_ready(answer.status()));
    }
}

template <typename Asked>
void HttpSession::read_body(HttpRequest& request,
                            Asked (*reader)(std::string_view, const ApiModel&)) {
    if (services_->texts == nullptr || request.body.size() <= TextThread::kShortBytesMax) {
        take(reader(request.body, services_->model));
        return;
    }
    // Shared with the work, which goes on when the session is gone.
    struct Reading {
        std::shared_ptr<const ApiModel> model;
        std::string body;
        std::optional<Asked> asked = std::nullopt;
    };
    auto reading =
        std::make_shared<Reading>(Reading{services_->model_of_thread, std::move(request.body)});
    body_bytes_ = reading->body.size();
    body_ = services_->texts->thread.run(
        [reading, reader] { reading->asked = reader(reading->body, *reading->model); },
        [this, reading] {
            body_.reset();
            body_bytes_ = 0;
            take(*std::move(reading->asked));
            flush();
            if (is_open()) settle();
        });
}

void HttpSession::start(ApiResult<GenerationCall> call) {
    if (const auto* error = std::get_if<ApiError>(&call)) {
        respond(HttpResponse::of(*error));
        return;
    }
    GenerationCall& checked = std::get<GenerationCall>(call);
    services_->metrics.on_asked(checked.num_choices);
    exchange_.emplace(HttpExchange::begun(std::move(checked), services_->model, next_id_));
    submit();
}

void HttpSession::submit() {
    const GenerationAnswer& answer = exchange_->answer();
    next_id_ += answer.num_choices();
    has_streamed_ = false;
    if (answer.call().is_stream) timer_.start(kPingMs, kPingMs);
    is_submitting_ = true;
    for (size_t i = 0; i < answer.num_choices() && !answer.is_over(); ++i) {
        client::Request request;
        request.set_request_id(exchange_->first_id() + i);
        *request.mutable_generate() = answer.wish(i);
        host_.on_request(*this, request);
        if (!is_open()) return;
    }
    is_submitting_ = false;
    if (answer.is_over()) {
        finish();
    } else if (exchange_->is_resumable()) {
        begin_stream();
    }
}

void HttpSession::resume(const HttpRequest& request) {
    const std::string& last = request.last_event_id;
    const char* const end = last.data() + last.size();
    num_received_ = 0;
    const auto parsed = std::from_chars(last.data(), end, num_received_);
    if (!last.empty() && (parsed.ec != std::errc() || parsed.ptr != end)) {
        respond(HttpResponse::of(
            bad_field("Last-Event-ID", "Last-Event-ID must be the id of an event of the stream")));
        return;
    }
    client::Request asked;
    asked.mutable_resume()->set_id(request.path.substr(kResumePath.size()));
    const client::Response answer = ask(std::move(asked));
    if (!is_open() || !answer.has_error()) return;
    ApiError error = api_error(answer.error());
    if (error.status == 404) error.code = "resume_id_not_found";
    respond(HttpResponse::of(error));
}

std::shared_ptr<const SessionForm> HttpSession::form() const {
    if (!exchange_ || exchange_->form() == nullptr) return nullptr;
    return std::make_shared<const HttpForm>(exchange_->form());
}

void HttpSession::on_resumed(uint64_t request_id, const std::shared_ptr<const SessionForm>& form) {
    asked_id_ = 0;
    // Of an id that begins a request over HTTP; any other is refused before.
    const auto* of_http = dynamic_cast<const HttpForm*>(form.get());
    AFD_ASSERT(of_http != nullptr,
               "request %llu was not begun over HTTP",
               static_cast<unsigned long long>(request_id));
    exchange_.emplace(
        HttpExchange::resumed(of_http->answer(), num_received_, services_->model, request_id));
    has_streamed_ = false;
    timer_.start(kPingMs, kPingMs);
}

void HttpSession::send(const client::Response& response) {
    if (!is_open()) return;
    const uint64_t id = response.request_id();
    if (id != 0 && id == asked_id_) {
        asked_id_ = 0;
        asked_ = response;
        return;
    }
    if (id == 0 && response.has_error()) {
        // About the connection, which the gateway closes next. Who sent nothing hears nothing: it
        // would take it for the answer to what it asks next.
        if (!has_served_) end_with(api_error(response.error()));
        return;
    }
    if (!exchange_ || !exchange_->has(id)) return;
    events_.clear();
    exchange_->take(response, events_);
    // The first error among the choices is the answer; the head waits until all are asked for.
    if (is_submitting_) return;
    if (exchange_->answer().is_over()) {
        finish();
        return;
    }
    if (!events_.empty()) stream(events_);
    if (exchange_->has_caught_up()) go_on();
}

void HttpSession::go_on() {
    exchange_->go_on();
    if (exchange_->reaches_client()) {
        begin_stream();
        return;
    }
    timer_.stop();
    exchange_.reset();
    // Its end gives the request back.
    frame_.closes = true;
    respond(HttpResponse::of(bad_field(
        "Last-Event-ID",
        fmt::format("Last-Event-ID = {}: the stream has no such event yet", num_received_))));
}

void HttpSession::begin_stream() {
    if (!exchange_->take_head()) return;
    // Only its end tells such a client where the stream ends.
    if (!frame_.is_http_1_1) frame_.closes = true;
    exchange_->headers().emplace_back("X-Request-Id", request_id_);
    append_stream_head(exchange_->headers(), frame_, socket_.output());
}

void HttpSession::stream(std::string_view events) {
    const std::string sent = exchange_->to_send(events);
    if (sent.empty()) return;
    begin_stream();
    has_streamed_ = true;
    append_stream_part(sent, frame_, socket_.output());
}

void HttpSession::finish() {
    timer_.stop();
    const GenerationAnswer& answer = exchange_->answer();
    const std::optional<ApiError>& error = answer.error();
    const bool is_stream = answer.call().is_stream && (exchange_->has_head() || !error);
    // Half an answer is no state to go on from.
    if (is_stream && error) frame_.closes = true;
    if (is_stream) {
        answer.append_last_events(events_);
        stream(events_);
        begin_stream();
        append_stream_end(frame_, socket_.output());
        is_ending_ |= frame_.closes;
        note_answer(200);
    }
    HttpExchange done = *std::exchange(exchange_, std::nullopt);
    if (error) cancel_rest(done);
    if (!is_stream) {
        HttpResponse response = error             ? HttpResponse::of(*error)
                                : done.is_probe() ? HttpResponse::json(R"({"status":"ok"})")
                                                  : HttpResponse::json(done.answer().body());
        for (const HttpResponse::Header& header : done.headers())
            response.headers.push_back(header);
        respond(std::move(response));
    }
    events_ = std::string();
}

// Not at once: the gateway may be in the middle of ending them itself.
void HttpSession::cancel_rest(const HttpExchange& exchange) {
    const size_t num_choices = exchange.answer().num_choices();
    for (size_t i = 0; num_choices > 1 && i < num_choices; ++i) {
        cancels_.push_back(exchange.first_id() + i);
    }
    if (!cancels_.empty()) next_turn_.ask();
}

void HttpSession::respond(HttpResponse response) {
    response.headers.emplace_back("X-Request-Id", request_id_);
    append_response(response, frame_, socket_.output());
    is_whole_ = true;
    is_ending_ |= frame_.closes;
    note_answer(response.status);
}

void HttpSession::note_answer(int status) {
    // Of what was no request there is no begin.
    const std::chrono::duration<double> taken =
        begun_ ? std::chrono::steady_clock::now() - *begun_ : std::chrono::duration<double>(0);
    services_->metrics.on_answered(handler_, method_, status, taken.count());
    log::of_request(request_id_,
                    log::Level::kDebug,
                    "{}: {} {}: {} after {:.1f} ms",
                    identity_.name,
                    method_.empty() ? "no request" : method_,
                    handler_,
                    status,
                    taken.count() * 1e3);
    method_.clear();
    handler_ = kNoHandler;
    begun_.reset();
}

void HttpSession::refuse(const ApiError& error) {
    if (is_ending_) return;
    host_.on_refused(*this, error.message);
    end_with(error);
}

void HttpSession::end_with(const ApiError& error) {
    reader_.clear();
    services_->budget->hold(*this, 0);
    timer_.stop();
    request_id_ = request_id_of({});
    frame_ = {.closes = true};
    respond(HttpResponse::of(error));
}

void HttpSession::give_up(const std::string& why) {
    // What lies behind a request that is being answered cannot be answered.
    if (is_busy() || !is_written()) {
        host_.on_refused(*this, why);
        close();
        return;
    }
    refuse({.status = 503, .code = "overloaded", .message = why, .retry_after_s = 1});
    flush();
}

void HttpSession::note_half_request() {
    services_->budget->hold(*this, reader_.held_bytes() + body_bytes_);
    if (!is_open() || is_busy() || is_ending_) return;
    // What waits for the next turn is for this side to do, not for the client. The timer goes on: a
    // turn that took too long may leave nothing but half a request behind.
    if (next_turn_.is_asked()) return;
    if (reader_.held_bytes() == 0 || !is_written()) {
        timer_.stop();
    } else if (!timer_.is_active()) {
        // From the first bytes on: bytes that trickle in do not start it anew.
        timer_.start(services_->budget->timeout_ms());
        is_late_ = false;
    }
}

void HttpSession::on_timer() {
    if (exchange_) {
        // Who does not read what there is needs no sign of life.
        if (!std::exchange(has_streamed_, false) && is_written()) {
            stream(": ping\n\n");
            flush();
        }
        return;
    }
    if (next_turn_.is_asked() || !std::exchange(is_late_, true)) {
        timer_.start(kLateRestMs);
        return;
    }
    refuse({.status = 408,
            .code = "request_timeout",
            .message = fmt::format("half a request of {} bytes has waited for its rest for "
                                   "input_timeout_ms = {}",
                                   reader_.held_bytes(),
                                   services_->budget->timeout_ms())});
    flush();
}

void HttpSession::watch() {
    if (!is_open()) return;
    // A client whose requests wait is not read, so that the kernel holds it back.
    const bool is_read =
        !is_ending_ && !next_turn_.is_asked() && reader_.held_bytes() <= kAheadBytesMax;
    const int readable = is_read || (!is_busy() && !is_ending_ && is_written()) ? UV_READABLE : 0;
    watcher_->watch(is_written() ? readable : readable | UV_WRITABLE);
}

void HttpSession::flush() {
    if (!is_open()) return;
    const bool had_output = !is_written();
    if (!socket_.write()) {
        close();
        return;
    }
    if (is_written()) {
        is_whole_ = false;
        // A connection that is idle keeps no memory of its last answer.
        if (!is_busy()) socket_.give_memory_back();
        if (is_ending_ && !is_busy()) {
            leave(true);
            return;
        }
        // The answer that held back the next request has gone.
        if (had_output && !is_serving_ && !is_busy() && reader_.held_bytes() > 0) next_turn_.ask();
    }
    watch();
}

size_t HttpSession::queued_bytes() const {
    const size_t unsent = socket_.unsent_bytes();
    return is_whole_ && unsent > 0 ? 1 : unsent;
}

void HttpSession::leave(bool politely) {
    if (!is_open()) return;
    // 499: who asked has gone.
    if (is_busy()) note_answer(499);
    body_.reset();
    body_bytes_ = 0;
    // The object lives on until its host buries it: this may be called from its own callbacks.
    watcher_.reset();
    UniqueFd socket = socket_.release();
    if (politely) services_->lingering.add(std::move(socket));
    end();
}

// Its socket is gone.
void HttpSession::end() {
    timer_.stop();
    reader_.clear();
    services_->budget->hold(*this, 0);
    host_.on_closed(*this);
}

std::optional<HandedConnection> HttpSession::hand_over() {
    if (is_busy() || is_ending_ || !cancels_.empty() || !is_leaving()) return std::nullopt;
    HandedConnection handed;
    handed.door = kHttpDoor;
    handed.unread = reader_.unread();
    handed.unsent = socket_.unsent();
    // The watcher before its socket.
    watcher_.reset();
    handed.socket = socket_.release();
    end();
    return handed;
}

void HttpSession::begin_with(std::string_view unread, std::string_view unsent) {
    reader_.append(unread);
    socket_.output() += unsent;
    is_whole_ = !is_written();
    next_turn_.ask();
    watch();
}

client::Response HttpSession::ask(client::Request request) {
    request.set_request_id(next_id_++);
    asked_id_ = request.request_id();
    host_.on_request(*this, request);
    AFD_ASSERT(!is_open() || asked_id_ == 0, "no answer within the call");
    return std::exchange(asked_, {});
}

}  // namespace afd::daemon

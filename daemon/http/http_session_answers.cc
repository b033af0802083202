// SPDX-License-Identifier: Apache-2.0
//
// What HttpSession answers, and with whose help; the connection is in http_session.cc.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "daemon/http/answer/health_answers.h"
#include "daemon/http/answer/metrics_answer.h"
#include "daemon/http/answer/model_answers.h"
#include "daemon/http/answer/page.h"
#include "daemon/http/http_form.h"
#include "daemon/http/http_session.h"
#include "daemon/http/request_checks.h"
#include "daemon/program/logging.h"
#include "proto/check.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

// Whether reading it may take longer than a turn of the loop has: it is long, or has schemas, as
// those of tools, or may hide the word for them behind escapes.
bool takes_long(std::string_view body) {
    if (body.size() > TextThread::kShortBytesMax) return true;
    return std::ranges::any_of(
        std::array{"response_format", "tools", "tool_choice", "\\u"},
        [&](const char* word) { return body.find(word) != std::string_view::npos; });
}

}  // namespace

void HttpSession::handle(HttpRequest request) {
    const std::optional<Route> route = find_route(request.path);
    has_served_ = true;
    served_ = std::make_unique<Served>(Served{.id = request_id_of(request),
                                              .frame = {.is_http_1_1 = request.is_http_1_1,
                                                        .closes = !request.keeps_alive,
                                                        .is_to_head = request.method == "HEAD"},
                                              .method = request.method,
                                              .handler = route ? route->handler : kNoHandler,
                                              .begun = std::chrono::steady_clock::now()});
    RequestVerdict verdict = judge(request, route, *services_);
    served_->page_headers = std::move(verdict.headers);
    if (!verdict.key.empty()) identity_.account = "key " + verdict.key;
    if (verdict.response) {
        respond(*std::move(verdict.response));
    } else if (is_deep_check(request, *route)) {
        served_->exchange.emplace(HttpExchange::probe(services_->model, next_id_));
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
    if (services_->texts == nullptr || !takes_long(request.body)) {
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
    served_->body_bytes = reading->body.size();
    served_->body = services_->texts->thread.run(
        [reading, reader] { reading->asked = reader(reading->body, *reading->model); },
        [this, reading] {
            served_->body.reset();
            served_->body_bytes = 0;
            take(*std::move(reading->asked));
            flush();
            if (is_open()) settle();
            if (is_open()) owner_.on_progress(*this);
        });
}

void HttpSession::start(ApiResult<GenerationCall> call) {
    if (const auto* error = std::get_if<ApiError>(&call)) {
        respond(HttpResponse::of(*error));
        return;
    }
    GenerationCall& checked = std::get<GenerationCall>(call);
    services_->metrics.on_asked(checked.num_choices);
    served_->exchange.emplace(HttpExchange::begun(std::move(checked), services_->model, next_id_));
    submit();
}

void HttpSession::submit() {
    const GenerationAnswer& answer = exchange().answer();
    next_id_ += answer.num_choices();
    if (answer.call().is_stream) begin_pings();
    served_->is_submitting = true;
    for (size_t i = 0; i < answer.num_choices() && !answer.is_over(); ++i) {
        client::Request request;
        request.set_request_id(exchange().first_id() + i);
        *request.mutable_generate() = exchange().take_wish(i);
        owner_.on_request(*this, request);
        if (!is_open()) return;
    }
    served_->is_submitting = false;
    if (answer.is_over()) {
        finish();
    } else if (exchange().tells_id()) {
        begin_stream();
    }
}

void HttpSession::resume(const HttpRequest& request) {
    const auto last = whole_number(request.last_event_id);
    if (last) {
        served_->num_received = *last;
    } else if (!request.last_event_id.empty()) {
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
    // Events are made anew from the first answer on, so that is the place which is kept no longer.
    if (error.param == "received_chunks") {
        error = {.status = 400,
                 .code = "resume_too_long",
                 .message =
                     "the stream has made more than is kept of it (output_buffer_kib), so "
                     "its events cannot be made anew; ask anew"};
    }
    respond(HttpResponse::of(error));
}

std::string_view HttpSession::request_name() const {
    return served_ == nullptr ? std::string_view() : served_->id;
}

std::shared_ptr<const SessionForm> HttpSession::form() const {
    if (!is_generating() || served_->exchange->form() == nullptr) return nullptr;
    return std::make_shared<const HttpForm>(served_->exchange->form());
}

void HttpSession::on_resumed(uint64_t request_id, const std::shared_ptr<const SessionForm>& form) {
    asked_id_ = 0;
    // The id is of a request that was begun over HTTP: any other is refused before.
    const auto* of_http = dynamic_cast<const HttpForm*>(form.get());
    AFD_ASSERT(of_http != nullptr,
               "request %llu was not begun over HTTP",
               static_cast<unsigned long long>(request_id));
    served_->exchange.emplace(HttpExchange::resumed(
        of_http->answer(), served_->num_received, services_->model, request_id));
    begin_pings();
}

void HttpSession::begin_pings() {
    served_->ping = std::make_unique<Timer>(loop_, [this] { on_ping(); });
    served_->ping->start(kPingMs, kPingMs);
}

void HttpSession::on_ping() {
    // Who does not read what there is needs no sign of life.
    if (std::exchange(served_->has_streamed, false) || !is_written()) return;
    if (exchange().waits_for_id()) return;
    stream(": ping\n\n");
    flush();
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
    if (!is_generating() || !exchange().has(id)) return;
    served_->events.clear();
    exchange().take(response, served_->events);
    uncounted_bytes_ += exchange().take_prompt_bytes();
    cancel_later(exchange().take_cut());
    // The first error among the choices is the answer; the head waits until all are asked for.
    if (served_->is_submitting) return;
    if (exchange().answer().is_over()) {
        finish();
        return;
    }
    // The id of a request with a long prompt comes only when the text has been read.
    if (exchange().tells_id()) begin_stream();
    if (!served_->events.empty()) stream(served_->events);
    if (exchange().has_caught_up()) go_on();
}

void HttpSession::go_on() {
    exchange().go_on();
    if (exchange().reaches_client()) {
        begin_stream();
        return;
    }
    // Its end gives the request back.
    served_->frame.closes = true;
    refuse_place("the stream has no such event yet");
}

void HttpSession::refuse_place(std::string_view why) {
    respond(HttpResponse::of(bad_field(
        "Last-Event-ID", fmt::format("Last-Event-ID = {}: {}", served_->num_received, why))));
}

void HttpSession::begin_stream() {
    if (!exchange().take_head()) return;
    // Only its end tells such a client where the stream ends.
    if (!served_->frame.is_http_1_1) served_->frame.closes = true;
    std::vector<HttpResponse::Header> headers = exchange().headers();
    add_common_headers(headers);
    append_stream_head(headers, served_->frame, socket_.output());
}

void HttpSession::stream(std::string_view events) {
    const std::string sent = exchange().to_send(events);
    if (sent.empty()) return;
    begin_stream();
    served_->has_streamed = true;
    append_stream_part(sent, served_->frame, socket_.output());
}

void HttpSession::finish() {
    const GenerationAnswer& answer = exchange().answer();
    const std::optional<ApiError>& error = answer.error();
    if (error) cancel_rest(exchange());
    if (answer.call().is_stream && (exchange().has_head() || !error)) {
        finish_stream(error.has_value());
        return;
    }
    HttpResponse response = error                   ? HttpResponse::of(*error)
                            : exchange().is_probe() ? HttpResponse::json(R"({"status":"ok"})")
                                                    : HttpResponse::json(exchange().take_body());
    for (const HttpResponse::Header& header : exchange().headers())
        response.headers.push_back(header);
    respond(std::move(response));
}

void HttpSession::finish_stream(bool has_failed) {
    // Half an answer is no state to go on from.
    if (has_failed) served_->frame.closes = true;
    exchange().answer().append_last_events(served_->events);
    stream(served_->events);
    if (!exchange().reaches_client()) {
        refuse_place("the stream has ended, and has no such event");
        return;
    }
    begin_stream();
    append_stream_end(served_->frame, socket_.output());
    end_answer(200);
}

void HttpSession::cancel_rest(const HttpExchange& exchange) {
    const size_t num_choices = exchange.answer().num_choices();
    std::vector<uint64_t> ids;
    for (size_t i = 0; num_choices > 1 && i < num_choices; ++i) {
        ids.push_back(exchange.first_id() + i);
    }
    cancel_later(ids);
}

// Not at once: the gateway may be in the middle of ending them itself, or of telling of them.
void HttpSession::cancel_later(const std::vector<uint64_t>& ids) {
    cancels_.insert(cancels_.end(), ids.begin(), ids.end());
    if (!cancels_.empty()) next_turn_.ask();
}

void HttpSession::add_common_headers(std::vector<HttpResponse::Header>& headers) const {
    headers.emplace_back("X-Request-Id", served_->id);
    headers.insert(headers.end(), served_->page_headers.begin(), served_->page_headers.end());
}

void HttpSession::respond(HttpResponse response) {
    add_common_headers(response.headers);
    const size_t num_before = socket_.unsent_bytes();
    const int status = response.status;
    append_response(std::move(response), served_->frame, socket_.output());
    uncounted_bytes_ += socket_.unsent_bytes() - num_before;
    end_answer(status);
}

void HttpSession::end_answer(int status) {
    is_ending_ |= served_->frame.closes;
    note_answer(status);
    served_.reset();
    owner_.on_answered(*this);
}

void HttpSession::note_answer(int status) const {
    // Bytes that were no request have no time of beginning.
    const std::chrono::duration<double> taken =
        served_->begun ? std::chrono::steady_clock::now() - *served_->begun
                       : std::chrono::duration<double>(0);
    services_->metrics.on_answered(served_->handler, served_->method, status, taken.count());
    log::of_request(served_->id,
                    log::Level::kDebug,
                    "{}: {} {}: {} after {:.1f} ms",
                    identity_.name,
                    served_->method.empty() ? "no request" : served_->method,
                    served_->handler,
                    status,
                    taken.count() * 1e3);
}

client::Response HttpSession::ask(client::Request request) {
    request.set_request_id(next_id_++);
    asked_id_ = request.request_id();
    owner_.on_request(*this, request);
    AFD_ASSERT(!is_open() || asked_id_ == 0, "no answer within the call");
    return std::exchange(asked_, {});
}

}  // namespace afd::daemon

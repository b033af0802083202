// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/gateway/random_seed.h"
#include "daemon/program/version.h"

namespace afd::daemon {

namespace {

uint64_t now_us() {
    return uv_hrtime() / 1000;
}

}  // namespace

Gateway::Gateway(EventLoop& loop, const Config& config, ServedModel model, Hooks hooks)
    : loop_(loop),
      config_(config),
      model_(std::move(model)),
      hooks_(std::move(hooks)),
      queue_(config.num_attention_workers(),
             config.max_queue,
             static_cast<uint32_t>(config.max_sequences)),
      tracer_(loop, hooks_.trace_sources, answers_, [this] { settle(); }),
      burial_(loop, [this] { bury(); }),
      started_ms_(loop.now_ms()) {}

Gateway::~Gateway() = default;

void Gateway::add_connection(UniqueFd socket) {
    connections_.push_back(std::make_unique<ClientConnection>(loop_, std::move(socket), *this));
}

// ---- what clients say

void Gateway::on_request(ClientConnection& connection, const client::Request& request) {
    const uint64_t id = request.request_id();
    switch (request.body_case()) {
        case client::Request::kGenerate:
            generate(connection, id, request.generate());
            break;
        case client::Request::kCancel:
            cancel(connection, id, request.cancel().target());
            break;
        case client::Request::kStatus:
            send_status(connection, id);
            break;
        case client::Request::kTrace:
            if (const Result<> started = tracer_.start(connection, id, request.trace());
                !started.ok()) {
                answers_.error(connection, id, started.error());
            }
            break;
        case client::Request::kDrain:
            draining_ = true;
            drainers_.push_back({&connection, id, nullptr});
            break;
        case client::Request::kStop:
            answers_.done(connection, id);
            settle();
            hooks_.stop();
            return;
        case client::Request::BODY_NOT_SET:
            answers_.error(connection,
                           id,
                           {Code::kInvalidArgument, "the request has no body that is known here"});
            break;
    }
    settle();
}

void Gateway::generate(ClientConnection& connection,
                       uint64_t request_id,
                       const client::Generate& wish) {
    const Result<> accepted = accept(connection, request_id, wish);
    if (accepted.ok()) {
        admit();
    } else {
        answers_.error(connection, request_id, accepted.error());
    }
}

Result<> Gateway::accept(ClientConnection& connection,
                         uint64_t request_id,
                         const client::Generate& wish) {
    if (draining_) {
        return Error{
            Code::kFailedPrecondition,
            "afdd is draining and takes no new requests; send this one elsewhere or later"};
    }
    if (flights_.find(connection, request_id)) {
        return Error{Code::kInvalidArgument,
                     fmt::format("request_id {} is in flight on this connection already; choose "
                                 "another",
                                 request_id)};
    }
    Flight flight;
    AFD_ASSIGN(flight.request, Request::create(wish, model_, kv_tokens(), draw_random()));
    AFD_TRY(queue_.enqueue(flights_.next_id(), flight.request->max_total_tokens()));
    flight.connection = &connection;
    flight.request_id = request_id;
    flight.accepted_us = now_us();
    client::Response response;
    response.set_request_id(request_id);
    *response.mutable_accepted() = flight.request->accepted();
    answers_.send(connection, response);
    flights_.add(std::move(flight));
    return {};
}

// What one attention worker holds: as it said, or as configured while none is ready.
uint64_t Gateway::kv_tokens() const {
    uint64_t blocks = 0;
    for (const auto& worker : queue_.workers()) blocks = std::max(blocks, worker.total_blocks);
    if (blocks == 0) blocks = AdmissionQueue::blocks_for(config_.kv_tokens);
    return blocks * AdmissionQueue::kBlockTokens;
}

void Gateway::cancel(ClientConnection& connection, uint64_t request_id, uint64_t target) {
    // It may have ended while the Cancel was on its way.
    answers_.done(connection, request_id);
    tracer_.cancel(connection, target);
    if (const auto id = flights_.find(connection, target)) cancel_flight(*id);
}

// A waiting request ends here; a running one when its worker says so, so that its room stays
// reserved while the worker uses it.
void Gateway::cancel_flight(uint64_t id) {
    Flight& flight = flights_.at(id);
    if (flight.cancelled) return;
    flight.cancelled = true;
    const std::optional<uint32_t> session = queue_.session_of(id);
    if (!session) {
        finish(id, client::CANCELLED);
        admit();
        return;
    }
    control::SupervisorMessage message;
    message.mutable_cancel()->set_sequence_id(id);
    hooks_.send(*session, message);
}

void Gateway::on_closed(ClientConnection& connection) {
    for (const uint64_t id : flights_.ids_of(connection)) {
        flights_.at(id).connection = nullptr;
        cancel_flight(id);
    }
    std::erase_if(drainers_,
                  [&](const Drainer& drainer) { return drainer.connection == &connection; });
    tracer_.forget(connection);
    answers_.forget(connection);
    const auto found = std::find_if(connections_.begin(),
                                    connections_.end(),
                                    [&](const auto& entry) { return entry.get() == &connection; });
    closed_.push_back(std::move(*found));
    connections_.erase(found);
    burial_.start(0);
}

void Gateway::on_progress(ClientConnection& /*connection*/) {
    settle();
}

void Gateway::bury() {
    closed_.clear();
    settle();
}

// ---- what workers say

void Gateway::on_all_ready() {
    all_ready_ = true;
    hooks_.all_ready();
}

void Gateway::on_given_up(const std::string& why) {
    hooks_.given_up(why);
}

void Gateway::on_attention_ready(uint32_t session, uint64_t kv_tokens) {
    queue_.worker_ready(session, kv_tokens);
    admit();
    settle();
}

void Gateway::on_attention_gone(uint32_t session) {
    for (const uint64_t id : queue_.worker_gone(session)) replay(id);
    admit();
    settle();
}

// The worker died; decide what is left to do for a request that ran there.
void Gateway::replay(uint64_t id) {
    const Flight& flight = flights_.at(id);
    if (flight.cancelled) {
        finish(id, client::CANCELLED);
    } else if (flight.request->is_complete()) {
        finish(id, flight.request->finish_reason());
    } else {
        spdlog::info("request {} will run again, behind {} tokens already sent",
                     id,
                     flight.request->num_output_tokens());
    }
}

void Gateway::admit() {
    while (const auto admission = queue_.admit_next()) {
        control::SupervisorMessage message;
        *message.mutable_admit() = flights_.at(admission->id).request->admit(admission->id);
        hooks_.send(admission->session, message);
    }
}

void Gateway::on_events(uint32_t session, const control::Events& events) {
    for (const uint64_t id : events.started()) {
        Flight* flight = flight_on(id, session);
        if (flight != nullptr && flight->started_us == 0) flight->started_us = now_us();
    }
    for (const control::PromptLogprobsEvent& event : events.prompt_logprobs()) {
        Flight* flight = flight_on(event.sequence_id(), session);
        if (flight == nullptr) continue;
        std::optional<client::Chunk> chunk = flight->request->on_prompt_logprobs(event);
        if (chunk) send_chunk(*flight, *std::move(chunk));
    }
    for (const control::TokenEvent& event : events.tokens()) {
        if (flight_on(event.sequence_id(), session)) on_token(event.sequence_id(), event);
    }
    for (const control::EndEvent& event : events.ends()) {
        if (flight_on(event.sequence_id(), session)) on_end(event.sequence_id(), event);
    }
    admit();
    settle();
}

// Null for an event of a request that ended already or that runs elsewhere.
Flight* Gateway::flight_on(uint64_t id, uint32_t session) {
    if (queue_.session_of(id) != session) return nullptr;
    return &flights_.at(id);
}

void Gateway::on_token(uint64_t id, const control::TokenEvent& event) {
    Flight& flight = flights_.at(id);
    Result<std::optional<client::Chunk>> chunk = flight.request->on_token(event);
    if (!chunk.ok()) {
        spdlog::error("request {}: {}", id, chunk.error().message);
        control::SupervisorMessage message;
        message.mutable_cancel()->set_sequence_id(id);
        hooks_.send(*queue_.session_of(id), message);
        fail(id, chunk.error());
        return;
    }
    if (flight.first_token_us == 0) flight.first_token_us = now_us();
    ++num_output_tokens_;
    rate_.add(1, loop_.now_ms());
    if (chunk.value()) send_chunk(flight, *std::move(chunk).value());
}

void Gateway::on_end(uint64_t id, const control::EndEvent& event) {
    Flight& flight = flights_.at(id);
    const auto code = static_cast<Code>(event.code());
    if (flight.cancelled) {
        finish(id, client::CANCELLED);
    } else if (code != Code::kOk) {
        const std::string why =
            event.message().empty() ? std::string(code_name(code)) : event.message();
        fail(id, {code, "the request ended early: " + why});
    } else if (!flight.request->is_complete()) {
        fail(id, {Code::kInternal, "the attention worker ended the request before its last token"});
    } else {
        finish(id, flight.request->finish_reason());
    }
}

// ---- the end of a request

void Gateway::finish(uint64_t id, client::FinishReason reason) {
    Flight& flight = flights_.at(id);
    if (!flight.failed) ++num_finished_;
    if (flight.connection != nullptr) {
        if (std::optional<client::Chunk> rest = flight.request->on_end()) {
            send_chunk(flight, *std::move(rest));
        }
        client::Response response;
        response.set_request_id(flight.request_id);
        *response.mutable_finished() = flight.summary(reason, now_us());
        answers_.send(*flight.connection, response);
    }
    queue_.remove(id);
    flights_.erase(id);
}

void Gateway::fail(uint64_t id, const Error& error) {
    const Flight& flight = flights_.at(id);
    ++num_failed_;
    if (flight.connection != nullptr) {
        answers_.error(*flight.connection, flight.request_id, error);
    }
    queue_.remove(id);
    flights_.erase(id);
}

void Gateway::fail_all(const Error& error) {
    for (const uint64_t id : flights_.ids()) fail(id, error);
    settle();
}

// ---- answers

void Gateway::send_chunk(const Flight& flight, client::Chunk chunk) {
    if (flight.connection == nullptr || flight.cancelled) return;
    answers_.chunk(*flight.connection, flight.request_id, std::move(chunk));
}

void Gateway::settle() {
    for (ClientConnection* connection : answers_.flush()) {
        if (connection->queued_bytes() > config_.output_buffer_kib * 1024) {
            fail_slow_reader(*connection);
        }
    }
    const bool all_sent = std::all_of(connections_.begin(),
                                      connections_.end(),
                                      [](const auto& entry) { return entry->queued_bytes() == 0; });
    if (flights_.empty() && all_sent) end_drains();
}

void Gateway::end_drains() {
    for (const Drainer& drainer : std::exchange(drainers_, {})) {
        if (drainer.connection != nullptr) {
            answers_.done(*drainer.connection, drainer.request_id);
            drainer.connection->flush();
        }
        if (drainer.done) drainer.done();
    }
}

void Gateway::fail_slow_reader(ClientConnection& connection) {
    const std::vector<uint64_t> ids = flights_.ids_of(connection);
    for (const uint64_t id : ids) {
        Flight& flight = flights_.at(id);
        answers_.error(connection,
                       flight.request_id,
                       {Code::kResourceExhausted,
                        fmt::format("the client reads too slowly: {} bytes of answers wait, at "
                                    "most {} are kept (output_buffer_kib)",
                                    connection.queued_bytes(),
                                    config_.output_buffer_kib * 1024)});
        // Its work goes on until the worker hears of it, but nobody listens any more.
        flight.connection = nullptr;
        flight.failed = true;
        ++num_failed_;
        cancel_flight(id);
    }
    // Without requests it still asks, and does not read the answers.
    if (ids.empty() && connection.queued_bytes() > 2 * config_.output_buffer_kib * 1024) {
        connection.close();
    }
}

// ---- status and drain

void Gateway::drain(std::function<void()> done) {
    draining_ = true;
    drainers_.push_back({nullptr, 0, std::move(done)});
    settle();
}

uint32_t Gateway::num_sequences(uint32_t session) const {
    return queue_.workers()[session].num_sequences;
}

void Gateway::send_status(ClientConnection& connection, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    client::Status& status = *response.mutable_status();
    status.set_instance(config_.instance);
    status.set_model(model_.directory);
    status.set_topology(config_.topology);
    status.set_router(config_.router);
    status.set_shared_experts(config_.shared_experts);
    status.set_state(draining_ ? "draining" : all_ready_ ? "ready" : "starting");
    status.set_uptime_ms(loop_.now_ms() - started_ms_);
    status.set_pid(static_cast<uint32_t>(::getpid()));
    status.set_num_finished(num_finished_);
    status.set_num_failed(num_failed_);
    status.set_num_output_tokens(num_output_tokens_);
    status.set_output_tokens_per_s(rate_.per_second(loop_.now_ms()));
    status.set_version(std::string(kVersion));
    status.set_context_length(model_.context_length);
    status.set_vocab_size(model_.vocab_size);
    hooks_.fill_status(status);
    queue_.fill_status(status);
    answers_.send(connection, response);
}

}  // namespace afd::daemon

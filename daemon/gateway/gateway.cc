// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/gateway.h"

#include <unistd.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "daemon/gateway/request/prompt.h"
#include "daemon/program/logging.h"
#include "daemon/program/version.h"
#include "proto/state_names.h"

namespace afd::daemon {

namespace {

// Whoever connects has something to ask. A connection that stays silent for longer than this gives
// way to the next: it would hold a place for which a client with a pool of connections, or a probe,
// waits.
constexpr uint64_t kSilentClientMs = 1000;

}  // namespace

Gateway::Gateway(EventLoop& loop,
                 const Config& config,
                 ServedModel model,
                 std::vector<TraceSource> trace_sources,
                 AttentionWorkers& workers,
                 ServedInstance& instance)
    : config_(config),
      connections_max_(config.connections_max),
      loop_(loop),
      model_(std::move(model)),
      instance_(instance),
      queue_(config.num_attention_workers(),
             config.max_queue,
             static_cast<uint32_t>(config.max_sequences),
             {.grows = config.kv_reserve == KvReserve::kGrow, .window = model_.window}),
      counters_(loop, model_.context_length),
      sessions_(loop, [this] { settle(); }),
      ends_(flights_, queue_, answers_, counters_, sessions_, workers),
      resumables_(loop, config, flights_, queue_, answers_, ends_, [this] { settle(); }),
      admission_(config, model_, flights_, queue_, answers_, resumables_, workers),
      suspects_(flights_, queue_, ends_, counters_, workers),
      preemption_(flights_, queue_, ends_, counters_),
      stream_(flights_, queue_, answers_, ends_, counters_, suspects_, preemption_),
      replay_(flights_, queue_, ends_, counters_, suspects_),
      output_limit_(config.output_buffer_kib * 1024, flights_, ends_),
      drain_(answers_),
      change_watch_(answers_),
      outage_(loop,
              config.round_timeout_ms,
              [this](const Error& error) {
                  ends_.disown_all(error);
                  settle();
              }),
      deadlines_(loop, flights_, ends_, [this] { settle(); }),
      hop_sampler_(loop, trace_sources),
      // Half of what a client may leave unread.
      tracer_(loop,
              std::move(trace_sources),
              answers_,
              config.output_buffer_kib * 1024 / 2,
              [this] { settle(); }),
      long_prompts_(
          model_,
          [this](auto& client, auto& request, const auto& ids) { on_read(client, request, ids); },
          [this](auto& client, const auto& request, const auto& error) {
              refuse(client, request, error);
              settle();
          }),
      departure_(
          loop,
          flights_,
          sessions_,
          resumables_,
          [this](const ClientSession& client) { return is_busy(client); },
          [this] { instance_.on_departed(); }) {}

void Gateway::adopt(std::unique_ptr<ClientSession> session) {
    ClientSession& client = *session;
    sessions_.add(std::move(session));
    if (sessions_.num_open() > connections_max_) make_room_for(client, connections_max_);
}

void Gateway::adopt_handed(std::unique_ptr<ClientSession> session) {
    ClientSession& client = *session;
    sessions_.add(std::move(session));
    // It has asked there.
    sessions_.touch(client);
    if (sessions_.num_open() > handed_max_) make_room_for(client, handed_max_);
}

void Gateway::limit_connections(size_t num_max) {
    connections_max_ = std::min<size_t>(config_.connections_max, num_max);
    handed_max_ = num_max;
}

void Gateway::make_room_for(ClientSession& client, size_t num_max) {
    const SessionTable::Patience patience{
        .idle_ms = config_.idle_timeout_ms,
        .silent_ms = std::min(config_.idle_timeout_ms, kSilentClientMs)};
    // Once, and not for each session: a surplus connection must cost little.
    const std::unordered_set<const ClientSession*> in_flight = flights_.clients();
    ClientSession* idle = sessions_.longest_idle(patience, [&](const ClientSession& other) {
        return &other == &client || in_flight.contains(&other) || is_awaited_by(other) ||
               other.is_within_request();
    });
    ClientSession& leaves = idle == nullptr ? client : *idle;
    const std::string why =
        idle == nullptr
            ? fmt::format(
                  "afdd serves {} connections (connections_max, or the limit of open files "
                  "less what the workers need), and none is idle; try again later",
                  num_max)
            : fmt::format(
                  "it has asked for nothing within {} ms, or was idle for idle_timeout_ms = {}, "
                  "and another client needs the place",
                  patience.silent_ms,
                  patience.idle_ms);
    on_refused(leaves, why);
    // Written here: no answer comes after it.
    answers_.error(leaves, 0, {Code::kResourceExhausted, why});
    leaves.flush();
    leaves.close();
}

bool Gateway::is_busy(const ClientSession& client) const {
    return flights_.num_of(client) > 0 || is_awaited_by(client);
}

// Something that is no flight.
bool Gateway::is_awaited_by(const ClientSession& client) const {
    return resumables_.is_for(client) || drain_.is_awaited_by(client) ||
           change_watch_.is_for(client) || tracer_.is_for(client) || long_prompts_.is_for(client);
}

void Gateway::on_request(ClientSession& client, const client::Request& request) {
    sessions_.touch(client);
    const Result<> taken = take(client, request);
    if (!taken.ok()) refuse(client, request, taken.error());
    settle();
    // After its Done has left: the program may end.
    if (request.has_stop()) instance_.on_stop_asked();
}

void Gateway::refuse(ClientSession& client, const client::Request& request, const Error& error) {
    if (request.has_generate()) counters_.requests().on_refused(error.code);
    answers_.error(client, request.request_id(), error);
}

Result<> Gateway::take(ClientSession& client, const client::Request& request) {
    return long_prompts_.is_long(request) ? read_first(client, request) : serve(client, request);
}

Result<> Gateway::read_first(ClientSession& client, const client::Request& request) {
    if (request.has_generate()) {
        // What would be refused in any case is not worth reading.
        AFD_TRY(drain_.check_admits());
        AFD_TRY(outage_.check_admits());
        AFD_TRY(admission_.check(client, request.request_id(), request.generate()));
    }
    long_prompts_.read(client,
                       request,
                       request.has_generate() ? admission_.token_limit()
                                              : TokenLimit(model_, model_.context_length));
    return {};
}

void Gateway::on_read(ClientSession& client,
                      client::Request& request,
                      const std::vector<uint32_t>& ids) {
    if (request.has_tokenize()) {
        send_tokens(client, request.request_id(), ids);
    } else {
        client::TokenIds& prompt = *request.mutable_generate()->mutable_token_ids();
        prompt.mutable_ids()->Assign(ids.begin(), ids.end());
        const Result<> taken = serve(client, request);
        if (!taken.ok()) refuse(client, request, taken.error());
    }
    settle();
}

Result<> Gateway::serve(ClientSession& client, const client::Request& request) {
    const uint64_t id = request.request_id();
    switch (request.body_case()) {
        case client::Request::kGenerate:
            return generate(client, id, request.generate());
        case client::Request::kCancel:
            cancel(client, id, request.cancel().target());
            return {};
        case client::Request::kStatus:
            send_status(client, id);
            return {};
        case client::Request::kMetrics:
            send_metrics(client, id);
            return {};
        case client::Request::kContext:
            return send_context(client, id, request.context());
        case client::Request::kTrace:
            AFD_TRY(tracer_.start(client, id, request.trace()));
            // The rings are the client's until its trace ends.
            hop_sampler_.pause();
            return {};
        case client::Request::kDrain:
            drain_.begin(client, id);
            return {};
        case client::Request::kPing:
            answers_.done(client, id);
            return {};
        // Its Done first; on_request() tells the program when that has been written.
        case client::Request::kStop:
            answers_.done(client, id);
            return {};
        case client::Request::kTokenize: {
            const client::Tokenize& asked = request.tokenize();
            const TokenLimit limit(model_, model_.context_length);
            AFD_ASSIGN(const std::vector<uint32_t> ids,
                       tokenize(asked.text(), asked.add_special_tokens(), model_, limit));
            send_tokens(client, id, ids);
            return {};
        }
        case client::Request::kDetokenize:
            return send_text(client, id, request.detokenize());
        // Also in a drain: it is nothing new.
        case client::Request::kResume:
            return resumables_.resume(client, id, request.resume());
        case client::Request::kResize:
            return change(client, id, [&] { return instance_.on_resize_asked(request.resize()); });
        case client::Request::kUpgrade:
            return change(client, id, [this] { return instance_.on_upgrade_asked(); });
        case client::Request::BODY_NOT_SET:
            break;
    }
    return Error{Code::kInvalidArgument, "the request has no body that is known here"};
}

Result<> Gateway::generate(ClientSession& client,
                           uint64_t request_id,
                           const client::Generate& wish) {
    AFD_TRY(drain_.check_admits());
    AFD_TRY(outage_.check_admits());
    AFD_ASSIGN(const FlightTable::Id id, admission_.accept(client, request_id, wish));
    deadlines_.watch(id);
    return {};
}

Result<> Gateway::change(ClientSession& client,
                         uint64_t request_id,
                         const std::function<Result<>()>& begin) {
    if (drain_.is_on()) {
        return Error{Code::kFailedPrecondition,
                     "afdd is draining, which cannot be taken back: start it again instead"};
    }
    AFD_TRY(begin());
    change_watch_.begin(client, request_id);
    return {};
}

void Gateway::cancel(ClientSession& client, uint64_t request_id, uint64_t target) {
    // It may have ended while the Cancel was on its way.
    answers_.done(client, request_id);
    tracer_.cancel(client, target);
    long_prompts_.cancel(client, target);
    std::optional<FlightTable::Id> id = flights_.find(client, target);
    if (!id) id = resumables_.find(client, target);
    // What a client still hears of may be over.
    if (id && flights_.find(*id) != nullptr) ends_.cancel(*id);
}

void Gateway::on_refused(ClientSession& client, const std::string& why) {
    const auto num_unsaid = refusals_.take(loop_.now_ms());
    if (!num_unsaid) return;
    log::warn("closed the connection of {}: {}{}",
              client.identity().name,
              why,
              LogLimit::more(*num_unsaid));
}

// No settle(): a session may close while settle() flushes it. The burial settles.
void Gateway::on_closed(ClientSession& client) {
    resumables_.detach(client);
    ends_.abandon(client);
    long_prompts_.forget(client);
    drain_.forget(client);
    change_watch_.forget(client);
    tracer_.forget(client);
    answers_.forget(client);
    output_limit_.forget(client);
    sessions_.bury(client);
}

void Gateway::on_progress(ClientSession& client) {
    sessions_.touch(client);
    resumables_.note_progress(client);
    settle();
}

void Gateway::on_attention_ready(uint32_t session, uint64_t kv_tokens) {
    // Never more than it was to have: others could not take over what only it holds.
    queue_.worker_ready(session, std::min(kv_tokens, admission_.configured_kv_tokens()));
    settle();
}

void Gateway::on_attention_gone(uint32_t session, const WorkerEnd& end) {
    replay_.on_attention_gone(session, end);
    settle();
}

void Gateway::on_events(uint32_t session, const control::Events& events) {
    stream_.on_events(session, events);
    settle();
}

void Gateway::on_attention_wait(uint32_t session, bool is_waiting) {
    queue_.worker_waits(session, is_waiting);
    settle();
}

uint32_t Gateway::num_sequences(uint32_t session) const {
    return queue_.workers()[session].num_sequences;
}

void Gateway::stand_still() {
    queue_.stand_still();
}

void Gateway::go_on(uint32_t num_sessions, std::vector<TraceSource> trace_sources) {
    queue_.set_num_workers(num_sessions);
    queue_.go_on();
    hop_sampler_.set_sources(trace_sources);
    tracer_.set_sources(std::move(trace_sources));
    settle();
}

void Gateway::tell_change(const std::string& text) {
    change_watch_.tell(text);
    settle();
}

void Gateway::end_change(const Result<client::Response>& outcome) {
    change_watch_.end(outcome);
    settle();
}

void Gateway::leave_to(Heir& heir) {
    departure_.begin(heir);
}

void Gateway::stay() {
    departure_.end();
    for (ClientSession* session : sessions_.all()) session->stay();
}

handover::Remaining Gateway::remaining() const {
    handover::Remaining remaining;
    remaining.set_num_requests(static_cast<uint32_t>(flights_.size()));
    remaining.set_num_connections(static_cast<uint32_t>(sessions_.num_open()));
    for (std::string& id : resumables_.ids()) remaining.add_stream_ids(std::move(id));
    return remaining;
}

void Gateway::adopt(const HandedStream& stream, std::shared_ptr<const SessionForm> form) {
    resumables_.adopt(stream, std::move(form));
    settle();
}

void Gateway::set_elsewhere(const handover::Remaining& remaining) {
    resumables_.set_elsewhere({remaining.stream_ids().begin(), remaining.stream_ids().end()});
}

void Gateway::on_predecessor_gone() {
    resumables_.set_elsewhere({});
    settle();
}

void Gateway::drain() {
    drain_.begin();
    settle();
}

void Gateway::set_service(const ServiceState& state) {
    if (state.level == ServiceState::Level::kFailed) {
        outage_.begin(state.reason);
    } else {
        outage_.end();
    }
}

void Gateway::fail_all(const Error& error) {
    // Whoever still waits for the end of the drain waits for something.
    drain_.cut_off(num_in_flight());
    ends_.fail_all(error);
    settle();
}

void Gateway::settle() {
    hop_sampler_.run_while(!flights_.empty() && !tracer_.is_on());
    resumables_.enforce_limits();
    admission_.admit();
    bool ended = false;
    bool has_more = false;
    do {
        has_more = resumables_.pump();
        for (ClientSession* client : answers_.flush()) ended |= output_limit_.enforce(*client);
    } while (has_more);
    // One of those may have held back others.
    if (ended) admission_.admit();
    resumables_.ask_if_changed();
    departure_.look();
    if (!flights_.empty() || !long_prompts_.empty() || sessions_.owes_answers()) return;
    if (drain_.is_on() && (resumables_.has_unheard() || instance_.has_predecessor())) return;
    if (drain_.end()) instance_.on_drained();
}

client::Status Gateway::status() {
    client::Status status;
    status.set_instance(config_.instance);
    status.set_model(model_.directory);
    status.set_topology(std::string(name_of(config_.topology)));
    status.set_router(std::string(name_of(config_.router)));
    status.set_shared_experts(std::string(name_of(config_.shared_experts)));
    status.set_pid(static_cast<uint32_t>(::getpid()));
    status.set_version(std::string(kVersion));
    status.set_context_length(static_cast<uint32_t>(admission_.token_limit().tokens));
    status.set_vocab_size(model_.vocab_size);
    counters_.fill_status(status);
    instance_.fill_status(status);
    queue_.fill_status(status);
    resumables_.fill_status(status);
    if (drain_.is_on()) status.set_state(std::string(kInstanceDraining));
    return status;
}

std::string Gateway::context_note() const {
    return shortened_context(model_.context_length, admission_.token_limit());
}

void Gateway::send_status(ClientSession& client, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    *response.mutable_status() = status();
    answers_.send(client, response);
}

void Gateway::send_metrics(ClientSession& client, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_metrics()->set_text(
        instance_.metrics_text(status(), counters_.requests(), hop_sampler_.times()));
    answers_.send(client, response);
}

void Gateway::send_tokens(ClientSession& client,
                          uint64_t request_id,
                          const std::vector<uint32_t>& ids) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
    response.mutable_tokens()->set_context_length(model_.context_length);
    answers_.send(client, response);
}

Result<> Gateway::send_text(ClientSession& client,
                            uint64_t request_id,
                            const client::Detokenize& asked) {
    const auto& ids = asked.token_ids().ids();
    if (model_.tokenizer == nullptr) {
        return Error{Code::kInvalidArgument, "this model has no tokenizer, so ids have no text"};
    }
    if (static_cast<uint64_t>(ids.size()) > model_.context_length) {
        return Error{Code::kInvalidArgument,
                     fmt::format("token_ids has {} ids: at most {} are taken, the context length "
                                 "of the model",
                                 ids.size(),
                                 model_.context_length)};
    }
    AFD_TRY(check_ids(ids, "token_ids", model_.vocab_size));
    client::Response response;
    response.set_request_id(request_id);
    const std::vector<uint32_t> copy(ids.begin(), ids.end());
    response.mutable_text()->set_text(model_.tokenizer->decode(copy));
    answers_.send(client, response);
    return {};
}

Result<> Gateway::send_context(ClientSession& client,
                               uint64_t request_id,
                               const client::GetContext& asked) {
    client::Response response;
    response.set_request_id(request_id);
    AFD_TRY(instance_.answer_context(asked, *response.mutable_context()));
    answers_.send(client, response);
    return {};
}

}  // namespace afd::daemon

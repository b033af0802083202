// SPDX-License-Identifier: Apache-2.0
#include "clients/afd_client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "clients/generate_progress.h"

namespace afd::client {
namespace {

// How long afdd may take to end a request that was cancelled.
constexpr std::chrono::milliseconds kCancelTimeout{5'000};

// Milliseconds for poll(), rounded up so that it does not return just before the deadline.
int poll_timeout_ms(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// The time in which a callback of the caller's runs.
class InCallback {
  public:
    explicit InCallback(bool& is_in_callback) : is_in_callback_(is_in_callback) {
        is_in_callback_ = true;
    }
    ~InCallback() { is_in_callback_ = false; }
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;

  private:
    bool& is_in_callback_;
};

afd::Error no_answer(std::chrono::milliseconds timeout) {
    return {Code::kDeadlineExceeded,
            "afdd gave no answer within " + std::to_string(timeout.count()) +
                " ms; it has much to do, hangs or is stopped: wait longer, or see its log"};
}

// Of a drain that goes on: what it still waits for.
afd::Error still_draining(const Status& status, std::chrono::milliseconds timeout) {
    const bool has_requests = status.num_running() + status.num_queued() > 0;
    const std::string left = has_requests ? std::to_string(status.num_running()) + " running and " +
                                                std::to_string(status.num_queued()) +
                                                " queued requests are left"
                                          : "answers that nobody has read yet are left";
    return {Code::kDeadlineExceeded,
            left + " after " + std::to_string(timeout.count()) +
                " ms; afdd goes on draining (afdctl status)"};
}

void collect(Response& response, Generation& generation) {
    switch (response.body_case()) {
        case Response::kAccepted: {
            const Accepted& accepted = response.accepted();
            generation.seed = accepted.seed();
            generation.resume_id = accepted.resume_id();
            generation.prompt_ids.assign(accepted.prompt_ids().begin(),
                                         accepted.prompt_ids().end());
            break;
        }
        case Response::kChunk: {
            const Chunk& chunk = response.chunk();
            generation.text += chunk.text();
            generation.token_ids.insert(
                generation.token_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
            generation.logprobs.insert(
                generation.logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
            generation.top_logprobs.insert(generation.top_logprobs.end(),
                                           chunk.top_logprobs().begin(),
                                           chunk.top_logprobs().end());
            generation.prompt_logprobs.insert(generation.prompt_logprobs.end(),
                                              chunk.prompt_logprobs().begin(),
                                              chunk.prompt_logprobs().end());
            generation.prompt_top_logprobs.insert(generation.prompt_top_logprobs.end(),
                                                  chunk.prompt_top_logprobs().begin(),
                                                  chunk.prompt_top_logprobs().end());
            break;
        }
        case Response::kFinished:
            generation.finished = response.finished();
            break;
        default:
            break;
    }
}

}  // namespace

Result<Client> Client::connect(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
    AFD_ASSIGN(Connection connection, Connection::connect(endpoint, deadline_after(timeout)));
    return Client(std::move(connection));
}

Result<Client::Wake> Client::wait(Clock::time_point deadline, const Cancellation* cancellation) {
    while (true) {
        // Made anew each time: a partial send changes what to wait for.
        std::array<pollfd, 2> items = {
            pollfd{connection_.fd(), connection_.events(), 0},
            pollfd{cancellation != nullptr ? cancellation->fd() : -1, POLLIN, 0}};
        const int num_ready =
            poll(items.data(), items.size(), poll_timeout_ms(std::min(deadline, silence_end())));
        if (num_ready < 0 && errno != EINTR) {
            return afd::Error{Code::kInternal, std::string("poll: ") + std::strerror(errno)};
        }
        if (num_ready > 0) {
            if (items[0].revents & POLLOUT) AFD_TRY(connection_.flush());
            if (items[0].revents & (POLLIN | POLLHUP | POLLERR)) {
                hear();
                return Wake::kResponses;
            }
            if (items[1].revents != 0) return Wake::kCancellation;
        }
        const Clock::time_point now = Clock::now();
        if (now >= deadline) return Wake::kDeadline;
        if (now >= silence_end()) AFD_TRY(on_silence());
    }
}

void Client::hear() {
    heard_ = Clock::now();
    has_asked_ = false;
}

Clock::time_point Client::silence_end() const {
    return has_asked_ ? asked_ + patience_.answer : heard_ + patience_.quiet;
}

Result<> Client::on_silence() {
    const Clock::time_point now = Clock::now();
    if (!has_asked_) {
        // The wait counts from the question: this process may have been stopped itself.
        has_asked_ = true;
        asked_ = now;
        Request request;
        request.set_request_id(next_request_id_++);
        request.mutable_ping();
        return connection_.send(request);
    }
    is_silent_ = true;
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - heard_);
    return connection_.give_up("no sign of life for " + std::to_string(silent.count()) +
                               " ms; afdd hangs or is stopped, see its log, and end or continue "
                               "it (kill -CONT)");
}

Result<> Client::send(Request& request) {
    if (is_in_callback_) {
        return afd::Error{Code::kFailedPrecondition,
                          "a callback of this client's request asks it something else, and it has "
                          "one request at a time; connect another client for that"};
    }
    hear();
    request.set_request_id(next_request_id_++);
    return connection_.send(request);
}

Result<std::optional<Response>> Client::next_response(uint64_t request_id,
                                                      Clock::time_point deadline,
                                                      const Cancellation* cancellation) {
    while (true) {
        while (num_taken_ < arrived_.size()) {
            Response response = std::move(arrived_[num_taken_++]);
            // Others with a smaller id belong to requests that this client gave up; their ends
            // arrive late and are dropped.
            if (response.request_id() == request_id) return std::optional(std::move(response));
            if (response.request_id() == 0 || response.request_id() >= next_request_id_) {
                return afd::Error{Code::kDataLoss,
                                  "afdd answered request " + std::to_string(response.request_id()) +
                                      ", which was never sent"};
            }
        }
        arrived_.clear();
        num_taken_ = 0;
        // Before waiting, because an error that came behind the last responses is not an event.
        const Result<> received = connection_.receive(arrived_);
        if (!arrived_.empty()) continue;
        AFD_TRY(received);
        if (Clock::now() >= deadline) {
            return afd::Error{Code::kDeadlineExceeded, "no answer in time"};
        }
        AFD_ASSIGN(const Wake wake, wait(deadline, cancellation));
        if (wake == Wake::kCancellation) return std::optional<Response>();
    }
}

Result<> Client::send_cancel(uint64_t target) {
    Request request;
    request.mutable_cancel()->set_target(target);
    return send(request);
}

Result<> Client::cancel(Hearing& hearing) {
    hearing.is_cancelled = true;
    hearing.cancellation = nullptr;
    hearing.deadline = deadline_after(kCancelTimeout);
    return send_cancel(hearing.request_id);
}

Result<> Client::hear_out(Hearing& hearing,
                          const OnResponse& on_response,
                          const OnCancel& on_cancel,
                          const OnDeadline& on_deadline) {
    while (true) {
        Result<std::optional<Response>> next =
            next_response(hearing.request_id, hearing.deadline, hearing.cancellation);
        if (!next.ok()) {
            return next.error().code == Code::kDeadlineExceeded ? on_deadline() : next.error();
        }
        if (next.value().has_value()) {
            AFD_ASSIGN(const bool is_last, on_response(*next.value()));
            if (is_last) return {};
        }
        // Also with answers at hand: a caller who takes them slowly may never come to wait.
        const bool is_cancelled = !next.value().has_value() || (hearing.cancellation != nullptr &&
                                                                hearing.cancellation->requested());
        if (is_cancelled) {
            hearing.cancellation = nullptr;
            AFD_TRY(on_cancel());
        }
    }
}

Result<Generation> Client::generate(const Generate& request,
                                    const OnChunk& on_chunk,
                                    const Cancellation* cancellation,
                                    std::chrono::milliseconds timeout,
                                    const OnAccepted& on_accepted) {
    Request message;
    *message.mutable_generate() = request;
    AFD_TRY(send(message));
    return follow(message.request_id(), on_chunk, cancellation, timeout, on_accepted);
}

Result<Generation> Client::resume(const Resume& request,
                                  const OnChunk& on_chunk,
                                  const Cancellation* cancellation,
                                  std::chrono::milliseconds timeout,
                                  const OnAccepted& on_accepted) {
    Request message;
    *message.mutable_resume() = request;
    AFD_TRY(send(message));
    return follow(message.request_id(), on_chunk, cancellation, timeout, on_accepted);
}

Result<Generation> Client::follow(uint64_t request_id,
                                  const OnChunk& on_chunk,
                                  const Cancellation* cancellation,
                                  std::chrono::milliseconds timeout,
                                  const OnAccepted& on_accepted) {
    Generation generation;
    GenerateProgress progress;
    Hearing hearing{request_id, deadline_after(timeout), cancellation};
    const auto goes_on = [&](GenerateProgress::Step step, const Response& response) {
        const InCallback scope(is_in_callback_);
        if (step == GenerateProgress::Step::kAccepted && on_accepted) {
            on_accepted(response.accepted());
        }
        const bool is_wanted = step == GenerateProgress::Step::kChunk && !hearing.is_cancelled;
        return !is_wanted || !on_chunk || on_chunk(response.chunk());
    };
    const auto on_deadline = [&]() -> afd::Error {
        if (hearing.is_cancelled) return no_answer(kCancelTimeout);
        if (const Result<> sent = send_cancel(request_id); !sent.ok()) return sent.error();
        return {Code::kDeadlineExceeded,
                "the generation had not ended after " + std::to_string(timeout.count()) + " ms (" +
                    std::to_string(progress.num_tokens()) +
                    " tokens came) and was cancelled; allow more time or fewer tokens"};
    };
    const auto on_response = [&](Response& response) -> Result<bool> {
        AFD_ASSIGN(const GenerateProgress::Step step, progress.take(response));
        collect(response, generation);
        if (!goes_on(step, response)) AFD_TRY(cancel(hearing));
        if (step == GenerateProgress::Step::kFinished) return true;
        if (Clock::now() >= hearing.deadline) return on_deadline();
        return false;
    };
    AFD_TRY(hear_out(
        hearing, on_response, [&] { return cancel(hearing); }, on_deadline));
    return generation;
}

Result<Response> Client::call(Request request,
                              std::chrono::milliseconds timeout,
                              const Cancellation* cancellation) {
    AFD_TRY(send(request));
    Hearing hearing{request.request_id(), deadline_after(timeout), cancellation};
    Response response;
    const auto on_response = [&](Response& only) -> Result<bool> {
        response = std::move(only);
        return true;
    };
    const auto on_cancel = []() -> Result<> {
        return afd::Error{Code::kCancelled, "interrupted while waiting for afdd"};
    };
    AFD_TRY(hear_out(hearing, on_response, on_cancel, [&] { return no_answer(timeout); }));
    if (response.has_error()) return to_error(response.error());
    const Response::BodyCase expected = request.has_status()    ? Response::kStatus
                                        : request.has_context() ? Response::kContext
                                        : request.has_metrics() ? Response::kMetrics
                                                                : Response::kDone;
    if (response.body_case() != expected) {
        return afd::Error{Code::kDataLoss, "afdd's answer is of another kind than the question"};
    }
    return response;
}

Result<Status> Client::status(std::chrono::milliseconds timeout, const Cancellation* cancellation) {
    Request request;
    request.mutable_status();
    AFD_ASSIGN(Response response, call(std::move(request), timeout, cancellation));
    return std::move(*response.mutable_status());
}

Result<Context> Client::context(const GetContext& asked,
                                std::chrono::milliseconds timeout,
                                const Cancellation* cancellation) {
    Request request;
    *request.mutable_context() = asked;
    AFD_ASSIGN(Response response, call(std::move(request), timeout, cancellation));
    return std::move(*response.mutable_context());
}

Result<std::string> Client::metrics(std::chrono::milliseconds timeout,
                                    const Cancellation* cancellation) {
    Request request;
    request.mutable_metrics();
    AFD_ASSIGN(Response response, call(std::move(request), timeout, cancellation));
    return std::move(*response.mutable_metrics()->mutable_text());
}

Result<> Client::trace(std::chrono::milliseconds duration,
                       const std::function<void(const TraceEvents&)>& on_events,
                       const Cancellation* cancellation) {
    if (duration.count() < 0 || duration.count() > UINT32_MAX) {
        return afd::Error{Code::kInvalidArgument,
                          "a trace of " + std::to_string(duration.count()) +
                              " ms; allowed are 0 to " + std::to_string(UINT32_MAX)};
    }
    Request request;
    request.mutable_trace()->set_duration_ms(static_cast<uint32_t>(duration.count()));
    AFD_TRY(send(request));
    const std::chrono::milliseconds timeout = duration + kReplyTimeout;
    Hearing hearing{request.request_id(), deadline_after(timeout), cancellation};
    const auto on_response = [&](Response& response) -> Result<bool> {
        if (response.has_error()) return to_error(response.error());
        if (response.has_trace_events()) {
            const InCallback scope(is_in_callback_);
            on_events(response.trace_events());
        }
        return response.has_done();
    };
    const auto on_deadline = [&] {
        return no_answer(hearing.is_cancelled ? kCancelTimeout : timeout);
    };
    return hear_out(
        hearing, on_response, [&] { return cancel(hearing); }, on_deadline);
}

Result<Response> Client::change(Request request,
                                const char* what,
                                const OnProgress& on_progress,
                                std::chrono::milliseconds timeout,
                                const Cancellation* cancellation) {
    AFD_TRY(send(request));
    Hearing hearing{request.request_id(), deadline_after(timeout), cancellation};
    Response last;
    const auto on_response = [&](Response& response) -> Result<bool> {
        if (response.has_error()) return to_error(response.error());
        if (!response.has_progress()) {
            last = std::move(response);
            return true;
        }
        if (on_progress) {
            const InCallback scope(is_in_callback_);
            on_progress(response.progress().text());
        }
        return false;
    };
    const auto on_cancel = [&]() -> Result<> {
        return afd::Error{Code::kCancelled,
                          "interrupted; " + std::string(what) + " goes on (afdctl status)"};
    };
    const auto on_deadline = [&]() -> afd::Error {
        return {Code::kDeadlineExceeded,
                std::string(what) + " has not ended after " + std::to_string(timeout.count()) +
                    " ms; it goes on (afdctl status)"};
    };
    AFD_TRY(hear_out(hearing, on_response, on_cancel, on_deadline));
    return last;
}

Result<Resized> Client::resize(const Resize& asked,
                               const OnProgress& on_progress,
                               std::chrono::milliseconds timeout,
                               const Cancellation* cancellation) {
    Request request;
    *request.mutable_resize() = asked;
    AFD_ASSIGN(const Response response,
               change(std::move(request), "the resize", on_progress, timeout, cancellation));
    return response.resized();
}

Result<Upgraded> Client::upgrade(const OnProgress& on_progress,
                                 std::chrono::milliseconds timeout,
                                 const Cancellation* cancellation) {
    Request request;
    request.mutable_upgrade();
    AFD_ASSIGN(const Response response,
               change(std::move(request), "the upgrade", on_progress, timeout, cancellation));
    return response.upgraded();
}

Result<> Client::drain(std::chrono::milliseconds timeout, const Cancellation* cancellation) {
    Request request;
    request.mutable_drain();
    const Result<Response> answer = call(std::move(request), timeout, cancellation);
    if (answer.ok()) return {};
    if (answer.error().code != Code::kDeadlineExceeded) return answer.error();
    // It is the requests that take long, unless afdd does not even say so.
    const Result<Status> now = status(kReplyTimeout, cancellation);
    return now.ok() ? still_draining(now.value(), timeout) : answer.error();
}

Result<> Client::stop(std::chrono::milliseconds timeout, const Cancellation* cancellation) {
    Request request;
    request.mutable_stop();
    AFD_TRY(call(std::move(request), timeout, cancellation));
    return {};
}

Result<std::string> Client::stop_and_wait(std::chrono::milliseconds timeout,
                                          const Cancellation* cancellation) {
    const Clock::time_point deadline = deadline_after(timeout);
    // Its answer says at the end what a Stop's cannot know: whether everything was finished.
    Request drain;
    drain.mutable_drain();
    AFD_TRY(send(drain));
    Request order;
    order.mutable_stop();
    AFD_TRY(send(order));
    arrived_.clear();
    num_taken_ = 0;
    std::string cut_off;
    bool is_drained = false;
    while (true) {
        const bool is_open = connection_.receive(arrived_).ok();
        for (const Response& response : arrived_) {
            const bool is_of_drain = response.request_id() == drain.request_id();
            is_drained |= is_of_drain && response.has_done();
            if (!response.has_error()) continue;
            if (response.request_id() == order.request_id()) return to_error(response.error());
            if (is_of_drain) cut_off = response.error().message();
        }
        arrived_.clear();
        if (!is_open && !is_drained && cut_off.empty()) {
            return afd::Error{
                Code::kUnavailable,
                "afdd has ended and did not say that everything was finished; see its "
                "log"};
        }
        if (!is_open) return cut_off;
        AFD_ASSIGN(const Wake wake, wait(deadline, cancellation));
        if (wake == Wake::kDeadline) {
            return afd::Error{Code::kDeadlineExceeded,
                              "afdd still runs after " + std::to_string(timeout.count()) + " ms"};
        }
        if (wake == Wake::kCancellation) {
            return afd::Error{Code::kCancelled, "interrupted while waiting for afdd to exit"};
        }
    }
}

}  // namespace afd::client

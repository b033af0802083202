// SPDX-License-Identifier: Apache-2.0
#pragma once

// Client: talks to a running afdd, one request at a time, blocking with deadlines.
//
//   AFD_ASSIGN(const Endpoint endpoint, resolve_endpoint("", "default"));
//   AFD_ASSIGN(Client client, Client::connect(endpoint));
//   Generate request;
//   request.set_text("Once upon a time");
//   AFD_ASSIGN(const Generation generation, client.generate(request, [](const Chunk& chunk) {
//       std::cout << chunk.text() << std::flush;
//       return true;
//   }));
//
// For many requests at once use clients/connection.h, which this class is made of. A Client
// belongs to one thread; another thread stops a generation through a Cancellation. A callback that
// asks the Client whose request it hears of gets kFailedPrecondition.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "clients/cancellation.h"
#include "clients/connection.h"
#include "clients/endpoint.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

// All of one generation; what was not asked for in the Generate message stays empty.
struct Generation {
    std::string text;
    std::vector<uint32_t> prompt_ids;
    std::vector<uint32_t> token_ids;
    std::vector<float> logprobs;
    std::vector<float> prompt_logprobs;
    std::vector<TopLogprobs> top_logprobs;         // Of each token.
    std::vector<TopLogprobs> prompt_top_logprobs;  // Of each of prompt_logprobs.
    uint64_t seed = 0;
    std::string resume_id;  // With Generate.resumable_ms.
    Finished finished;      // Reason, token counts and afdd's times.
};

// Called for each chunk as it arrives; false cancels the request, which then ends as CANCELLED.
using OnChunk = std::function<bool(const Chunk&)>;
// Called once, before the first chunk: the time to note down a resume_id.
using OnAccepted = std::function<void(const Accepted&)>;
// Called for each step of a change of the instance: one line.
using OnProgress = std::function<void(const std::string& text)>;

class Client {
  public:
    static constexpr std::chrono::milliseconds kReplyTimeout{5'000};
    static constexpr std::chrono::milliseconds kGenerateTimeout{600'000};

    // How long afdd may be silent in a wait, however long that may last. A request may wait for
    // minutes, and the socket of a process that is stopped stays open: so after `quiet` afdd is
    // asked for a sign of life, and `answer` later it is given up.
    struct Patience {
        std::chrono::milliseconds quiet{2'000};
        std::chrono::milliseconds answer{10'000};
    };
    // REQUIRES: each at most a year.
    void set_patience(const Patience& patience) { patience_ = patience; }

    // Errors: as Connection::connect().
    static Result<Client> connect(const Endpoint& endpoint,
                                  std::chrono::milliseconds timeout = kReplyTimeout);

    // Runs `request` to its end. A cancelled generation is a result with reason CANCELLED and the
    // tokens that came before.
    // Errors: what afdd reports for the request, such as kCancelled if it was cancelled before afdd
    // had read its text; kDeadlineExceeded after `timeout` (the request is
    // cancelled, the client stays usable), or if afdd does not end within 5 s what `cancellation`
    // stopped; kUnavailable or kDataLoss if the connection broke, or afdd gives no sign of life
    // (the client is then useless).
    Result<Generation> generate(const Generate& request,
                                const OnChunk& on_chunk = nullptr,
                                const Cancellation* cancellation = nullptr,
                                std::chrono::milliseconds timeout = kGenerateTimeout,
                                const OnAccepted& on_accepted = nullptr);
    // Goes on with a generation whose connection broke; the result has what came behind
    // `request.received_chunks`. Errors: as generate(); kNotFound: afdd knows it no longer.
    Result<Generation> resume(const Resume& request,
                              const OnChunk& on_chunk = nullptr,
                              const Cancellation* cancellation = nullptr,
                              std::chrono::milliseconds timeout = kGenerateTimeout,
                              const OnAccepted& on_accepted = nullptr);

    // What every worker does for `duration`, in parts as they come; a cancellation ends it early,
    // and is no error. Errors: kInvalidArgument if `duration` is negative or more than 2^32 - 1 ms;
    // kUnavailable if another client is tracing; as generate().
    Result<> trace(std::chrono::milliseconds duration,
                   const std::function<void(const TraceEvents&)>& on_events,
                   const Cancellation* cancellation = nullptr);

    // Errors of these: kDeadlineExceeded, kUnavailable, kDataLoss, what afdd reports, and
    // kCancelled if `cancellation` was requested while waiting.
    Result<Status> status(std::chrono::milliseconds timeout = kReplyTimeout,
                          const Cancellation* cancellation = nullptr);
    // Everything that the instance counts, in Prometheus' text format.
    Result<std::string> metrics(std::chrono::milliseconds timeout = kReplyTimeout,
                                const Cancellation* cancellation = nullptr);
    // A worker's ScheduleContext, field by field; `asked.run_flag` sets that word first.
    // Errors: as above; kNotFound: no such worker.
    Result<Context> context(const GetContext& asked,
                            std::chrono::milliseconds timeout = kReplyTimeout,
                            const Cancellation* cancellation = nullptr);
    // Returns once other numbers of workers serve; `on_progress` hears the steps. A cancellation
    // ends the wait, and not the resize. Errors: as above; those of Resize (proto/client.proto).
    Result<Resized> resize(const Resize& asked,
                           const OnProgress& on_progress,
                           std::chrono::milliseconds timeout,
                           const Cancellation* cancellation = nullptr);
    // Returns once another afdd has taken the place of this one, for new requests. As resize().
    Result<Upgraded> upgrade(const OnProgress& on_progress,
                             std::chrono::milliseconds timeout,
                             const Cancellation* cancellation = nullptr);
    // Returns once nothing is in flight; afdd admits nothing new meanwhile or afterwards. Errors:
    // as above; kDeadlineExceeded also says what is left, and afdd goes on draining.
    Result<> drain(std::chrono::milliseconds timeout, const Cancellation* cancellation = nullptr);
    // Returns once afdd has taken the order; it then drains and exits.
    Result<> stop(std::chrono::milliseconds timeout = kReplyTimeout,
                  const Cancellation* cancellation = nullptr);
    // As stop(), and waits for afdd to close the connection, as it does when it exits. Returns what
    // afdd says of requests that it cut off; empty: everything was finished. Errors:
    // kDeadlineExceeded, kCancelled, kUnavailable if it gives no sign of life.
    Result<std::string> stop_and_wait(std::chrono::milliseconds timeout,
                                      const Cancellation* cancellation = nullptr);

    // Whether the connection has ended.
    bool is_lost() const { return connection_.is_lost(); }
    // Whether afdd was given up because it was silent: it is there and does not answer.
    bool is_silent() const { return is_silent_; }

  private:
    explicit Client(Connection connection) : connection_(std::move(connection)) {}

    // What ended a wait: bytes of the connection, the cancellation or the deadline.
    enum class Wake { kResponses, kCancellation, kDeadline };

    // Errors: kUnavailable, afdd gives no sign of life.
    Result<Wake> wait(Clock::time_point deadline, const Cancellation* cancellation);
    // When the silence so far is long enough to do something about it, and what is then done.
    Clock::time_point silence_end() const;
    Result<> on_silence();
    void hear();
    // Gives the request its id.
    Result<> send(Request& request);
    // The next response to `request_id`, or nothing if the cancellation came first. Answers to
    // requests that were given up are dropped.
    Result<std::optional<Response>> next_response(uint64_t request_id,
                                                  Clock::time_point deadline,
                                                  const Cancellation* cancellation);
    // A request whose answers are awaited.
    struct Hearing {
        uint64_t request_id;
        Clock::time_point deadline;
        const Cancellation* cancellation;  // nullptr: none, or it has come.
        bool is_cancelled = false;         // afdd was told.
    };
    using OnResponse = std::function<Result<bool>(Response&)>;  // Whether it was the last.
    using OnCancel = std::function<Result<>()>;
    using OnDeadline = std::function<afd::Error()>;

    // Hears answers until the last one. When the cancellation comes, once, `on_cancel` says whether
    // the wait goes on, before another answer is handed out. Errors: of the three functions, and of
    // the connection.
    Result<> hear_out(Hearing& hearing,
                      const OnResponse& on_response,
                      const OnCancel& on_cancel,
                      const OnDeadline& on_deadline);
    // Tells afdd, whose last answer is then near.
    Result<> cancel(Hearing& hearing);
    Result<> send_cancel(uint64_t target);
    Result<Generation> follow(uint64_t request_id,
                              const OnChunk& on_chunk,
                              const Cancellation* cancellation,
                              std::chrono::milliseconds timeout,
                              const OnAccepted& on_accepted);
    // Of the instance: the answer that ends it.
    Result<Response> change(Request request,
                            const char* what,
                            const OnProgress& on_progress,
                            std::chrono::milliseconds timeout,
                            const Cancellation* cancellation);
    Result<Response> call(Request request,
                          std::chrono::milliseconds timeout,
                          const Cancellation* cancellation);

    Connection connection_;
    uint64_t next_request_id_ = 1;
    std::vector<Response> arrived_;  // Not yet looked at, in order.
    size_t num_taken_ = 0;           // Of arrived_.

    Patience patience_;
    Clock::time_point heard_;  // Of the last bytes, or of the request that waits.
    Clock::time_point asked_;  // Of the Ping that has no answer yet.
    bool has_asked_ = false;   // For a sign of life since heard_.
    bool is_silent_ = false;
    bool is_in_callback_ = false;  // Of the request that is being heard.
};

}  // namespace afd::client

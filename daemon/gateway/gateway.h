// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gateway: serves clients (client.proto) with the attention workers. All on afdd's loop.
//
// It is where three sides meet, and passes each word on to the part whose noun it is:
//   sessions (client_session.h)      -> LongPrompts, Admission, ResumableRequests,
//                                       FlightEnds (cancel), Tracer, Drain
//   workers (attention_workers.h)    -> TokenStream, Replay
//   the program (served_instance.h)  -> Drain, Outage, ChangeWatch, Departure, status
//   time                             -> Deadlines
// Every entry ends in settle(): start what has room, write what was queued, hold slow readers to
// their limit, end a drain that has nothing left.
//
// A request that cannot complete ends with an explicit error. When an attention worker is gone its
// requests run again elsewhere behind what was already sent, and the client sees a pause; a request
// that kills one worker after another is ended.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/gateway/change_watch.h"
#include "daemon/gateway/departure.h"
#include "daemon/gateway/drain.h"
#include "daemon/gateway/flight/admission.h"
#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/client_answers.h"
#include "daemon/gateway/flight/deadlines.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/gateway/flight/output_limit.h"
#include "daemon/gateway/flight/preemption.h"
#include "daemon/gateway/flight/replay.h"
#include "daemon/gateway/flight/resumable_requests.h"
#include "daemon/gateway/flight/suspects.h"
#include "daemon/gateway/flight/token_stream.h"
#include "daemon/gateway/hop_sampler.h"
#include "daemon/gateway/outage.h"
#include "daemon/gateway/request/long_prompts.h"
#include "daemon/gateway/request/request.h"
#include "daemon/gateway/request/served_model.h"
#include "daemon/gateway/served_instance.h"
#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/handed_connection.h"
#include "daemon/gateway/session/session_table.h"
#include "daemon/gateway/tracer.h"
#include "daemon/program/log_limit.h"
#include "daemon/supervisor/attention_workers.h"
#include "daemon/supervisor/service_state.h"
#include "daemon/supervisor/worker_end.h"
#include "proto/handover.pb.h"

namespace afd::daemon {

class Gateway final : public SessionOwner, public AttentionListener {
  public:
    // `trace_sources`: whom a client can trace.
    // REQUIRES: `loop`, `config`, the model's tokenizer, `workers` and `instance` outlive the
    // gateway.
    Gateway(EventLoop& loop,
            const Config& config,
            ServedModel model,
            std::vector<TraceSource> trace_sources,
            AttentionWorkers& workers,
            ServedInstance& instance);

    // Refuses new requests, and calls ServedInstance::on_drained() once nothing is in flight: no
    // request, also none that a session still reads, no unsent answer. Cannot be taken back.
    void drain();

    size_t num_connections() const { return sessions_.num_open(); }
    // At most this many connections are let in from now on, or connections_max if that is fewer. A
    // further one takes the place of one that has asked for nothing within a second, or else of one
    // that has been idle for idle_timeout_ms, or is refused. Idle is one for which nothing runs,
    // that has sent whole requests, and reads nothing of an answer. For a handed one, `num_max`
    // alone counts.
    void limit_connections(size_t num_max);

    // While nobody can be served, new requests are refused with the reason, and those that wait
    // for round_timeout_ms end with it.
    void set_service(const ServiceState& state);

    // No request is given to a worker from now on; what clients send meanwhile waits. For a resize:
    // the workers that there are may then be ended, as if they had died.
    void stand_still();
    // It is over. There are `num_sessions` attention workers now, of which none is ready yet, and
    // these sources to trace. REQUIRES: on_attention_gone() has come of each that was ready before.
    void go_on(uint32_t num_sessions, std::vector<TraceSource> trace_sources);
    // To the client that has asked for the resize or upgrade, if it still listens (change_watch.h).
    void tell_change(const std::string& text);
    void end_change(const Result<client::Response>& outcome);

    // Another afdd takes the place of this one (departure.h). ServedInstance::on_departed() comes
    // when nothing is left, also again. REQUIRES: `heir` outlives the gateway, or stay() comes
    // before.
    void leave_to(Heir& heir);
    // The heir is gone: this gateway serves on.
    void stay();
    // What there is still to do before it has left; for the heir.
    handover::Remaining remaining() const;
    // As the heir: what the afdd before this one has kept, which it still has, and that it is gone.
    void adopt(const HandedStream& stream, std::shared_ptr<const SessionForm> form);
    void set_elsewhere(const handover::Remaining& remaining);
    void on_predecessor_gone();

    // Ends every request with this error, as afdd ends.
    void fail_all(const Error& error);

    // The instance as a whole, and what it counted of its requests.
    client::Status status();
    const RequestMetrics& requests() const { return counters_.requests(); }
    size_t num_in_flight() const { return flights_.size(); }
    // As shortened_context().
    std::string context_note() const;
    uint64_t num_finished() const { return counters_.num_finished(); }
    uint64_t num_failed() const { return counters_.num_failed(); }

    void adopt(std::unique_ptr<ClientSession> session) override;
    void adopt_handed(std::unique_ptr<ClientSession> session) override;
    void on_request(ClientSession& client, const client::Request& request) override;
    void on_refused(ClientSession& client, const std::string& why) override;
    void on_closed(ClientSession& client) override;
    void on_progress(ClientSession& client) override;
    void on_answered(ClientSession& client) override { sessions_.touch(client); }
    bool is_leaving() const override { return departure_.is_on(); }

    void on_attention_ready(uint32_t session, uint64_t kv_tokens) override;
    void on_attention_gone(uint32_t session, const WorkerEnd& end) override;
    void on_events(uint32_t session, const control::Events& events) override;
    void on_attention_wait(uint32_t session, bool is_waiting) override;
    uint32_t num_sequences(uint32_t session) const override;

  private:
    // Now, or when its text is read.
    Result<> take(ClientSession& client, const client::Request& request);
    Result<> read_first(ClientSession& client, const client::Request& request);
    Result<> serve(ClientSession& client, const client::Request& request);
    void on_read(ClientSession& client, client::Request& request, const std::vector<uint32_t>& ids);
    void refuse(ClientSession& client, const client::Request& request, const Error& error);
    Result<> generate(ClientSession& client, uint64_t request_id, const client::Generate& wish);
    // A resize or an upgrade, which `begin` begins.
    Result<> change(ClientSession& client,
                    uint64_t request_id,
                    const std::function<Result<>()>& begin);
    void cancel(ClientSession& client, uint64_t request_id, uint64_t target);
    void send_status(ClientSession& client, uint64_t request_id);
    void send_tokens(ClientSession& client, uint64_t request_id, const std::vector<uint32_t>& ids);
    Result<> send_text(ClientSession& client, uint64_t request_id, const client::Detokenize& asked);
    void send_metrics(ClientSession& client, uint64_t request_id);
    Result<> send_context(ClientSession& client,
                          uint64_t request_id,
                          const client::GetContext& asked);
    void make_room_for(ClientSession& client, size_t num_max);
    bool is_busy(const ClientSession& client) const;
    bool is_awaited_by(const ClientSession& client) const;
    void settle();

    const Config& config_;
    size_t connections_max_;
    size_t handed_max_ = SIZE_MAX;  // With those that another afdd hands over.
    EventLoop& loop_;
    LogLimit refusals_;
    ServedModel model_;
    ServedInstance& instance_;
    AdmissionQueue queue_;
    FlightTable flights_;
    ClientAnswers answers_;
    GatewayCounters counters_;
    SessionTable sessions_;
    FlightEnds ends_;
    ResumableRequests resumables_;
    Admission admission_;
    Suspects suspects_;
    Preemption preemption_;
    TokenStream stream_;
    Replay replay_;
    OutputLimit output_limit_;
    Drain drain_;
    ChangeWatch change_watch_;
    Outage outage_;
    Deadlines deadlines_;
    HopSampler hop_sampler_;
    Tracer tracer_;
    LongPrompts long_prompts_;
    Departure departure_;
};

}  // namespace afd::daemon

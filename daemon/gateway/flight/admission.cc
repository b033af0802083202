// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/admission.h"

#include <algorithm>
#include <utility>

#include "daemon/gateway/flight/deadlines.h"
#include "daemon/gateway/request/random_seed.h"
#include "daemon/program/logging.h"
#include "model/attention/kv_cache.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

Admission::Admission(const Config& config,
                     ServedModel& model,
                     FlightTable& flights,
                     AdmissionQueue& queue,
                     ClientAnswers& answers,
                     ResumableRequests& resumables,
                     AttentionWorkers& workers)
    : config_(config),
      model_(model),
      flights_(flights),
      queue_(queue),
      answers_(answers),
      resumables_(resumables),
      workers_(workers) {}

Result<> Admission::check(const ClientSession& client,
                          uint64_t request_id,
                          const client::Generate& wish) const {
    // Those that its account has left behind count against further ones that could be left, so that
    // whoever leaves many keeps nobody else out: many clients may be one account.
    const size_t num_detached =
        wish.resumable_ms() > 0 ? flights_.num_detached_of(client.identity().account) : 0;
    AFD_TRY(resumables_.check_room(client, request_id, num_detached));
    AFD_TRY(resumables_.check(wish));
    return queue_.check_place(&client);
}

Result<FlightTable::Id> Admission::accept(ClientSession& client,
                                          uint64_t request_id,
                                          const client::Generate& wish) {
    // Before the prompt is looked at: what is refused must cost little.
    AFD_TRY(check(client, request_id, wish));
    Flight flight;
    // A seed is drawn even if the request brings one: which it is, is decided there. It travels
    // with the request, so that a replay repeats every draw.
    AFD_ASSIGN(flight.request, Request::create(wish, model_, kv_tokens(), draw_random()));
    // Before anything is sent or added: a request that is refused leaves no trace.
    AFD_TRY(queue_.enqueue(flights_.next_id(),
                           flight.request->num_prompt_tokens(),
                           flight.request->max_total_tokens(),
                           &client));
    flight.client = &client;
    flight.request_id = request_id;
    flight.moments.accepted_us = schedule::steady_now_us();
    if (const uint64_t ms = Deadlines::timeout_ms(wish.timeout_ms(), config_.request_timeout_ms)) {
        flight.deadline_us = flight.moments.accepted_us + ms * 1000;
    }
    client::Response response;
    response.set_request_id(request_id);
    *response.mutable_accepted() = flight.request->accepted();
    flight.kept = resumables_.open(flights_.next_id(), client, wish, *response.mutable_accepted());
    answers_.send(client, response);
    if (!client.request_name().empty()) {
        log::name_request(flights_.next_id(), client.request_name());
    }
    log::of_request(flights_.next_id(),
                    log::Level::kDebug,
                    "accepted from {}, its request {}: {} prompt tokens, at most {} in all",
                    client.identity().name,
                    request_id,
                    flight.request->num_prompt_tokens(),
                    flight.request->max_total_tokens());
    return flights_.add(std::move(flight));
}

void Admission::admit() {
    while (const auto admission = queue_.admit_next()) {
        control::SupervisorMessage message;
        const Request& request = *flights_.at(admission->id).request;
        *message.mutable_admit() = admission->is_trial ? request.admit_for_one(admission->id)
                                                       : request.admit(admission->id);
        message.mutable_admit()->set_reserved_tokens(
            static_cast<uint32_t>(queue_.reserved_tokens(admission->id)));
        workers_.send(admission->session, message);
        log::of_request(admission->id,
                        log::Level::kDebug,
                        "goes to attention worker {}{}",
                        admission->session,
                        admission->is_trial ? ", alone and for one token" : "");
    }
}

uint64_t Admission::configured_kv_tokens() const {
    return whole_kv_tokens(config_.kv_tokens);
}

// What one attention worker holds: as it said, or as configured while none is ready.
uint64_t Admission::kv_tokens() const {
    uint64_t blocks = 0;
    for (const auto& worker : queue_.workers()) blocks = std::max(blocks, worker.total_blocks);
    return blocks == 0 ? configured_kv_tokens() : blocks * model::kKvBlockTokens;
}

}  // namespace afd::daemon

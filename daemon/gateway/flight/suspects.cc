// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/suspects.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "daemon/program/logging.h"
#include "schedule/layout/execution_log.h"

namespace afd::daemon {

Suspects::Suspects(FlightTable& flights,
                   AdmissionQueue& queue,
                   FlightEnds& ends,
                   GatewayCounters& counters,
                   AttentionWorkers& workers)
    : flights_(flights), queue_(queue), ends_(ends), counters_(counters), workers_(workers) {}

bool Suspects::outlives(FlightTable::Id id,
                        uint32_t session,
                        const WorkerEnd& end,
                        bool was_given_others) {
    WorkerDeaths& deaths = flights_.at(id).deaths;
    if (end.is_fault) deaths.add(session);
    if (deaths.num < kSuspectDeaths) return true;
    if (end.is_fault && is_deadly(deaths, session, was_given_others)) {
        convict(id, end.how);
        return false;
    }
    const bool may_be_session =
        deaths.num >= schedule::ExecutionLog::kDeadly && !deaths.was_another;
    queue_.suspect(id, may_be_session ? std::optional(deaths.session) : std::nullopt);
    if (end.is_fault) {
        log::of_request(id,
                        log::Level::kWarn,
                        "{} attention workers have died in a row while they had it ({}), and it "
                        "got no token in between: it runs alone next",
                        deaths.num,
                        end.how);
    }
    return true;
}

bool Suspects::is_deadly(const WorkerDeaths& deaths,
                         uint32_t session,
                         bool was_given_others) const {
    return deaths.num >= schedule::ExecutionLog::kDeadly && !was_given_others &&
           (deaths.was_another || !queue_.is_another_ready(session));
}

void Suspects::convict(FlightTable::Id id, const std::string& how) {
    const Error error{
        Code::kInternal,
        fmt::format("attention workers died {} times in a row while they worked on this request, "
                    "the last one on nothing else ({}): it ends with the tokens that it has, and "
                    "would do the same again. The log of the worker says what it died of: keep it "
                    "and the prompt, they show a bug",
                    flights_.at(id).deaths.num,
                    how)};
    log::of_request(id, log::Level::kError, "{}", error.message);
    counters_.requests().on_deadly();
    ends_.fail(id, error);
}

// What they died of is gone. Not twice without a token for anybody: then it may be the workers
// themselves, and whether they can serve is the supervisor's to say.
void Suspects::excuse_deaths() {
    if (std::exchange(has_served_, false)) workers_.excuse_deaths();
}

void Suspects::on_token(FlightTable::Id id, Flight& flight) {
    has_served_ = true;
    if (flight.deaths.num >= kSuspectDeaths) {
        log::of_request(id, log::Level::kInfo, "has a token alone, and is a suspect no more");
    }
    flight.deaths = {};
}

bool Suspects::end_trial(FlightTable::Id id) {
    // Without a token it has come no further: what its worker says is no end of a trial.
    if (!queue_.is_on_trial(id) || flights_.at(id).deaths.num > 0) return false;
    queue_.end_trial(id);
    return true;
}

}  // namespace afd::daemon

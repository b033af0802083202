// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/departure.h"

#include <optional>
#include <utility>

namespace afd::daemon {

Departure::Departure(EventLoop& loop,
                     FlightTable& flights,
                     SessionTable& sessions,
                     ResumableRequests& resumables,
                     IsBusy is_busy,
                     std::function<void()> on_gone)
    : flights_(flights),
      sessions_(sessions),
      resumables_(resumables),
      is_busy_(std::move(is_busy)),
      on_gone_(std::move(on_gone)),
      next_turn_(loop, [this] { give(); }) {}

void Departure::begin(Heir& heir) {
    heir_ = &heir;
    look();
}

void Departure::look() {
    if (is_on()) next_turn_.ask();
}

void Departure::give() {
    if (!is_on()) return;
    for (ClientSession* session : sessions_.all()) {
        if (is_busy_(*session)) continue;
        if (auto connection = session->hand_over()) heir_->take(*std::move(connection));
    }
    for (HandedStream& stream : resumables_.take_finished()) heir_->take(std::move(stream));
    if (flights_.empty() && resumables_.empty() && sessions_.num_open() == 0) on_gone_();
}

}  // namespace afd::daemon

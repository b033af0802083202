// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kDayMs = 86400000;

}  // namespace

std::vector<ConfigOption> timeout_options() {
    using C = Config;
    return {
        {"wait_report_ms",
         &C::wait_report_ms,
         "1000",
         "ms",
         "Report who waits for whom after this time",
         1,
         kDayMs},
        {"round_timeout_ms",
         &C::round_timeout_ms,
         "120000",
         "ms",
         "End the requests of a round that takes longer",
         1,
         kDayMs},
        {"hang_timeout_ms",
         &C::hang_timeout_ms,
         "60000",
         "ms",
         "Kill a worker without progress for this time; 0: never",
         0,
         kDayMs},
        {"stop_timeout_ms",
         &C::stop_timeout_ms,
         "2000",
         "ms",
         "Kill a worker that a signal has stopped and somebody needs; 0: never",
         0,
         kDayMs},
        {"restart_first_ms",
         &C::restart_first_ms,
         "100",
         "ms",
         "Delay before a dead worker is restarted; doubles each time",
         0,
         kDayMs},
        {"restart_max_ms", &C::restart_max_ms, "5000", "ms", "Longest such delay", 0, kDayMs},
        {"restart_reset_ms",
         &C::restart_reset_ms,
         "10000",
         "ms",
         "Healthy time after which the delay starts anew",
         0,
         kDayMs},
        {"start_attempts",
         &C::start_attempts,
         "5",
         "",
         "Give up after this many failed starts of a worker never ready before",
         1,
         1000},
        {"start_timeout_ms",
         &C::start_timeout_ms,
         "600000",
         "ms",
         "Kill a worker not ready after this and 1 s per 32 MiB of weights; 0: never",
         0,
         kDayMs},
        {"drain_timeout_ms",
         &C::drain_timeout_ms,
         "30000",
         "ms",
         "At the end, wait this long for requests in flight",
         0,
         kDayMs},
    };
}

}  // namespace afd::daemon

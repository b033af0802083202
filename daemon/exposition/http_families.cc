// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "daemon/exposition/families.h"

namespace afd::daemon {

void add_http_families(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.counter("afd_http_requests_total",
                     "HTTP requests that were answered; code 499: the client had gone");
    if (snapshot.http != nullptr) {
        for (const auto& [kind, count] : snapshot.http->counts()) {
            families.value({{"handler", kind.handler},
                            {"method", kind.method},
                            {"status", std::to_string(kind.code / 100) + "xx"},
                            {"code", std::to_string(kind.code)}},
                           static_cast<double>(count));
        }
    }
    families.histogram("afd_request_params_n",
                       "Choices of each prompt that a completion over HTTP asked for",
                       "request_params_n");
    if (snapshot.http != nullptr) families.distribution({}, snapshot.http->choices());
    families.histogram("afd_http_request_duration_seconds",
                       "From a complete HTTP request to the end of its answer");
    if (snapshot.http == nullptr) return;
    for (const auto& [handler, times] : snapshot.http->durations()) {
        families.distribution({{"handler", handler}}, times);
    }
}

}  // namespace afd::daemon

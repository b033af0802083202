// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a scraper reads: Prometheus' text format, version 0.0.4, or OpenMetrics 1.0.0 where its
// Accept header prefers that. The families and values are the same; a bound that is a whole number
// is `le="1"` in the one and `le="1.0"` in the other.

#include <string>
#include <string_view>

#include "daemon/http/message/http_response.h"

namespace afd::daemon {

// `text`: in the format 0.0.4, as docs/metrics.md lists it. `accept`: of the request; may be empty.
HttpResponse answer_metrics(const std::string& text, std::string_view accept);

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What probes are told: whether this process is worth keeping (/live), and whether it should get
// requests (/ready, /health). The two differ while it loads and while it drains.

#include "daemon/http/message/http_response.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// 503 only when nobody can be served again.
HttpResponse answer_live(const client::Status& status);
// 200 while requests are served, also by fewer workers than configured, with `waits` where a worker
// waits for another that does not come; else 503 and why.
HttpResponse answer_ready(const client::Status& status);

}  // namespace afd::daemon

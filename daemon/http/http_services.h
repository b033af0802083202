// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpServices: what all connections of the HTTP front end share. They hold it together with the
// front end, and may outlive that.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/config/origin_list.h"
#include "daemon/gateway/request/text_thread.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/http/api_keys.h"
#include "daemon/http/call/api_model.h"
#include "daemon/http/lingering_sockets.h"
#include "daemon/metrics/http_metrics.h"

namespace afd::daemon {

struct HttpServices {
    // REQUIRES: `loop` outlives the object.
    explicit HttpServices(EventLoop& loop) : lingering(loop) {}

    ApiModel model;
    TextThread* texts = nullptr;  // Reads long bodies. Not owned. Null: the loop reads all.
    // The model, with the thread's tokenizer. The thread may outlive the services.
    std::shared_ptr<const ApiModel> model_of_thread;
    ApiKeys keys;
    // Only names of this machine may stand in Host: a page of another site whose name leads to
    // 127.0.0.1 (DNS rebinding) asks under its own.
    bool is_loopback = true;
    OriginList origins;  // Other sites whose pages may ask.
    size_t body_bytes_max = 0;
    // A whole answer may be of any length, so a client that takes nothing of it is not kept for
    // ever. Looked at as often as this.
    uint64_t unread_ms = 30'000;
    HttpMetrics metrics;
    std::shared_ptr<InputBudget> budget;  // Of all front ends.
    LingeringSockets lingering;
};

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/outage.h"

#include <utility>

namespace afd::daemon {

Outage::Outage(EventLoop& loop, uint64_t patience_ms, std::function<void(const Error&)> on_lasting)
    : patience_ms_(patience_ms),
      patience_(loop, [this, on_lasting = std::move(on_lasting)] { on_lasting(*error_); }) {}

void Outage::begin(const std::string& why) {
    if (!error_) patience_.start(patience_ms_);
    error_ = Error{Code::kUnavailable,
                   "afdd cannot serve now: " + why +
                       " (afdctl status shows when it can); send the request again later"};
}

void Outage::end() {
    error_.reset();
    patience_.stop();
}

Result<> Outage::check_admits() const {
    return error_ ? Result<>(*error_) : Result<>();
}

}  // namespace afd::daemon

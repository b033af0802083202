// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/certificate_watch.h"

#include <ctime>

#include "daemon/program/logging.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kDayMs = 86'400'000;

}  // namespace

CertificateWatch::CertificateWatch(EventLoop& loop, ClusterIdentity& identity)
    : identity_(identity), timer_(loop, [this] { look(); }) {
    timer_.start(0, kDayMs);
}

void CertificateWatch::look() {
    if (identity_.expiry_text(std::time(nullptr)).empty()) return;
    if (const Result<> renewed = identity_.renew(); !renewed.ok()) {
        log::warn("{}", renewed.error().message);
    }
    const std::string text = identity_.expiry_text(std::time(nullptr));
    if (!text.empty()) log::warn("{}", text);
}

}  // namespace afd::daemon

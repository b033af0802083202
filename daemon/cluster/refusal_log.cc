// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/refusal_log.h"

#include <fmt/core.h>

#include "daemon/program/logging.h"

namespace afd::daemon {

std::optional<std::string> RefusalLog::take(const std::string& peer,
                                            const std::string& reason,
                                            uint64_t now_ms) {
    const std::pair key(peer.substr(0, peer.rfind(':')), reason);
    const auto found = entries_.find(key);
    if (found != entries_.end() && now_ms - found->second.said_ms < kAgainMs) {
        ++found->second.num_unsaid;
        return std::nullopt;
    }
    if (found != entries_.end()) {
        const uint64_t num_unsaid = found->second.num_unsaid;
        found->second = {.said_ms = now_ms, .num_unsaid = 0};
        return num_unsaid == 0
                   ? ""
                   : fmt::format(" ({} times more in the last ten minutes)", num_unsaid);
    }
    std::erase_if(entries_, [&](const auto& entry) {
        return entries_.size() >= kEntriesMax && now_ms - entry.second.said_ms >= kAgainMs;
    });
    if (entries_.size() < kEntriesMax) {
        entries_[key].said_ms = now_ms;
        return "";
    }
    const auto num_unsaid = others_.take(now_ms);
    if (!num_unsaid) return std::nullopt;
    return LogLimit::more(*num_unsaid);
}

void RefusalLog::warn(const std::string& peer,
                      const std::string& why,
                      uint64_t now_ms,
                      const std::string& kind) {
    const std::string reason = reason_of(peer, why);
    const auto more = take(peer, kind.empty() ? reason : kind, now_ms);
    if (more) log::warn("{}: {}{}", peer, reason, *more);
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/session_table.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace afd::daemon {

SessionTable::SessionTable(EventLoop& loop, std::function<void()> after_burial)
    : burial_(loop, [this, after_burial = std::move(after_burial)] {
          closed_.clear();
          after_burial();
      }) {}

void SessionTable::add(std::unique_ptr<ClientSession> session) {
    open_.push_back(std::move(session));
}

void SessionTable::bury(ClientSession& session) {
    const auto found = std::find_if(
        open_.begin(), open_.end(), [&](const auto& entry) { return entry.get() == &session; });
    AFD_ASSERT(found != open_.end(), "%s is no open session", session.identity().name.c_str());
    closed_.push_back(std::move(*found));
    open_.erase(found);
    // In a later turn of the loop: the session that closes may be the one that is calling.
    burial_.start(0);
}

bool SessionTable::has_unsent() const {
    return std::any_of(open_.begin(), open_.end(), [](const auto& session) {
        return session->queued_bytes() > 0;
    });
}

}  // namespace afd::daemon

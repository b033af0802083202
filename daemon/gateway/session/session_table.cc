// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/session/session_table.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace afd::daemon {

SessionTable::SessionTable(EventLoop& loop, std::function<void()> after_burial)
    : loop_(loop), burial_(loop, [this, after_burial = std::move(after_burial)] {
          closed_.clear();
          after_burial();
      }) {}

void SessionTable::add(std::unique_ptr<ClientSession> session) {
    open_.push_back({std::move(session), loop_.now_ms()});
}

void SessionTable::bury(ClientSession& session) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& entry) {
        return entry.session.get() == &session;
    });
    AFD_ASSERT(found != open_.end(), "%s is no open session", session.identity().name.c_str());
    closed_.push_back(std::move(found->session));
    open_.erase(found);
    // In a later turn of the loop: the session that closes may be the one that is calling.
    burial_.start(0);
}

std::vector<ClientSession*> SessionTable::all() const {
    std::vector<ClientSession*> sessions;
    for (const Open& entry : open_) sessions.push_back(entry.session.get());
    return sessions;
}

void SessionTable::touch(const ClientSession& session) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& entry) {
        return entry.session.get() == &session;
    });
    AFD_ASSERT(found != open_.end(), "%s is no open session", session.identity().name.c_str());
    found->active_ms = loop_.now_ms();
    found->is_silent = false;
}

ClientSession* SessionTable::longest_idle(
    const Patience& patience, const std::function<bool(const ClientSession&)>& is_busy) const {
    const Open* longest = nullptr;
    for (const Open& entry : open_) {
        const uint64_t most_ms = entry.is_silent ? patience.silent_ms : patience.idle_ms;
        if (loop_.now_ms() - entry.active_ms < most_ms || is_busy(*entry.session)) continue;
        const auto order = [](const Open& one) { return std::pair(!one.is_silent, one.active_ms); };
        if (longest == nullptr || order(entry) < order(*longest)) longest = &entry;
    }
    return longest == nullptr ? nullptr : longest->session.get();
}

bool SessionTable::owes_answers() const {
    return std::any_of(open_.begin(), open_.end(), [](const Open& entry) {
        return entry.session->queued_bytes() > 0 || entry.session->is_reading_request();
    });
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/link_watch.h"

#include <fmt/core.h>

#include <set>

#include "proto/state_names.h"

namespace afd::daemon {

namespace {

std::string host_text(const std::string& host) {
    return host.empty() ? "on this host" : "on host '" + host + "'";
}

// Where its FFN workers are found, as far as the leader sees it.
std::string whereabouts_of(const client::Status& status,
                           const std::string& name,
                           const std::string& own_address) {
    if (name.empty()) return "listens at " + own_address;
    for (const client::Host& host : status.hosts()) {
        if (host.name() != name) continue;
        return "joined from " + host.address().substr(0, host.address().rfind(':'));
    }
    return "has left";
}

}  // namespace

std::vector<LinkWatch::News> LinkWatch::look(const client::Status& status,
                                             const std::string& own_address,
                                             uint64_t now_ms) {
    std::map<uint32_t, const client::Worker*> ranks;
    for (const client::Worker& worker : status.workers()) {
        if (worker.role() == "ffn" && worker.state() == kWorkerReady)
            ranks[worker.index()] = &worker;
    }
    std::vector<News> news;
    std::set<Ends> still_down;
    for (const client::Worker& session : status.workers()) {
        if (session.role() != "attention" || session.state() != kWorkerReady) continue;
        for (int i = 0; i < session.links_size(); ++i) {
            const auto rank = ranks.find(static_cast<uint32_t>(i));
            if (session.links(i).is_open() || rank == ranks.end()) continue;
            const Ends ends{session.index(), rank->first};
            still_down.insert(ends);
            Down& down = down_.try_emplace(ends, Down{now_ms, ""}).first->second;
            if (!down.text.empty() || now_ms - down.since_ms < kDownMs) continue;
            const std::string& host = rank->second->host();
            down.text = fmt::format("attention {} {} cannot reach ffn {} {} (which {})",
                                    ends.first,
                                    host_text(session.host()),
                                    ends.second,
                                    host_text(host),
                                    whereabouts_of(status, host, own_address));
            news.push_back({true, down.text});
        }
    }
    std::erase_if(down_, [&](const auto& entry) {
        if (still_down.contains(entry.first)) return false;
        if (!entry.second.text.empty()) {
            news.push_back({false,
                            fmt::format("attention {} and ffn {}: their link is open again, or "
                                        "one of them no longer serves",
                                        entry.first.first,
                                        entry.first.second)});
        }
        return true;
    });
    return news;
}

std::string LinkWatch::reason() const {
    std::string reason;
    for (const auto& [ends, down] : down_) {
        if (!down.text.empty()) reason += (reason.empty() ? "" : "; ") + down.text;
    }
    return reason;
}

}  // namespace afd::daemon

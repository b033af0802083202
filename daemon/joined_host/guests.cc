// SPDX-License-Identifier: Apache-2.0
#include "daemon/joined_host/guests.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/cluster/host_list.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"
#include "proto/host_name.h"

namespace afd::daemon {

namespace {

bool is_of_leader(ClusterLink& link) {
    return link.channel().is_established() && link.channel().peer_name() == kLeaderName;
}

}  // namespace

struct Guests::Guest {
    Guest(Guests& guests, std::unique_ptr<ClusterLink> opened)
        : link(std::move(opened)), deadline(guests.loop_, [&guests, this] {
              guests.on_guest(*this, deadline_exceeded("asked for no worker in time"));
          }) {
        deadline.start(kSilentMs);
    }

    std::unique_ptr<ClusterLink> link;
    Timer deadline;
    bool is_refused = false;  // It has been told why, and is to leave.
};

Guests::Guests(EventLoop& loop, const ClusterIdentity& identity, Seating seat)
    : loop_(loop), identity_(identity), seat_(std::move(seat)) {}

Guests::~Guests() = default;

void Guests::add(UniqueFd socket) {
    const std::string from = "stand-in at " + peer_name(socket.get());
    if (guests_.size() >= HostList::kGuestsMax && !make_room()) {
        refusals_.warn(
            from,
            fmt::format("refused: {} others have asked for no worker", HostList::kGuestsMax),
            loop_.now_ms());
        return;
    }
    auto channel = ClusterChannel::accept(std::move(socket), identity_);
    if (!channel.ok()) {
        refusals_.warn(from, channel.error().message, loop_.now_ms());
        return;
    }
    guests_.emplace_back(
        *this, std::make_unique<ClusterLink>(loop_, std::move(channel).value(), from, nullptr));
    Guest& guest = guests_.back();
    guest.link->set_on_read([this, &guest](const Result<>& outcome) { on_guest(guest, outcome); });
}

// False: all guests have a certificate of the cluster.
bool Guests::make_room() {
    const auto oldest = std::ranges::find_if(
        guests_, [](const Guest& guest) { return !guest.link->channel().is_established(); });
    if (oldest == guests_.end()) return false;
    refusals_.warn(
        oldest->link->peer(), "dropped for another: it has not said who it is", loop_.now_ms());
    guests_.erase(oldest);
    return true;
}

// The guest gets a seat, waits, or is gone; a stand-in that is refused hears why before that.
void Guests::on_guest(Guest& guest, const Result<>& outcome) {
    if (guest.is_refused && outcome.ok()) return;
    const Result<> served = outcome.ok() ? serve(guest) : outcome;
    if (served.ok() && guest.link != nullptr) return;
    if (!served.ok() && !guest.is_refused) {
        refusals_.warn(guest.link->peer(),
                       (outcome.ok() ? "refused: " : "") + served.error().message,
                       loop_.now_ms());
        if (outcome.ok() && is_of_leader(*guest.link)) return refuse(guest, served.error());
    }
    guests_.remove_if([&](const Guest& one) { return &one == &guest; });
}

Result<> Guests::serve(Guest& guest) {
    ClusterChannel& channel = guest.link->channel();
    if (!channel.is_established()) return {};
    if (channel.peer_name() != kLeaderName) {
        return permission_denied("its certificate is that of '{}', not of the leader",
                                 with(channel.peer_name()));
    }
    cluster::StandInMessage message;
    AFD_ASSIGN(const bool is_complete, channel.next(message));
    if (!is_complete) return {};
    if (!message.has_take()) return data_loss("it did not say which worker it asks for");
    return seat_(guest.link, *message.mutable_take());
}

// It reads the reason, tells the leader and leaves; it has kBeatMs for that.
void Guests::refuse(Guest& guest, const Error& why) {
    cluster::WorkerHostMessage message;
    message.mutable_refusal()->set_code(static_cast<uint32_t>(why.code));
    message.mutable_refusal()->set_message(why.message);
    guest.link->send(message);
    guest.is_refused = true;
    guest.deadline.start(kBeatMs);
}

}  // namespace afd::daemon

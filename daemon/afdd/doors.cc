// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/doors.h"

#include <algorithm>
#include <utility>

#include "daemon/afdd/http_setup.h"
#include "daemon/client_socket/socket_front_end.h"
#include "daemon/http/http_front_end.h"

namespace afd::daemon {

namespace {

UniqueFd taken_socket(Predecessor* predecessor, std::string_view kind, const std::string& address) {
    return predecessor == nullptr ? UniqueFd() : predecessor->take_door(kind, address);
}

// `address`, or with port 0 that of the afdd before this one on the same host, if it has one.
ListenAddress kept_address(const ListenAddress& address, const Predecessor* predecessor) {
    if (address.port != 0 || predecessor == nullptr) return address;
    for (const handover::Door& door : predecessor->offer().doors()) {
        if (door.kind() != kHttpDoor) continue;
        const auto offered = HttpFrontEnd::parse_address(door.address());
        if (offered.ok() && offered.value().host == address.host) return offered.value();
    }
    return address;
}

}  // namespace

Result<std::unique_ptr<Doors>> Doors::open(const Surroundings& surroundings) {
    const Config& config = *surroundings.config;
    std::unique_ptr<Doors> doors(new Doors);
    const auto budget = std::make_shared<InputBudget>(InputBudget::Limits{
        .bytes_max = config.input_buffer_kib * 1024, .timeout_ms = config.input_timeout_ms});
    AFD_TRY(doors->open_socket(surroundings, budget));
    if (!config.http.empty()) AFD_TRY(doors->open_http(surroundings, budget));
    return doors;
}

Result<> Doors::open_socket(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget) {
    const std::string& path = surroundings.setup->paths().client_socket;
    UniqueFd listening =
        taken_socket(surroundings.predecessor, kSocketDoor, SocketFrontEnd::address_of(path));
    AFD_ASSIGN(front_ends_.emplace_back(),
               SocketFrontEnd::open(*surroundings.loop,
                                    path,
                                    *surroundings.gateway,
                                    std::move(budget),
                                    std::move(listening)));
    return {};
}

Result<> Doors::open_http(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget) {
    const Config& config = *surroundings.config;
    AFD_ASSIGN(const ListenAddress wished, parse_listen_address(config.http));
    const ListenAddress address = kept_address(wished, surroundings.predecessor);
    AFD_ASSIGN(http_,
               make_http_services(*surroundings.loop,
                                  config,
                                  address,
                                  *surroundings.setup,
                                  *surroundings.texts,
                                  std::move(budget)));
    UniqueFd listening =
        taken_socket(surroundings.predecessor, kHttpDoor, HttpFrontEnd::address_of(address));
    AFD_ASSIGN(
        front_ends_.emplace_back(),
        HttpFrontEnd::open(
            *surroundings.loop, address, *surroundings.gateway, http_, std::move(listening)));
    return {};
}

std::string Doors::addresses() const {
    std::string joined;
    for (const auto& front_end : front_ends_) {
        joined += (joined.empty() ? "" : ", ") + front_end->address();
    }
    return joined;
}

void Doors::offer(handover::Offer& offer, std::vector<int>& fds) const {
    for (const auto& front_end : front_ends_) {
        handover::Door& door = *offer.add_doors();
        door.set_kind(std::string(front_end->kind()));
        door.set_address(front_end->address());
        fds.push_back(front_end->listening_socket());
    }
}

std::vector<std::string_view> Doors::kinds() const {
    std::vector<std::string_view> kinds;
    for (const auto& front_end : front_ends_) kinds.push_back(front_end->kind());
    return kinds;
}

void Doors::pause() {
    for (const auto& front_end : front_ends_) front_end->pause();
}

void Doors::go_on() {
    for (const auto& front_end : front_ends_) front_end->go_on();
}

void Doors::leave(const std::vector<std::string_view>& kept) {
    std::erase_if(front_ends_, [&](const auto& front_end) {
        return std::count(kept.begin(), kept.end(), front_end->kind()) == 0;
    });
    pause();
    for (const auto& front_end : front_ends_) front_end->leave();
}

void Doors::adopt(HandedConnection connection) {
    const auto door =
        std::find_if(front_ends_.begin(), front_ends_.end(), [&](const auto& front_end) {
            return front_end->kind() == connection.door;
        });
    if (door != front_ends_.end()) (*door)->adopt(std::move(connection));
}

}  // namespace afd::daemon

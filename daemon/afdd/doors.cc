// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/doors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/afdd/http_setup.h"
#include "daemon/client_socket/socket_front_end.h"
#include "daemon/http/http_front_end.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

UniqueFd taken_socket(Predecessor* predecessor, std::string_view kind, const std::string& address) {
    return predecessor == nullptr ? UniqueFd() : predecessor->take_door(kind, address);
}

// Where the afdd before this one has HTTP; none: nowhere.
std::optional<ListenAddress> http_of(const Predecessor& predecessor) {
    for (const handover::Door& door : predecessor.offer().doors()) {
        if (door.kind() != kHttpDoor) continue;
        const auto offered = HttpFrontEnd::parse_address(door.address());
        if (offered.ok()) return offered.value();
    }
    return std::nullopt;
}

// `address`, or with port 0 that of the afdd before this one on the same host, if it has one.
ListenAddress kept_address(const ListenAddress& address, const Predecessor* predecessor) {
    if (address.port != 0 || predecessor == nullptr) return address;
    const auto offered = http_of(*predecessor);
    return offered && offered->host == address.host ? *offered : address;
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

Result<> Doors::check_beside(const Predecessor& predecessor, const Config& config) {
    if (config.http.empty()) return {};
    AFD_ASSIGN(ListenAddress address, parse_listen_address(config.http));
    const auto offered = http_of(predecessor);
    if (address.port == 0 || (offered && offered->text() == address.text())) return {};
    const Result<UniqueFd> tried = listen_tcp(address, "http");
    if (tried.ok()) return {};
    if (tried.error().code != Code::kAlreadyExists || !offered || offered->port != address.port) {
        return tried.error();
    }
    return failed_precondition(
        "http = {}: the afdd that runs listens at {} until the new one serves, so an upgrade "
        "cannot change the address and keep the port; stop afdd and start it anew",
        with(address.text(), offered->text()));
}

Result<> Doors::add(Open open, UniqueFd listening) {
    const bool is_kept = listening.valid();
    AFD_ASSIGN(std::unique_ptr<FrontEnd> front_end, open(std::move(listening)));
    doors_.push_back({std::move(open), is_kept, std::move(front_end)});
    return {};
}

Result<> Doors::open_socket(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget) {
    EventLoop& loop = *surroundings.loop;
    Gateway& gateway = *surroundings.gateway;
    const std::string& path = surroundings.setup->paths().client_socket;
    const auto open = [&loop, &gateway, path, budget = std::move(budget)](UniqueFd listening) {
        return SocketFrontEnd::open(loop, path, gateway, budget, std::move(listening));
    };
    return add(
        open,
        taken_socket(surroundings.predecessor, kSocketDoor, SocketFrontEnd::address_of(path)));
}

Result<> Doors::open_http(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget) {
    EventLoop& loop = *surroundings.loop;
    Gateway& gateway = *surroundings.gateway;
    const Config& config = *surroundings.config;
    AFD_ASSIGN(const ListenAddress wished, parse_listen_address(config.http));
    ListenAddress address = kept_address(wished, surroundings.predecessor);
    AFD_ASSIGN(
        http_,
        make_http_services(
            loop, config, address, *surroundings.setup, *surroundings.texts, std::move(budget)));
    UniqueFd listening =
        taken_socket(surroundings.predecessor, kHttpDoor, HttpFrontEnd::address_of(address));
    const auto open = [&loop, &gateway, http = http_, address](
                          UniqueFd socket) mutable -> Result<std::unique_ptr<FrontEnd>> {
        AFD_ASSIGN(std::unique_ptr<FrontEnd> front_end,
                   HttpFrontEnd::open(loop, address, gateway, http, std::move(socket)));
        // With port 0, the port that was given is that of the next time, too.
        AFD_ASSIGN(address, HttpFrontEnd::parse_address(front_end->address()));
        return front_end;
    };
    return add(open, std::move(listening));
}

std::string Doors::addresses() const {
    std::string joined;
    for (const Door& door : doors_) {
        if (door.front_end == nullptr) continue;
        joined += (joined.empty() ? "" : ", ") + door.front_end->address();
    }
    return joined;
}

void Doors::offer(handover::Offer& offer, std::vector<int>& fds) const {
    for (const Door& door : doors_) {
        if (door.front_end == nullptr) continue;
        handover::Door& offered = *offer.add_doors();
        offered.set_kind(std::string(door.front_end->kind()));
        offered.set_address(door.front_end->address());
        fds.push_back(door.front_end->listening_socket());
    }
}

std::vector<std::string_view> Doors::kept_kinds() const {
    std::vector<std::string_view> kinds;
    for (const Door& door : doors_) {
        if (door.is_kept) kinds.push_back(door.front_end->kind());
    }
    return kinds;
}

void Doors::pause() {
    for (const Door& door : doors_) door.front_end->pause();
}

void Doors::go_on() {
    for (Door& door : doors_) {
        if (door.front_end != nullptr) {
            door.front_end->go_on();
        } else if (auto opened = door.open({}); opened.ok()) {
            door.front_end = std::move(opened).value();
        } else {
            log::error("clients cannot come in again: {}", opened.error().message);
        }
    }
}

void Doors::leave(const std::vector<std::string_view>& kept) {
    for (Door& door : doors_) {
        if (door.front_end == nullptr) continue;
        if (std::ranges::find(kept, door.front_end->kind()) == kept.end()) {
            door.front_end.reset();
        } else {
            door.front_end->pause();
            door.front_end->leave();
        }
    }
}

void Doors::adopt(HandedConnection connection) {
    const auto door = std::ranges::find_if(doors_, [&](const Door& one) {
        return one.front_end != nullptr && one.front_end->kind() == connection.door;
    });
    if (door != doors_.end()) door->front_end->adopt(std::move(connection));
}

}  // namespace afd::daemon

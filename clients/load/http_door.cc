// SPDX-License-Identifier: Apache-2.0
#include "clients/load/http_door.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/check.h"

namespace afd::client {
namespace {

// As many connections as the system lets this process have.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<HttpDoor>> HttpDoor::create(HttpTarget target) {
    raise_descriptor_limit();
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return explain_socket_error(target.peer, errno);
    return std::unique_ptr<HttpDoor>(new HttpDoor(epoll, std::move(target)));
}

HttpDoor::~HttpDoor() {
    slots_.clear();
    ::close(epoll_);
}

std::optional<Failure> HttpDoor::send(uint64_t request_id,
                                      const Workload& workload,
                                      const PlannedRequest& planned) {
    return start(request_id, completion_request(target_, workload, planned));
}

std::optional<Failure> HttpDoor::start(uint64_t request_id, std::string request) {
    if (idle_.empty()) {
        const Result<Slot*> opened = open_slot();
        if (!opened.ok()) return Failure{"cannot connect", opened.error()};
        // It is sent when the socket is connected.
        opened.value()->link.begin(request_id, std::move(request));
        by_request_[request_id] = opened.value();
        return std::nullopt;
    }
    Slot& slot = *idle_.back();
    idle_.pop_back();
    slot.link.begin(request_id, std::move(request));
    by_request_[request_id] = &slot;
    drive(slot, heard_);
    return std::nullopt;
}

Result<HttpDoor::Slot*> HttpDoor::open_slot() {
    AFD_ASSIGN(const int socket, begin_connect(target_.peer));
    std::unique_ptr<Slot> slot(new Slot{{socket, target_.peer}});
    Slot* const opened = slot.get();
    slots_.emplace(socket, std::move(slot));
    watch(*opened, EPOLL_CTL_ADD);
    return opened;
}

void HttpDoor::watch(const Slot& slot, int operation) {
    const int socket = slot.link.socket();
    epoll_event event{};
    event.events = slot.watches_writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.fd = socket;
    const int result = ::epoll_ctl(epoll_, operation, socket, &event);
    AFD_ASSERT(result == 0, "epoll_ctl of socket %d: %s", socket, std::strerror(errno));
}

void HttpDoor::remove(Slot& slot) {
    std::erase(idle_, &slot);
    slots_.erase(slot.link.socket());
}

void HttpDoor::give_up(uint64_t request_id) {
    std::erase_if(heard_, [&](const DoorEvent& event) { return event.request_id == request_id; });
    const auto found = by_request_.find(request_id);
    if (found == by_request_.end()) return;
    Slot& slot = *found->second;
    by_request_.erase(found);
    remove(slot);
}

Result<> HttpDoor::receive(std::vector<DoorEvent>& events) {
    events.insert(events.end(), heard_.begin(), heard_.end());
    heard_.clear();
    std::array<epoll_event, 256> ready;
    while (true) {
        const int num_ready = ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
        for (int i = 0; i < num_ready; ++i) {
            const auto found = slots_.find(ready[static_cast<size_t>(i)].data.fd);
            if (found != slots_.end()) drive(*found->second, events);
        }
        if (num_ready < static_cast<int>(ready.size())) return {};
    }
}

void HttpDoor::drive(Slot& slot, std::vector<DoorEvent>& events) {
    HttpLink& link = slot.link;
    const uint64_t request_id = link.request_id();
    const bool was_idle = link.is_idle();
    link.on_ready(events);
    std::optional<std::string> unasked = link.take_unasked();
    if (request_id != 0 && (link.request_id() == 0 || unasked)) by_request_.erase(request_id);
    if (link.is_broken()) {
        remove(slot);
    } else {
        if (!was_idle && link.is_idle()) idle_.push_back(&slot);
        if (slot.watches_writes != link.wants_to_write()) {
            slot.watches_writes = link.wants_to_write();
            watch(slot, EPOLL_CTL_MOD);
        }
    }
    if (!unasked) return;
    if (auto failure = start(request_id, *std::move(unasked))) {
        DoorEvent event;
        event.request_id = request_id;
        event.kind = DoorEvent::Kind::kFailed;
        event.failure = *std::move(failure);
        events.push_back(std::move(event));
    }
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "schedule/near/near_door.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>

#include "proto/failure.h"
#include "schedule/near/near_socket.h"

namespace afd::schedule {
namespace {

// Who comes faster than they are taken holds nobody up: the rest is there at the next look.
constexpr int kComersAtOnce = 16;

}  // namespace

Result<std::unique_ptr<NearDoor>> NearDoor::make(bool listens, size_t num_waiting) {
    const std::optional<NearAddress> address = new_near_address();
    if (!address) return unavailable("the kernel does not say which host this is");
    std::unique_ptr<NearDoor> door(new NearDoor(*address));
    door->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (door->epoll_ < 0) return resource_exhausted("no descriptor for links of this host");
    if (listens) {
        AFD_ASSIGN(door->listener_, listen_near(*address, num_waiting));
        if (!door->watch(door->listener_, nullptr)) {
            return resource_exhausted("no memory for links of this host");
        }
    }
    return door;
}

NearDoor::~NearDoor() {
    for (const int descriptor : {listener_, epoll_}) {
        if (descriptor >= 0) ::close(descriptor);
    }
}

bool NearDoor::watch(int socket, NearLink* link) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = link;
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) == 0;
}

void NearDoor::watch(NearLink& link) const {
    if (!link.has_failed() && !watch(link.socket(), &link)) link.fail();
}

std::vector<std::unique_ptr<NearLink>> NearDoor::look(uint64_t now_us) {
    if (shut_us_ && now_us - *shut_us_ >= kShutUs) {
        shut_us_.reset();
        set_open(true);
    }
    std::vector<std::unique_ptr<NearLink>> came;
    std::array<epoll_event, 16> events;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        auto* link = static_cast<NearLink*>(events[static_cast<size_t>(i)].data.ptr);
        link != nullptr ? link->on_socket() : let_in(now_us, came);
    }
    return came;
}

void NearDoor::let_in(uint64_t now_us, std::vector<std::unique_ptr<NearLink>>& came) {
    for (int look = 0; look < kComersAtOnce; ++look) {
        const int socket = accept_near(listener_);
        if (socket == kNoneCame) return;
        if (socket == kNoRoomForComer) {
            shut_us_ = now_us;
            return set_open(false);
        }
        if (socket >= 0) came.push_back(std::make_unique<NearLink>(socket));
    }
}

void NearDoor::set_open(bool is_open) {
    epoll_event event{};
    if (is_open) event.events = EPOLLIN;
    // It is there already, so the kernel needs nothing for it.
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
}

}  // namespace afd::schedule

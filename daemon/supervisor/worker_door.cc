// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/worker_door.h"

#include <algorithm>
#include <utility>

#include "proto/failure.h"

namespace afd::daemon {

WorkerDoor::WorkerDoor(EventLoop& loop)
    : visitors_(
          loop,
          [this](ControlChannel& channel, const control::Hello& hello, int pid) {
              return admit(channel, hello, pid);
          },
          [this](int pid) { return owner_of(pid) != nullptr; }) {}

Result<std::unique_ptr<WorkerDoor>> WorkerDoor::open(EventLoop& loop, const std::string& path) {
    std::unique_ptr<WorkerDoor> door(new WorkerDoor(loop));
    AFD_ASSIGN(door->listener_,
               SocketListener::listen(loop, path, [self = door.get()](UniqueFd socket, auto peer) {
                   self->visitors_.add(std::move(socket), peer);
               }));
    return door;
}

void WorkerDoor::add(SlotOwner& owner) {
    owners_.push_back(&owner);
    limit_visitors();
}

void WorkerDoor::remove(const SlotOwner& owner) {
    std::erase(owners_, &owner);
    limit_visitors();
}

void WorkerDoor::limit_visitors() {
    size_t num_workers = 0;
    for (const SlotOwner* owner : owners_) num_workers += owner->num_workers();
    visitors_.limit(num_workers);
}

Result<> WorkerDoor::admit(ControlChannel& channel, const control::Hello& hello, int pid) const {
    if (owners_.empty()) return failed_precondition("afdd has no slots for workers now");
    if (hello.version() != kControlVersion) {
        return failed_precondition(
            "the worker speaks control protocol {}, afdd {}: they are from different builds",
            with(hello.version(), kControlVersion));
    }
    SlotOwner* const owner = owner_of(pid);
    // A stranger hears from the first why it gets no slot.
    return (owner == nullptr ? owners_.front() : owner)->give_slot(channel, hello, pid);
}

SlotOwner* WorkerDoor::owner_of(int pid) const {
    const auto owner = std::find_if(
        owners_.begin(), owners_.end(), [pid](const auto* one) { return one->has_process(pid); });
    return owner == owners_.end() ? nullptr : *owner;
}

}  // namespace afd::daemon

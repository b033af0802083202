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
          [this](int pid) { return host_of(pid) != nullptr; }) {}

Result<std::unique_ptr<WorkerDoor>> WorkerDoor::open(EventLoop& loop, const std::string& path) {
    std::unique_ptr<WorkerDoor> door(new WorkerDoor(loop));
    AFD_ASSIGN(door->listener_,
               SocketListener::listen(loop, path, [self = door.get()](UniqueFd socket, auto peer) {
                   self->visitors_.add(std::move(socket), peer);
               }));
    return door;
}

void WorkerDoor::add(WorkerHost& host) {
    hosts_.push_back(&host);
    limit_visitors();
}

void WorkerDoor::remove(const WorkerHost& host) {
    std::erase(hosts_, &host);
    limit_visitors();
}

void WorkerDoor::limit_visitors() {
    size_t num_workers = 0;
    for (const WorkerHost* host : hosts_) num_workers += host->num_workers();
    visitors_.limit(num_workers);
}

Result<> WorkerDoor::admit(ControlChannel& channel, const control::Hello& hello, int pid) const {
    if (hosts_.empty()) return failed_precondition("afdd has no slots for workers now");
    if (hello.version() != kControlVersion) {
        return failed_precondition(
            "the worker speaks control protocol {}, afdd {}: they are from different builds",
            with(hello.version(), kControlVersion));
    }
    WorkerHost* const host = host_of(pid);
    // A stranger hears from the first why it gets no slot.
    return (host == nullptr ? hosts_.front() : host)->give_slot(channel, hello, pid);
}

WorkerHost* WorkerDoor::host_of(int pid) const {
    const auto host = std::find_if(
        hosts_.begin(), hosts_.end(), [pid](const auto* one) { return one->has_process(pid); });
    return host == hosts_.end() ? nullptr : *host;
}

}  // namespace afd::daemon

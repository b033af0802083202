// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearDoor: where links of this host come in, and the one descriptor at which their owner sleeps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "proto/status.h"
#include "schedule/near/near_address.h"
#include "schedule/near/near_link.h"

namespace afd::schedule {

class NearDoor {
  public:
    // `listens`: it takes links from others. Up to `num_waiting` of them wait for a look().
    // Errors: kUnavailable: the kernel does not say on which host this is, or has no such sockets.
    // kResourceExhausted: no descriptors.
    static Result<std::unique_ptr<NearDoor>> make(bool listens, size_t num_waiting);
    ~NearDoor();
    NearDoor(const NearDoor&) = delete;
    NearDoor& operator=(const NearDoor&) = delete;

    // Where it listens, if it does; in any case of this host.
    const NearAddress& address() const { return address_; }

    // Readable while a link, or the door, has something for look().
    int descriptor() const { return epoll_; }
    // The link's socket counts from here on, until it is closed; without memory for it the link
    // fails. REQUIRES: the link outlives that.
    void watch(NearLink& link) const;
    // Tells links what their sockets have. Returns those that have come in and are to be watched.
    // Who comes while there is no descriptor for it stays outside: the door is shut for kShutUs, so
    // that descriptor() is not readable without an end. `now_us` never decreases.
    std::vector<std::unique_ptr<NearLink>> look(uint64_t now_us);

    // Of what is scarce some may be free by then; who came has given up much later.
    static constexpr uint64_t kShutUs = 100'000;

  private:
    explicit NearDoor(const NearAddress& address) : address_(address) {}
    bool watch(int socket, NearLink* link) const;
    void let_in(uint64_t now_us, std::vector<std::unique_ptr<NearLink>>& came);
    void set_open(bool is_open);

    NearAddress address_;
    int listener_ = -1;
    int epoll_ = -1;
    std::optional<uint64_t> shut_us_;  // Since when, if it is.
};

}  // namespace afd::schedule

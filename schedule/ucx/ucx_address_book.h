// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxAddressBook: where the processes are that have the places of an instance, as afdd tells its
// workers: an address of UCX for each place, and the epoch of the process (R13). An epoch only
// rises. Thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "schedule/layout/segment_header.h"

namespace afd::schedule {

struct UcxPlace {
    uint64_t epoch = 0;              // 0: nobody had the place so far.
    std::vector<std::byte> address;  // Empty: the process is not there yet.
};

class UcxAddressBook {
  public:
    UcxAddressBook(uint32_t num_sessions, uint32_t num_ranks)
        : sessions_(num_sessions), ranks_(num_ranks) {}

    // A process got the place, or its address became known. One of a lower epoch is ignored, and so
    // is a place that does not exist.
    void set(Role role, uint32_t index, const UcxPlace& place) {
        const std::lock_guard lock(mutex_);
        std::vector<UcxPlace>& places = places_of(role);
        if (index < places.size() && place.epoch >= places[index].epoch) places[index] = place;
    }
    // REQUIRES: the place exists.
    uint64_t epoch(Role role, uint32_t index) const {
        const std::lock_guard lock(mutex_);
        return places_of(role)[index].epoch;
    }
    UcxPlace get(Role role, uint32_t index) const {
        const std::lock_guard lock(mutex_);
        return places_of(role)[index];
    }

  private:
    std::vector<UcxPlace>& places_of(Role role) { return role == Role::kFfn ? ranks_ : sessions_; }
    const std::vector<UcxPlace>& places_of(Role role) const {
        return role == Role::kFfn ? ranks_ : sessions_;
    }

    mutable std::mutex mutex_;
    std::vector<UcxPlace> sessions_;
    std::vector<UcxPlace> ranks_;
};

}  // namespace afd::schedule

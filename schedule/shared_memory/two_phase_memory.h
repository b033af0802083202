// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseMemory: how a worker reaches the segments of its two-phase rounds, which afdd made.
//
// A session maps the receive segment of each of its ranks read-write and the return segment
// read-only; a rank the other way round. Mapping and unmapping are system calls: a two-phase round
// is not the steady state (promise 5 speaks of windows).

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "proto/status.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/shared_memory/segment.h"

namespace afd::schedule {

// Which round's segment.
struct TwoPhaseKey {
    TwoPhaseSegment segment = TwoPhaseSegment::kReceive;
    uint32_t rank = 0;
    uint32_t session = 0;
    int32_t round = 0;

    auto operator<=>(const TwoPhaseKey&) const = default;
};

class TwoPhaseMemory {
  public:
    virtual ~TwoPhaseMemory() = default;

    // Maps a segment of exactly `bytes`. The address is good until unmap().
    // Errors: those of Segment::attach and Segment::prefault.
    virtual Result<std::byte*> map(const TwoPhaseKey& key,
                                   uint64_t bytes,
                                   Segment::Access access) = 0;
    // Of a segment that is not mapped: nothing.
    virtual void unmap(const TwoPhaseKey& key) = 0;
};

// Over segments of /dev/shm.
class ShmTwoPhaseMemory final : public TwoPhaseMemory {
  public:
    explicit ShmTwoPhaseMemory(std::string prefix) : prefix_(std::move(prefix)) {}

    // A read-only address must not be stored to: the kernel refuses.
    Result<std::byte*> map(const TwoPhaseKey& key, uint64_t bytes, Segment::Access access) override;
    void unmap(const TwoPhaseKey& key) override { mapped_.erase(key); }

  private:
    std::string prefix_;
    std::map<TwoPhaseKey, Segment> mapped_;
};

}  // namespace afd::schedule

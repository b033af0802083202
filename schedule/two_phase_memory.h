// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseMemory: how a worker reaches the two-phase control area and the segments of its rounds.
//
// A session maps the receive segment of each of its ranks read-write and the return segment
// read-only; a rank the other way round. Mapping and unmapping are system calls: a two-phase round
// is not the steady state (promise 5 speaks of windows).

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "proto/status.h"
#include "schedule/segment.h"
#include "schedule/shm_transport.h"
#include "schedule/two_phase_control.h"
#include "schedule/two_phase_receiver.h"
#include "schedule/two_phase_sender.h"

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

// The control areas that one worker uses, mapped: its own read-write, its peers' read-only.
struct TwoPhaseAreas {
    Segment own;
    std::vector<Segment> peers;
    TwoPhaseControlLayout layout;

    // Errors: those of Segment::attach and Segment::prefault.
    static Result<TwoPhaseAreas> attach(const AttachConfig& config, Role role, uint32_t index);

    std::vector<const std::byte*> peer_areas() const;
};

}  // namespace afd::schedule

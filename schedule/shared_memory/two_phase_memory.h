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
#include <utility>

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

    // Whether map() would find the segments of this one's round.
    virtual bool has_round_of(const TwoPhaseKey&) const { return true; }

    // Maps a segment of exactly `bytes`. The address is good until unmap(); a read-only one must
    // not be stored to: the kernel refuses. Of 0 bytes: null.
    // Errors: those of Segment::attach and Segment::prefault.
    virtual Result<std::byte*> map(const TwoPhaseKey& key,
                                   uint64_t bytes,
                                   Segment::Access access) = 0;
    // Of a segment that is not mapped: nothing.
    virtual void unmap(const TwoPhaseKey& key) = 0;
};

// What afdd hands over of a round, mapped; a part of 0 bytes is empty.
struct TwoPhaseRoundSegments {
    Segment receive;
    Segment results;
};

// Of segments that afdd hands over with the control channel. What workers have.
class HandedTwoPhaseMemory final : public TwoPhaseMemory {
  public:
    // Those of another round of the two go. REQUIRES: `segments` are mapped for this side.
    void hand_over(uint32_t rank,
                   uint32_t session,
                   int32_t round,
                   TwoPhaseRoundSegments&& segments);

    bool has_round_of(const TwoPhaseKey& key) const override;
    // Errors: kNotFound: it was not handed over. kFailedPrecondition: it is of another size (names
    // both). Those of Segment::prefault.
    Result<std::byte*> map(const TwoPhaseKey& key, uint64_t bytes, Segment::Access access) override;
    void unmap(const TwoPhaseKey& key) override;

  private:
    using Pair = std::pair<uint32_t, uint32_t>;  // Rank, session.
    struct Round {
        int32_t number = 0;
        TwoPhaseRoundSegments segments;
    };
    std::map<Pair, Round> rounds_;
};

// By name. For whoever brings sessions and ranks together without an afdd that hands over.
class NamedTwoPhaseMemory final : public TwoPhaseMemory {
  public:
    explicit NamedTwoPhaseMemory(std::string prefix) : prefix_(std::move(prefix)) {}

    Result<std::byte*> map(const TwoPhaseKey& key, uint64_t bytes, Segment::Access access) override;
    void unmap(const TwoPhaseKey& key) override { mapped_.erase(key); }

  private:
    std::string prefix_;
    std::map<TwoPhaseKey, Segment> mapped_;
};

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shared-memory implementation of TwoPhaseTransport: words and tables lie in the control areas,
// which the peers map, and what is sent is written into the peer's segment, so that a publish() is
// one store and a put() nothing.
//
// attach() goes by an AttachConfig; the constructor takes addresses, as those of shm_peers.h.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schedule/shared_memory/attach_config.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/shared_memory/two_phase_memory.h"
#include "schedule/transport/two_phase_transport.h"
#include "schedule/wait/doorbell.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

template <typename Own, typename Peer>
class ShmTwoPhase final : public TwoPhaseTransport<Own, Peer> {
  public:
    using Base = TwoPhaseTransport<Own, Peer>;
    using Base::publish;

    // Maps its own area and those of all peers. REQUIRES: a doorbell for each.
    // Errors: those of Segment::attach and Segment::prefault.
    static Result<std::unique_ptr<ShmTwoPhase>> attach(const AttachConfig& config,
                                                       uint32_t index,
                                                       std::vector<DoorbellRinger> ringers);

    // Over memory that the caller keeps mapped. REQUIRES: one area and one doorbell for each peer;
    // `memory` outlives this.
    ShmTwoPhase(const TwoPhaseControlLayout& layout,
                uint32_t index,
                std::byte* own_area,
                const std::vector<const std::byte*>& peer_areas,
                std::vector<DoorbellRinger> ringers,
                TwoPhaseMemory& memory);

    void publish(uint32_t peer, typename Base::Word word, int32_t value, size_t) override {
        publish_seq_cst(this->own(peer).*word, value);
        ringers_[peer].ring_if_armed();
    }
    bool may_open(uint32_t peer, int32_t round) const override {
        return memory_->has_round_of(key_of(TwoPhaseSegment::kReceive, peer, round));
    }
    Result<TwoPhaseRoundMemory> open(uint32_t peer,
                                     int32_t round,
                                     const TwoPhaseSizes& sizes) override;
    void put(uint32_t, uint64_t, uint64_t) override {}
    void close(uint32_t peer, int32_t round) override;

  private:
    TwoPhaseKey key_of(TwoPhaseSegment segment, uint32_t peer, int32_t round) const;

    std::vector<DoorbellRinger> ringers_;
    TwoPhaseMemory* memory_;
    // Of attach() only; the second where the configuration has none.
    std::vector<Segment> segments_;
    std::unique_ptr<TwoPhaseMemory> owned_memory_;
};

using ShmTwoPhaseDispatch = ShmTwoPhase<TwoPhaseSessionWords, TwoPhaseRankWords>;
using ShmTwoPhaseReturn = ShmTwoPhase<TwoPhaseRankWords, TwoPhaseSessionWords>;

extern template class ShmTwoPhase<TwoPhaseSessionWords, TwoPhaseRankWords>;
extern template class ShmTwoPhase<TwoPhaseRankWords, TwoPhaseSessionWords>;

}  // namespace afd::schedule

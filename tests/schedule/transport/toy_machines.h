// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyMachines: the machines of a ToyNetwork, one for each worker, and the wire between them. A
// machine's memory outlives the lives of its worker, as segments of afdd do; it is formatted as
// afdd does it. Here are the words of the machines; who writes which of them, and in what order, is
// with the ends of the transport (toy_transport.h, toy_two_phase.h).
//
// Memory of a machine is written by its own worker and, for everything that arrives, by the pump.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "schedule/transport/transport.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/transport/toy_wire.h"

namespace afd::schedule {

// The two-phase half of a machine: its words towards each peer, the mirrors of theirs, and the
// memory of open rounds.
template <typename Own, typename Peer>
struct ToyTwoPhaseMachine {
    struct Round {
        Bytes sent;
        Bytes received;
        uint64_t received_bytes = 0;
    };
    std::vector<Bytes> own;
    std::vector<Bytes> mirrors;
    std::map<std::pair<uint32_t, int32_t>, Round> rounds;  // By peer and round.
};

struct ToySession {
    Bytes window;
    Bytes control;
    std::vector<std::vector<int32_t>> published;     // [F][M]: descriptor flags as put.
    std::vector<std::vector<int32_t>> acknowledged;  // [F][M]: mirrors.
    std::vector<HeartbeatWords> ranks;               // [F]: mirrors.
    ToyTwoPhaseMachine<TwoPhaseSessionWords, TwoPhaseRankWords> two_phase;
};

struct ToyRank {
    Bytes window;
    Bytes control;
    std::vector<HeartbeatWords> sessions;  // [A]: mirrors.
    ToyTwoPhaseMachine<TwoPhaseRankWords, TwoPhaseSessionWords> two_phase;
};

class ToyMachines {
  public:
    ToyMachines(const Geometry& geometry, uint64_t seed);

    const WindowLayout& layout() const { return layout_; }
    const TwoPhaseControlLayout& two_phase_layout() const { return two_phase_layout_; }
    uint32_t num_sessions() const { return static_cast<uint32_t>(sessions_.size()); }
    uint32_t num_ranks() const { return static_cast<uint32_t>(ranks_.size()); }
    ToySession& session(uint32_t index) { return sessions_[index]; }
    ToyRank& rank(uint32_t index) { return ranks_[index]; }
    const EventFds& session_doorbells() const { return session_doorbells_; }
    const EventFds& rank_doorbells() const { return rank_doorbells_; }
    ToyWire& wire() { return wire_; }

    int32_t* descriptor(uint32_t rank, uint32_t session, uint32_t m) {
        return word(ranks_[rank].window, layout_.descriptor_offset(session, m));
    }
    int32_t* acknowledged(uint32_t rank, uint32_t session, uint32_t m) {
        return &sessions_[session].acknowledged[rank][m];
    }
    int32_t* result_flag(uint32_t session, uint32_t m, uint32_t token_idx, uint32_t k) {
        return word(sessions_[session].window, layout_.result_flag_offset(m, token_idx, k));
    }

    // What a worker sleeps on.
    Doorbell doorbell(Role role, uint32_t index) const;
    // Rings the worker if its word, on its own machine, is armed.
    void ring_if_armed(Role role, uint32_t index) const;

  private:
    static int32_t* word(const Bytes& bytes, uint64_t offset) {
        return static_cast<int32_t*>(static_cast<void*>(bytes.get() + offset));
    }
    void format_session(uint32_t index);
    void format_rank(uint32_t index);
    void mirror_heartbeats();

    WindowLayout layout_;
    TwoPhaseControlLayout two_phase_layout_;
    EventFds session_doorbells_;
    EventFds rank_doorbells_;
    std::vector<ToySession> sessions_;
    std::vector<ToyRank> ranks_;
    ToyWire wire_;  // Ends first.
};

}  // namespace afd::schedule

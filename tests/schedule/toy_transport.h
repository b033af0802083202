// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyNetwork: an instance whose workers share no memory: each has a machine of its own, and what
// one puts into another's memory travels as a message. The example of how to add a transport
// (schedule/transport.h), and the proof that the contract is enough: messages arrive late and in
// any order that the contract allows, and a dead worker's last ones are lost.
//
// A worker's puts are queued by lane. The pump, which stands for all network cards, takes from a
// random lane any message that no barrier (a publish, an acknowledgement) separates from the head,
// and stores it into the receiver's memory. A machine's memory outlives the lives of its worker,
// as segments of afdd do. Formatted as afdd does it.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "schedule/transport.h"
#include "tests/schedule/local_instance.h"

namespace afd::schedule {

// The messages on their way. Thread-safe.
class ToyWire {
  public:
    // Of one worker to another, about one micro-batch or, with -1, two-phase rounds.
    struct Lane {
        Role from_role;
        uint32_t from;
        uint32_t to;
        int64_t micro_batch;

        auto operator<=>(const Lane&) const = default;
    };
    using Store = std::function<void()>;

    // `tick` runs on the pump again and again, between messages.
    ToyWire(uint64_t seed, Store tick);
    ~ToyWire();
    ToyWire(const ToyWire&) = delete;
    ToyWire& operator=(const ToyWire&) = delete;

    // A barrier arrives after everything that was sent before it, and before everything after.
    void send(const Lane& lane, Store store, bool is_barrier);

    // What a new life of a worker begins with: of its predecessor's messages some arrive now, the
    // others never; then `connect` runs before anything else arrives anywhere.
    void cut(Role from_role, uint32_t from, const Store& connect);

    // Runs while nothing arrives.
    void while_still(const Store& store);

  private:
    struct Message {
        Store store;
        bool is_barrier;
    };
    using Queue = std::deque<Message>;

    void run();
    bool deliver_one();
    void deliver_from(Queue& queue);

    std::mutex mutex_;
    std::map<Lane, Queue> lanes_;
    std::mt19937_64 random_;
    Store tick_;
    bool is_over_ = false;
    std::thread pump_;
};

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

class ToyNetwork {
  public:
    explicit ToyNetwork(const Geometry& geometry, uint64_t seed = 1);

    // The beginning of a worker's life.
    std::unique_ptr<DispatchTransport> dispatch(uint32_t session);
    std::unique_ptr<ReturnTransport> returns(uint32_t rank);

    const WindowLayout& layout() const { return layout_; }
    int rank_doorbell(uint32_t rank) const { return rank_doorbells_[rank]; }
    // What a worker sleeps on.
    Doorbell doorbell(Role role, uint32_t index) const;

    // Words of the machines, for tests that prepare them before any worker lives.
    int32_t* descriptor(uint32_t rank, uint32_t session, uint32_t m) {
        return word(ranks_[rank].window, layout_.descriptor_offset(session, m));
    }
    int32_t* acknowledged(uint32_t rank, uint32_t session, uint32_t m) {
        return &sessions_[session].acknowledged[rank][m];
    }
    int32_t* result_flag(uint32_t session, uint32_t m, uint32_t token_idx, uint32_t k) {
        return word(sessions_[session].window, layout_.result_flag_offset(m, token_idx, k));
    }

  private:
    friend class ToyDispatch;
    friend class ToyReturn;
    template <typename Own, typename Peer>
    friend class ToyTwoPhase;

    static int32_t* word(const Bytes& bytes, uint64_t offset) {
        return static_cast<int32_t*>(static_cast<void*>(bytes.get() + offset));
    }
    void mirror_heartbeats();
    // Rings the worker if its word, on its own machine, is armed.
    void ring_if_armed(Role role, uint32_t index) const;

    WindowLayout layout_;
    TwoPhaseControlLayout two_phase_layout_;
    EventFds session_doorbells_;
    EventFds rank_doorbells_;
    std::vector<ToySession> sessions_;
    std::vector<ToyRank> ranks_;
    ToyWire wire_;  // Ends first.
};

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/transport/toy_two_phase.h"

#include <array>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace afd::schedule {

namespace {

constexpr int64_t kTwoPhaseLane = -1;

template <typename Words>
constexpr bool kIsSession = std::is_same_v<Words, TwoPhaseSessionWords>;

template <typename Words>
Words* words_of(const Bytes& stripe) {
    return static_cast<Words*>(static_cast<void*>(stripe.get()));
}

template <typename Words>
std::vector<Words*> words_of(const std::vector<Bytes>& stripes) {
    std::vector<Words*> words;
    for (const Bytes& stripe : stripes) words.push_back(words_of<Words>(stripe));
    return words;
}

template <typename Own, typename Peer>
class ToyTwoPhase final : public TwoPhaseTransport<Own, Peer> {
  public:
    using Base = TwoPhaseTransport<Own, Peer>;
    using Base::publish;
    using Machine = ToyTwoPhaseMachine<Own, Peer>;

    ToyTwoPhase(ToyMachines& machines, uint32_t index)
        : Base(machines.two_phase_layout(),
               index,
               words_of<Own>(machine_of<Own>(machines, index).own),
               const_words(machine_of<Own>(machines, index).mirrors)),
          machines_(machines) {
        // What the last lines of the predecessor said is what stands at the peers.
        machines_.wire().while_still([this] {
            const size_t num_peers = machine_of<Own>(machines_, this->index()).own.size();
            for (uint32_t peer = 0; peer < num_peers; ++peer) {
                std::memcpy(&this->own(peer),
                            mirror_at(machines_, this->index(), peer),
                            Own::kNumSeen * sizeof(int32_t));
            }
        });
    }

    void publish(uint32_t peer,
                 typename Base::Word word,
                 int32_t value,
                 size_t table_bytes) override {
        Own& own = this->own(peer);
        publish_seq_cst(own.*word, value);
        Own line;
        std::memcpy(&line, &own, sizeof(line));
        ToyPayload table({this->own_table(peer), table_bytes});
        const uint32_t from = this->index();
        send(peer, true, [&machines = machines_, from, peer, word, line, table = std::move(table)] {
            store_line(*mirror_at(machines, from, peer), line, word, table);
            machines.ring_if_armed(kPeerRole, peer);
        });
    }

    Result<TwoPhaseRoundMemory> open(uint32_t peer,
                                     int32_t round,
                                     const TwoPhaseSizes& sizes) override {
        const uint64_t sent = kIsSession<Own> ? sizes.receive_bytes : sizes.return_bytes;
        const uint64_t received = kIsSession<Own> ? sizes.return_bytes : sizes.receive_bytes;
        TwoPhaseRoundMemory memory;
        machines_.wire().while_still([&] {
            auto& rounds = machine_of<Own>(machines_, this->index()).rounds;
            std::erase_if(rounds, [&](const auto& entry) {
                return entry.first.first == peer && entry.first.second != round;
            });
            auto& entry = rounds[{peer, round}];
            entry.sent = zeroed_bytes(sent);
            if (!entry.received) entry.received = zeroed_bytes(received);
            entry.received_bytes = received;
            memory = {sent == 0 ? nullptr : entry.sent.get(),
                      received == 0 ? nullptr : entry.received.get()};
            sent_[peer] = {round, memory.sent};
        });
        return memory;
    }

    void put(uint32_t peer, uint64_t offset, uint64_t bytes) override {
        const auto& [round, sent] = sent_.at(peer);
        ToyPayload payload({sent + offset, bytes});
        const std::pair key(this->index(), round);
        send(peer, false, [&machines = machines_, peer, key, offset, payload = std::move(payload)] {
            auto& rounds = machine_of<Peer>(machines, peer).rounds;
            const auto found = rounds.find(key);
            if (found == rounds.end() ||
                found->second.received_bytes < offset + payload.size_bytes()) {
                return;
            }
            payload.store(found->second.received.get() + offset);
        });
    }

    void close(uint32_t peer, int32_t round) override {
        machines_.wire().while_still([&] {
            machine_of<Own>(machines_, this->index()).rounds.erase({peer, round});
        });
    }

  private:
    static constexpr Role kOwnRole = kIsSession<Own> ? Role::kAttention : Role::kFfn;
    static constexpr Role kPeerRole = kIsSession<Own> ? Role::kFfn : Role::kAttention;

    template <typename Words>
    static auto& machine_of(ToyMachines& machines, uint32_t index) {
        if constexpr (kIsSession<Words>) {
            return machines.session(index).two_phase;
        } else {
            return machines.rank(index).two_phase;
        }
    }
    static std::vector<const Peer*> const_words(const std::vector<Bytes>& stripes) {
        const std::vector<Peer*> words = words_of<Peer>(stripes);
        return {words.begin(), words.end()};
    }

    // Where the peer sees this side's words: its memory, for the pump only.
    static Own* mirror_at(ToyMachines& machines, uint32_t from, uint32_t peer) {
        return words_of<Own>(machine_of<Peer>(machines, peer).mirrors[from]);
    }
    // A word that is as it was is left alone: the peer may be copying it without an atomic access.
    static void store_line(Own& mirror,
                           const Own& line,
                           typename Base::Word word,
                           const ToyPayload& table) {
        table.store(&mirror + 1);
        std::array<int32_t, Own::kNumSeen> values;
        std::memcpy(values.data(), &line, sizeof(values));
        auto* words = static_cast<int32_t*>(static_cast<void*>(&mirror));
        for (size_t i = 0; i < values.size(); ++i) {
            if (&words[i] == &(mirror.*word) || observe_own(words[i]) == values[i]) continue;
            publish_release(words[i], values[i]);
        }
        publish_seq_cst(mirror.*word, line.*word);
    }
    void send(uint32_t peer, bool is_barrier, ToyWire::Store store) {
        machines_.wire().send(
            {kOwnRole, this->index(), peer, kTwoPhaseLane}, std::move(store), is_barrier);
    }

    ToyMachines& machines_;
    std::map<uint32_t, std::pair<int32_t, const std::byte*>> sent_;  // Of each peer's open round.
};

}  // namespace

std::unique_ptr<TwoPhaseDispatchTransport> make_toy_two_phase_dispatch(ToyMachines& machines,
                                                                       uint32_t session) {
    using Made = ToyTwoPhase<TwoPhaseSessionWords, TwoPhaseRankWords>;
    return std::make_unique<Made>(machines, session);
}

std::unique_ptr<TwoPhaseReturnTransport> make_toy_two_phase_return(ToyMachines& machines,
                                                                   uint32_t rank) {
    using Made = ToyTwoPhase<TwoPhaseRankWords, TwoPhaseSessionWords>;
    return std::make_unique<Made>(machines, rank);
}

}  // namespace afd::schedule

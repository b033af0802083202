// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/toy_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "schedule/round.h"

namespace afd::schedule {
namespace {

constexpr int64_t kTwoPhaseLane = -1;
// One delivery in so many is followed by a nap, so that messages pile up and mix.
constexpr uint64_t kNapOneIn = 32;

using Payload = std::vector<std::byte>;

Payload copy_of(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
}

// An empty payload has no address, and memcpy() takes no null pointer.
void store(const Payload& payload, void* to) {
    if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
}

EndpointMemory end_of(const Bytes& control,
                      int doorbell,
                      const std::vector<HeartbeatWords>& mirrors) {
    EndpointMemory memory{control.get(), doorbell, {}};
    for (const HeartbeatWords& words : mirrors) memory.peer_heartbeats.push_back(&words);
    return memory;
}

// A mirror has one writer, the pump, which keeps to the rule of heartbeat.h: the sequence is odd
// while the description is written.
void mirror_heartbeat(const Bytes& control, HeartbeatWords& mirror) {
    const HeartbeatView view = read_heartbeat(ConstControlView(control.get()).heartbeat_words());
    const int32_t sequence = observe_own(mirror.sequence);
    publish_release(mirror.sequence, sequence + 1);
    publish_release(mirror.pid, view.pid);
    publish_release(mirror.state, static_cast<int32_t>(view.state));
    const std::array<int32_t, 6> wait = {static_cast<int32_t>(view.wait.kind),
                                         view.wait.peer,
                                         view.wait.micro_batch,
                                         view.wait.layer_id,
                                         view.wait.flag_seen,
                                         view.wait.flag_expected};
    for (size_t i = 0; i < wait.size(); ++i) publish_release(mirror.wait[i], wait[i]);
    publish_release(mirror.sequence, sequence + 2);
    // Release; partner: the acquire loads of read_heartbeat().
    std::atomic_ref(mirror.progress).store(view.progress, std::memory_order_release);
}

template <typename Words>
constexpr bool kIsSession = std::is_same_v<Words, TwoPhaseSessionWords>;

// The words that peers see: all but the rank's execution, and the reserve.
template <typename Words>
constexpr size_t kNumWords = kIsSession<Words> ? 7 : 3;

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

}  // namespace

// ---- The wire

ToyWire::ToyWire(uint64_t seed, Store tick)
    : random_(seed), tick_(std::move(tick)), pump_([this] { run(); }) {}

ToyWire::~ToyWire() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    pump_.join();
}

void ToyWire::send(const Lane& lane, Store store, bool is_barrier) {
    const std::lock_guard lock(mutex_);
    lanes_[lane].push_back({std::move(store), is_barrier});
}

void ToyWire::run() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
        if (deliver_one() && random_() % kNapOneIn != 0) continue;
        tick_();
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        lock.lock();
    }
}

bool ToyWire::deliver_one() {
    std::vector<Queue*> busy;
    for (auto& [lane, queue] : lanes_) {
        if (!queue.empty()) busy.push_back(&queue);
    }
    if (busy.empty()) return false;
    deliver_from(*busy[random_() % busy.size()]);
    return true;
}

// Any message in front of the first barrier; or that, if it is the first.
void ToyWire::deliver_from(Queue& queue) {
    const auto barrier = std::find_if(
        queue.begin(), queue.end(), [](const Message& message) { return message.is_barrier; });
    const auto num_free = static_cast<uint64_t>(barrier - queue.begin());
    const auto chosen =
        queue.begin() + static_cast<std::ptrdiff_t>(num_free == 0 ? 0 : random_() % num_free);
    chosen->store();
    queue.erase(chosen);
}

void ToyWire::cut(Role from_role, uint32_t from, const Store& connect) {
    const std::lock_guard lock(mutex_);
    for (auto& [lane, queue] : lanes_) {
        if (lane.from_role != from_role || lane.from != from) continue;
        for (uint64_t left = random_() % (queue.size() + 1); left > 0; --left) deliver_from(queue);
        queue.clear();
    }
    connect();
}

void ToyWire::while_still(const Store& store) {
    const std::lock_guard lock(mutex_);
    store();
}

// ---- Two-phase rounds

template <typename Own, typename Peer>
class ToyTwoPhase final : public TwoPhaseTransport<Own, Peer> {
  public:
    using Base = TwoPhaseTransport<Own, Peer>;
    using Base::publish;
    using Machine = ToyTwoPhaseMachine<Own, Peer>;

    ToyTwoPhase(ToyNetwork& network, uint32_t index)
        : Base(network.two_phase_layout_,
               index,
               words_of<Own>(machine_of<Own>(network, index).own),
               const_words(machine_of<Own>(network, index).mirrors)),
          network_(network) {
        // What the last lines of the predecessor said is what stands at the peers.
        network_.wire_.while_still([this] {
            const size_t num_peers = machine_of<Own>(network_, this->index()).own.size();
            for (uint32_t peer = 0; peer < num_peers; ++peer) {
                std::memcpy(&this->own(peer),
                            mirror_at(network_, this->index(), peer),
                            kNumWords<Own> * sizeof(int32_t));
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
        Payload table = copy_of({this->own_table(peer), table_bytes});
        const uint32_t from = this->index();
        send(peer, true, [&network = network_, from, peer, word, line, table = std::move(table)] {
            store_line(*mirror_at(network, from, peer), line, word, table);
            network.ring_if_armed(kPeerRole, peer);
        });
    }

    Result<TwoPhaseRoundMemory> open(uint32_t peer,
                                     int32_t round,
                                     const TwoPhaseSizes& sizes) override {
        const uint64_t sent = kIsSession<Own> ? sizes.receive_bytes : sizes.return_bytes;
        const uint64_t received = kIsSession<Own> ? sizes.return_bytes : sizes.receive_bytes;
        TwoPhaseRoundMemory memory;
        network_.wire_.while_still([&] {
            auto& rounds = machine_of<Own>(network_, this->index()).rounds;
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
        Payload payload = copy_of({sent + offset, bytes});
        const std::pair key(this->index(), round);
        send(peer, false, [&network = network_, peer, key, offset, payload = std::move(payload)] {
            auto& rounds = machine_of<Peer>(network, peer).rounds;
            const auto found = rounds.find(key);
            if (found == rounds.end() || found->second.received_bytes < offset + payload.size()) {
                return;
            }
            store(payload, found->second.received.get() + offset);
        });
    }

    void close(uint32_t peer, int32_t round) override {
        network_.wire_.while_still([&] {
            machine_of<Own>(network_, this->index()).rounds.erase({peer, round});
        });
    }

  private:
    static constexpr Role kOwnRole = kIsSession<Own> ? Role::kAttention : Role::kFfn;
    static constexpr Role kPeerRole = kIsSession<Own> ? Role::kFfn : Role::kAttention;

    template <typename Words>
    static auto& machine_of(ToyNetwork& network, uint32_t index) {
        if constexpr (kIsSession<Words>) {
            return network.sessions_[index].two_phase;
        } else {
            return network.ranks_[index].two_phase;
        }
    }
    static std::vector<const Peer*> const_words(const std::vector<Bytes>& stripes) {
        const std::vector<Peer*> words = words_of<Peer>(stripes);
        return {words.begin(), words.end()};
    }

    // Where the peer sees this side's words: its memory, for the pump only.
    static Own* mirror_at(ToyNetwork& network, uint32_t from, uint32_t peer) {
        return words_of<Own>(machine_of<Peer>(network, peer).mirrors[from]);
    }
    // A word that is as it was is left alone: the peer may be copying it without an atomic access.
    static void store_line(Own& mirror,
                           const Own& line,
                           typename Base::Word word,
                           const Payload& table) {
        store(table, &mirror + 1);
        std::array<int32_t, kNumWords<Own>> values;
        std::memcpy(values.data(), &line, sizeof(values));
        auto* words = static_cast<int32_t*>(static_cast<void*>(&mirror));
        for (size_t i = 0; i < values.size(); ++i) {
            if (&words[i] == &(mirror.*word) || observe_own(words[i]) == values[i]) continue;
            publish_release(words[i], values[i]);
        }
        publish_seq_cst(mirror.*word, line.*word);
    }
    void send(uint32_t peer, bool is_barrier, ToyWire::Store store) {
        network_.wire_.send(
            {kOwnRole, this->index(), peer, kTwoPhaseLane}, std::move(store), is_barrier);
    }

    ToyNetwork& network_;
    std::map<uint32_t, std::pair<int32_t, const std::byte*>> sent_;  // Of each peer's open round.
};

// ---- Windows

class ToyDispatch final : public DispatchTransport {
  public:
    ToyDispatch(ToyNetwork& network, uint32_t session)
        : DispatchTransport(network.layout_,
                            session,
                            network.sessions_[session].window.get(),
                            end_of(network.sessions_[session].control,
                                   network.session_doorbells_[session],
                                   network.sessions_[session].ranks),
                            mirrors_of(network.sessions_[session])),
          network_(network) {}

    void put_row(uint32_t rank,
                 uint32_t micro_batch,
                 uint32_t token_idx,
                 uint32_t k,
                 std::span<const std::byte> row) override {
        assert_row(rank, micro_batch, token_idx, k, row.size());
        std::byte* to = network_.ranks_[rank].window.get() +
                        layout().token_row_offset(session(), micro_batch, token_idx, k);
        send(rank, micro_batch, false, [to, row = copy_of(row)] { store(row, to); });
    }
    void publish(uint32_t rank,
                 uint32_t micro_batch,
                 int32_t layer_id,
                 std::span<const int32_t> ids,
                 int32_t round) override {
        assert_descriptor(rank, micro_batch);
        publish_release(network_.sessions_[session()].published[rank][micro_batch], round);
        int32_t* to = network_.descriptor(rank, session(), micro_batch);
        send(rank,
             micro_batch,
             true,
             [&network = network_, rank, to, layer_id, round, ids = copy_of(std::as_bytes(ids))] {
                 store(ids, to + kDescriptorIdsWord);
                 to[1] = layer_id;
                 publish_seq_cst(*to, round);
                 network.ring_if_armed(Role::kFfn, rank);
             });
    }
    Result<std::unique_ptr<TwoPhaseDispatchTransport>> two_phase() override {
        using Made = ToyTwoPhase<TwoPhaseSessionWords, TwoPhaseRankWords>;
        return std::unique_ptr<TwoPhaseDispatchTransport>(
            std::make_unique<Made>(network_, session()));
    }
    void ring_peers() override {
        for (const int fd : network_.rank_doorbells_.all()) ring(fd);
    }

  private:
    static std::vector<RankMirror> mirrors_of(const ToySession& machine) {
        std::vector<RankMirror> mirrors;
        for (size_t rank = 0; rank < machine.published.size(); ++rank) {
            mirrors.push_back(
                {{machine.published[rank].data(), 1}, machine.acknowledged[rank].data()});
        }
        return mirrors;
    }
    void send(uint32_t rank, uint32_t micro_batch, bool is_barrier, ToyWire::Store store) {
        network_.wire_.send(
            {Role::kAttention, session(), rank, micro_batch}, std::move(store), is_barrier);
    }

    ToyNetwork& network_;
};

class ToyReturn final : public ReturnTransport {
  public:
    ToyReturn(ToyNetwork& network, uint32_t rank)
        : ReturnTransport(network.layout_,
                          rank,
                          network.ranks_[rank].window.get(),
                          end_of(network.ranks_[rank].control,
                                 network.rank_doorbells_[rank],
                                 network.ranks_[rank].sessions)),
          network_(network) {}

    void put_result(uint32_t session,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    std::span<const std::byte> row,
                    int32_t round) override {
        assert_result(session, micro_batch, token_idx, k, row.size(), round);
        std::byte* to = network_.sessions_[session].window.get() +
                        layout().result_row_offset(micro_batch, token_idx, k);
        int32_t* flag = network_.result_flag(session, micro_batch, token_idx, k);
        send(session, micro_batch, false, [to, flag, round, row = copy_of(row)] {
            // R3, looked at where the flag is.
            if (carries_round(observe_own(*flag), round)) return;
            store(row, to);
            publish_release(*flag, round);
        });
    }
    void put_refusal(uint32_t session,
                     uint32_t micro_batch,
                     uint32_t token_idx,
                     uint32_t k,
                     int32_t round) override {
        assert_result(session, micro_batch, token_idx, k, 0, round);
        int32_t* flag = network_.result_flag(session, micro_batch, token_idx, k);
        send(session, micro_batch, false, [flag, round] {
            if (carries_round(observe_own(*flag), round)) return;
            publish_release(*flag, refused_mark(round));
        });
    }
    void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) override {
        publish_release(acknowledged_word(session, micro_batch), round);
        int32_t* mirror = network_.acknowledged(rank(), session, micro_batch);
        send(session, micro_batch, true, [&network = network_, session, mirror, round] {
            publish_seq_cst(*mirror, round);
            network.ring_if_armed(Role::kAttention, session);
        });
    }
    Result<std::unique_ptr<TwoPhaseReturnTransport>> two_phase() override {
        using Made = ToyTwoPhase<TwoPhaseRankWords, TwoPhaseSessionWords>;
        return std::unique_ptr<TwoPhaseReturnTransport>(std::make_unique<Made>(network_, rank()));
    }
    void ring_peers() override {
        for (const int fd : network_.session_doorbells_.all()) ring(fd);
    }

    // Fetches what the sessions know of this rank's acknowledgements.
    void connect() {
        for (uint32_t s = 0; s < network_.sessions_.size(); ++s) {
            for (uint32_t m = 0; m < layout().geometry.num_micro_batches; ++m) {
                acknowledged_word(s, m) = observe_own(*network_.acknowledged(rank(), s, m));
            }
        }
    }

  private:
    void send(uint32_t session, uint32_t micro_batch, bool is_barrier, ToyWire::Store store) {
        network_.wire_.send(
            {Role::kFfn, rank(), session, micro_batch}, std::move(store), is_barrier);
    }

    ToyNetwork& network_;
};

// ---- The network

ToyNetwork::ToyNetwork(const Geometry& geometry, uint64_t seed)
    : layout_(WindowLayout::compute(geometry).value()),
      two_phase_layout_(TwoPhaseControlLayout::compute(geometry)),
      session_doorbells_(geometry.num_sessions),
      rank_doorbells_(geometry.num_ffn_workers),
      sessions_(geometry.num_sessions),
      ranks_(geometry.num_ffn_workers),
      wire_(seed, [this] { mirror_heartbeats(); }) {
    const auto header = [&](Role role, uint32_t index) {
        return make_segment_header(geometry, test_identity(), role, index).value();
    };
    const auto stripes = [](size_t count, uint64_t bytes) {
        std::vector<Bytes> made;
        for (size_t i = 0; i < count; ++i) made.push_back(zeroed_bytes(bytes));
        return made;
    };
    wire_.while_still([&] {
        for (uint32_t s = 0; s < sessions_.size(); ++s) {
            ToySession& machine = sessions_[s];
            machine.window = zeroed_bytes(layout_.attention_window.total_bytes);
            machine.control = zeroed_bytes(layout_.attention_control_bytes);
            format_control(
                header(Role::kAttention, s), ScheduleMode::kAttention, machine.control.get());
            machine.published.assign(ranks_.size(),
                                     std::vector<int32_t>(geometry.num_micro_batches));
            machine.acknowledged = machine.published;
            machine.ranks.resize(ranks_.size());
            machine.two_phase.own = stripes(ranks_.size(), two_phase_layout_.session_stripe_bytes);
            machine.two_phase.mirrors = stripes(ranks_.size(), two_phase_layout_.rank_stripe_bytes);
        }
        for (uint32_t f = 0; f < ranks_.size(); ++f) {
            ToyRank& machine = ranks_[f];
            machine.window = zeroed_bytes(layout_.ffn_window.total_bytes);
            machine.control = zeroed_bytes(layout_.ffn_control.total_bytes);
            format_ffn_window(layout_, machine.window.get());
            format_control(header(Role::kFfn, f), ScheduleMode::kFfn, machine.control.get());
            machine.sessions.resize(sessions_.size());
            machine.two_phase.own = stripes(sessions_.size(), two_phase_layout_.rank_stripe_bytes);
            machine.two_phase.mirrors =
                stripes(sessions_.size(), two_phase_layout_.session_stripe_bytes);
        }
    });
}

std::unique_ptr<DispatchTransport> ToyNetwork::dispatch(uint32_t session) {
    // Fetches the flags that stand in the ranks' windows.
    wire_.cut(Role::kAttention, session, [&] {
        for (uint32_t f = 0; f < ranks_.size(); ++f) {
            for (uint32_t m = 0; m < layout_.geometry.num_micro_batches; ++m) {
                sessions_[session].published[f][m] = observe_own(*descriptor(f, session, m));
            }
        }
    });
    return std::make_unique<ToyDispatch>(*this, session);
}

std::unique_ptr<ReturnTransport> ToyNetwork::returns(uint32_t rank) {
    auto made = std::make_unique<ToyReturn>(*this, rank);
    wire_.cut(Role::kFfn, rank, [&] { made->connect(); });
    return made;
}

// Runs on the pump, before the machines are made as well.
void ToyNetwork::mirror_heartbeats() {
    for (size_t s = 0; s < sessions_.size(); ++s) {
        for (size_t f = 0; f < ranks_.size(); ++f) {
            if (!sessions_[s].control || !ranks_[f].control) continue;
            mirror_heartbeat(ranks_[f].control, sessions_[s].ranks[f]);
            mirror_heartbeat(sessions_[s].control, ranks_[f].sessions[s]);
        }
    }
}

Doorbell ToyNetwork::doorbell(Role role, uint32_t index) const {
    const bool is_ffn = role == Role::kFfn;
    const Bytes& control = is_ffn ? ranks_[index].control : sessions_[index].control;
    return {ControlView(control.get()).armed(),
            is_ffn ? rank_doorbells_[index] : session_doorbells_[index]};
}

void ToyNetwork::ring_if_armed(Role role, uint32_t index) const {
    const Bytes& control = role == Role::kFfn ? ranks_[index].control : sessions_[index].control;
    DoorbellRinger(ConstControlView(control.get()).armed(), doorbell(role, index).eventfd())
        .ring_if_armed();
}

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxRounds: the two-phase rounds of one end of the transport over UCX: its words, what arrived of
// its peers', the memory of its open rounds, and all of that on its way. What words mean for a
// session and for a rank is with the ends (ucx_dispatch_rounds.h, ucx_return_rounds.h).
//
// A round belongs to the connection on which it was offered (R17). When that is over, it is lost:
// nothing more of it is sent or stored, nothing is kept for a successor, and what was in it goes
// through the windows.
//
// Blocks are sent from where they lie, in pieces. Words and pieces of a connection are numbered,
// and words take effect in that order: UCX may bring a short message before a long one.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/transport/two_phase_transport.h"
#include "schedule/ucx/ucx_end.h"
#include "schedule/ucx/ucx_memory.h"
#include "schedule/ucx/ucx_message.h"

namespace afd::schedule {

template <typename Own, typename Peer>
class UcxRounds {
  public:
    using Transport = TwoPhaseTransport<Own, Peer>;
    using Word = typename Transport::Word;
    using PeerWord = int32_t Peer::*;
    // Its own words and what arrived of its peers'.
    struct Words {
        UcxMemory own;
        UcxMemory mirrors;
    };

    // A message brings at most this much of a block.
    static constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
    // The connection of a peer ends when this much of it came ahead of its turn.
    static constexpr size_t kEarlyMax = 4096;
    // More blocks than these would hold up the rows of windows behind them.
    static constexpr uint32_t kBlocksAhead = 2;

    // Errors: kResourceExhausted.
    static Result<Words> make_words(const Geometry& geometry);
    virtual ~UcxRounds() = default;
    UcxRounds(const UcxRounds&) = delete;
    UcxRounds& operator=(const UcxRounds&) = delete;

    // The way of the rounds; this outlives it.
    std::unique_ptr<Transport> make_transport();

    // Under the lock, as UcxEnd::Meaning has them:
    void on_open(uint32_t peer);
    void on_close(uint32_t peer) { lose(peer); }
    // REQUIRES: it is kWords or kBlock.
    bool on_message(uint32_t peer, const UcxHeader& header, std::span<const std::byte> payload);

    // On the data thread; each takes the lock. As TwoPhaseTransport has them:
    virtual void publish(uint32_t peer, Word word, int32_t value, size_t table_bytes) = 0;
    // Errors: kResourceExhausted: this machine has no room for that much (names the bytes), or
    // pieces of the round before are still with UCX.
    Result<TwoPhaseRoundMemory> open(uint32_t peer, int32_t round, const TwoPhaseSizes& sizes);
    void put(uint32_t peer, uint64_t offset, uint64_t bytes);
    void close(uint32_t peer, int32_t round);

  protected:
    static constexpr bool kIsSession = std::is_same_v<Own, TwoPhaseSessionWords>;

    // `end` is started later, and stopped before this ends.
    UcxRounds(UcxEnd& end, uint32_t index, const Geometry& geometry, Words words);

    // All below: under the lock.
    // The connection on which the last round was offered is over.
    virtual void lose(uint32_t peer) = 0;
    // The peer published a word; `line` has all of its words. Returns whether it may say so.
    virtual bool take_word(uint32_t peer,
                           PeerWord word,
                           const Peer& line,
                           std::span<const std::byte> table) = 0;

    UcxEnd& end() { return *end_; }
    Own& own(uint32_t peer) { return *own_[peer]; }
    Peer& mirror(uint32_t peer) { return *mirrors_[peer]; }
    void store_table(uint32_t peer, std::span<const std::byte> table);
    // Whether the last round's connection is not the current one.
    bool is_lost(uint32_t peer) const { return links_[peer].is_lost; }
    void set_lost(uint32_t peer, bool is_lost) { links_[peer].is_lost = is_lost; }
    // Messages of words that UCX has not let go of.
    size_t num_unsent_words(uint32_t peer) const;
    // Sends this line, of which `word` is the news, with the first bytes of its own table.
    void send_words(uint32_t peer, Word word, const Own& line, size_t table_bytes);

  private:
    struct Round {
        int32_t number = 0;
        std::shared_ptr<std::byte> sent;  // Also of the pieces that UCX has not let go of.
        uint64_t sent_bytes = 0;
        UcxMemory received;
        uint64_t received_bytes = 0;
    };
    struct Parcel {
        UcxMessage message;
        std::shared_ptr<const std::byte> rows;  // What a piece is of.
    };
    struct Link {
        bool is_lost = true;
        uint64_t num_sent = 0;     // Messages of the connection.
        uint64_t num_arrived = 0;  // Without gap.
        // What came before its turn: words; of a piece, which is stored already, nothing.
        std::map<uint64_t, std::pair<UcxHeader, std::vector<std::byte>>> early;
        std::optional<Round> round;
        std::deque<std::unique_ptr<Parcel>> parcels;
    };

    static void drop_sent(Link& link);
    Parcel& next_parcel(uint32_t peer, UcxKind kind);
    static bool store_piece(Link& link,
                            const UcxHeader& header,
                            std::span<const std::byte> payload);
    bool is_valid(const UcxHeader& header, std::span<const std::byte> payload) const;
    bool apply(uint32_t peer, const UcxHeader& header, std::span<const std::byte> payload);

    UcxEnd* end_;
    uint32_t index_;
    TwoPhaseControlLayout layout_;
    Words words_;
    std::vector<Own*> own_;       // [peers]
    std::vector<Peer*> mirrors_;  // [peers]
    std::vector<Link> links_;     // [peers]
};

extern template class UcxRounds<TwoPhaseSessionWords, TwoPhaseRankWords>;
extern template class UcxRounds<TwoPhaseRankWords, TwoPhaseSessionWords>;

}  // namespace afd::schedule

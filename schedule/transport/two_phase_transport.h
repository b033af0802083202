// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseTransport: the way of two-phase rounds between a session and the FFN ranks
// (two_phase_control.h), put-only as the one of the windows (transport.h): a side reads its own
// words, the mirror of its peer's words, and what arrived of a round; all of it is its own memory.
// Where the transport maps the peer's words, the mirror is the original.
//
// Of a pair of peers and a direction: what was put before a publish() arrives before it. The words
// of the line that publish() did not name may arrive with it, never later.
//
// The two sides differ in their words only: a session's end is TwoPhaseDispatchTransport, a rank's
// TwoPhaseReturnTransport. One data thread. At attach, see transport.h.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "schedule/layout/two_phase_control.h"

namespace afd::schedule {

// The memory of one round with one peer. A session sends rows and receives results, a rank the
// other way round; a part of 0 bytes is null.
struct TwoPhaseRoundMemory {
    std::byte* sent = nullptr;            // Write here, then put(); from then on it stays so.
    const std::byte* received = nullptr;  // Good until close().
};

template <typename Own, typename Peer>
class TwoPhaseTransport {
  public:
    using Word = int32_t Own::*;

    virtual ~TwoPhaseTransport() = default;
    TwoPhaseTransport& operator=(const TwoPhaseTransport&) = delete;

    const TwoPhaseControlLayout& layout() const { return layout_; }
    // Session, or rank.
    uint32_t index() const { return index_; }

    // The words towards a peer. Words other than those of publish() may be written here; they
    // travel with the next publish(). The rank's `execution` stays here.
    Own& own(uint32_t peer) const { return *own_[peer]; }
    // Counts, or grants: what follows the words.
    std::byte* own_table(uint32_t peer) const { return bytes_behind(own_[peer]); }
    const Peer& mirror(uint32_t peer) const { return *mirrors_[peer]; }
    const std::byte* mirrored_table(uint32_t peer) const { return bytes_behind(mirrors_[peer]); }

    // Puts own(peer) and the first `table_bytes` of its table, then stores `value` in `word` there
    // and here (seq_cst), then rings the peer's doorbell if it is armed.
    virtual void publish(uint32_t peer, Word word, int32_t value, size_t table_bytes) = 0;
    void publish(uint32_t peer, Word word, int32_t value) { publish(peer, word, value, 0); }

    // Blocks that a session may have sent and not combined. More of them on a wire hold up the rows
    // of windows behind them.
    virtual uint32_t blocks_ahead() const { return UINT32_MAX; }
    // Whether the memory of a round that the peer has granted is here, too: open() will find it.
    virtual bool may_open(uint32_t /*peer*/, int32_t /*round*/) const { return true; }
    // The memory of a round that afdd granted. A successor finds what its predecessor received,
    // unless the round ended with the process (R17).
    // Errors: the transport's own; kNotFound: afdd made no such memory.
    virtual Result<TwoPhaseRoundMemory> open(uint32_t peer,
                                             int32_t round,
                                             const TwoPhaseSizes& sizes) = 0;
    // Puts bytes of the sent memory of the peer's open round.
    virtual void put(uint32_t peer, uint64_t offset, uint64_t bytes) = 0;
    // What still arrives of the round is dropped. Of a round that is not open: nothing.
    virtual void close(uint32_t peer, int32_t round) = 0;

  protected:
    // The words of each peer, each with its table behind it. All memory outlives this.
    TwoPhaseTransport(const TwoPhaseControlLayout& layout,
                      uint32_t index,
                      std::vector<Own*> own,
                      std::vector<const Peer*> mirrors)
        : layout_(layout), index_(index), own_(std::move(own)), mirrors_(std::move(mirrors)) {}

  private:
    static std::byte* bytes_behind(Own* words) {
        void* table = words + 1;
        return static_cast<std::byte*>(table);
    }
    static const std::byte* bytes_behind(const Peer* words) {
        const void* table = words + 1;
        return static_cast<const std::byte*>(table);
    }

    TwoPhaseControlLayout layout_;
    uint32_t index_;
    std::vector<Own*> own_;
    std::vector<const Peer*> mirrors_;
};

using TwoPhaseDispatchTransport = TwoPhaseTransport<TwoPhaseSessionWords, TwoPhaseRankWords>;
using TwoPhaseReturnTransport = TwoPhaseTransport<TwoPhaseRankWords, TwoPhaseSessionWords>;

}  // namespace afd::schedule

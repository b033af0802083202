// SPDX-License-Identifier: Apache-2.0
#pragma once

// The transport seam: how rows, descriptors, results and acknowledgements travel between an
// attention session and the FFN ranks. It is put-only: a worker reads its own memory, in which
// everything that concerns it arrives, and puts what concerns others into theirs. So reads are
// plain functions here, over memory that the transport names at construction, and only the puts
// are the transport's. A word of a peer that is read again and again (an acknowledgement, a
// heartbeat) has a mirror in the worker's own memory; where the transport maps the peer's memory,
// the mirror is the original.
//
// shm_transport.h is the first. How to add one: docs/adding/transport.md.
//
// These are the bare accesses. The rules about when they may be used (R1, R4, R5, R10; R3 on the
// FFN side) are carried by DispatchLane and ReadyScan, which the loops use.
// Thread roles: one data thread of one process per object; put_row and put_result of different
// rows may run on several threads at once, with the publishing call after all of them.
// Indices outside the geometry are bugs of ours and assert.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/layout/window_layout.h"
#include "schedule/transport/endpoint.h"
#include "schedule/transport/link_view.h"
#include "schedule/transport/two_phase_transport.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

// Descriptor flags that lie apart: the one with number `lane` is at(lane).
struct DescriptorFlags {
    const int32_t* first = nullptr;
    size_t stride_words = 0;

    int32_t at(size_t lane, Order order) const {
        return observe(first[lane * stride_words], order);
    }
    int32_t own_at(size_t lane) const { return observe_own(first[lane * stride_words]); }
};

// What a session knows of a rank, in the session's own memory.
struct RankMirror {
    DescriptorFlags descriptors;            // Of the session's micro-batches, as it published them.
    const int32_t* acknowledged = nullptr;  // [M], of the session.
};

// An attention session's view of all FFN ranks and of its own attention window.
class DispatchTransport : public Endpoint {
  public:
    // Copies a row of at most HS bytes into the session's stripe of the rank's window.
    // REQUIRES: R4 and R10 hold for this micro-batch.
    virtual void put_row(uint32_t rank,
                         uint32_t micro_batch,
                         uint32_t token_idx,
                         uint32_t k,
                         std::span<const std::byte> row) = 0;

    // Publishes a descriptor: ids [BS * K1] and layer_id, then the flag (seq_cst), then rings the
    // rank's doorbell if it is armed. REQUIRES: as put_row; `round` by R1.
    virtual void publish(uint32_t rank,
                         uint32_t micro_batch,
                         int32_t layer_id,
                         std::span<const int32_t> ids,
                         int32_t round) = 0;

    // R12, R16. Whether the session can do without a rank by itself: nothing is stored in its
    // memory but by this process. Where ranks store there, only afdd can say that one of them will
    // not.
    virtual bool can_fence() const { return false; }
    // Fences off what `rank` may be executing of the micro-batch: from here on nothing of it is
    // stored in the session's memory, and the rank's words are unknown until it has said what
    // stands there. REQUIRES: can_fence().
    virtual void fence(uint32_t rank, uint32_t micro_batch);

    // The way of two-phase rounds to the same ranks; this outlives it. Call once.
    // Errors: the transport's own.
    virtual Result<std::unique_ptr<TwoPhaseDispatchTransport>> two_phase() = 0;

    // What is known of the ways to the ranks, [F]. Empty: rows are stored into their memory, there
    // is no way between. Any thread.
    virtual std::vector<LinkView> links() const { return {}; }

    uint32_t session() const { return index(); }

    // The flag that the session published last; after a takeover what stands in the rank's window.
    // While that is not known, as before a welcome over UCX: a number that no acknowledgement
    // carries.
    int32_t descriptor_flag(uint32_t rank, uint32_t micro_batch) const;
    // The round that the rank acknowledged for this session, as far as it has arrived; minus it if
    // it was refused (carries_round()), or a flag that is no round, as it stood; 0: none.
    int32_t acknowledged(uint32_t rank, uint32_t micro_batch, Order order) const;

    // Result flags [BS * K1] of a micro-batch; read each with observe().
    const int32_t* result_flags(uint32_t micro_batch) const;
    // The row of a slot, HS' bytes. REQUIRES: its flag was observed to carry the awaited round.
    std::span<const std::byte> result_row(uint32_t micro_batch,
                                          uint32_t token_idx,
                                          uint32_t k) const;

  protected:
    // `window` is the session's attention window. One mirror per rank. All memory outlives this.
    DispatchTransport(const WindowLayout& layout,
                      uint32_t session,
                      const std::byte* window,
                      const EndpointMemory& own,
                      std::vector<RankMirror> ranks);
    DispatchTransport(const DispatchTransport&) = default;

    const WindowLayout& layout() const { return layout_; }
    void assert_row(uint32_t rank,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    size_t row_bytes) const;
    void assert_descriptor(uint32_t rank, uint32_t micro_batch) const;
    // What publish() requires: a descriptor's place, [BS * K1] ids and a round.
    void assert_publication(uint32_t rank,
                            uint32_t micro_batch,
                            std::span<const int32_t> ids,
                            int32_t round) const;

  private:
    WindowLayout layout_;
    const std::byte* window_;
    std::vector<RankMirror> ranks_;
};

// An FFN rank's view of all sessions and of its own FFN window.
class ReturnTransport : public Endpoint {
  public:
    // Copies a finished row of at most HS' bytes into the session's window, then publishes its
    // flag. A slot that already carries the round is left alone (R3): here where the flags are
    // mapped, else where the row arrives, as that of a predecessor may, with the same bits.
    // REQUIRES: once for each slot and round of this process.
    virtual void put_result(uint32_t session,
                            uint32_t micro_batch,
                            uint32_t token_idx,
                            uint32_t k,
                            std::span<const std::byte> row,
                            int32_t round) = 0;
    // Marks a slot as refused for this round, without a row (R11). Left alone as above.
    virtual void put_refusal(
        uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k, int32_t round) = 0;
    // Acknowledges a round (seq_cst), then rings the session's doorbell if it is armed. `round`
    // may be a refused_mark() (round.h), which belongs to its round like the number itself.
    // REQUIRES: every result of the round is put and no row of it is read any more.
    virtual void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) = 0;

    // The way of two-phase rounds from the same sessions; this outlives it. Call once.
    // Errors: the transport's own.
    virtual Result<std::unique_ptr<TwoPhaseReturnTransport>> two_phase() = 0;

    uint32_t rank() const { return index(); }

    // The flags of all descriptors: that of (session, micro_batch) has the number
    // session * M + micro_batch.
    DescriptorFlags descriptor_flags() const;
    // The round that the rank acknowledged last; after a takeover what the session knows of.
    int32_t acknowledged(uint32_t session, uint32_t micro_batch) const;

    // The descriptor's layer_id, read once. REQUIRES of this and the next two: the flag of an
    // unacknowledged round was observed. The values are the session's bytes: validate them.
    int32_t layer_id(uint32_t session, uint32_t micro_batch) const;
    // Copies the ids [BS * K1] into private memory (R2).
    void copy_ids(uint32_t session, uint32_t micro_batch, std::span<int32_t> ids) const;
    // The row of a slot, HS bytes.
    const std::byte* token_row(uint32_t session,
                               uint32_t micro_batch,
                               uint32_t token_idx,
                               uint32_t k) const;

    // Base of the rank's own FFN window, for FfnWorkerBatching: ffn.token_*_buf count from here.
    const std::byte* own_window() const { return window_; }
    const WindowLayout& layout() const { return layout_; }

  protected:
    // `window` is the rank's FFN window. All memory outlives this.
    ReturnTransport(const WindowLayout& layout,
                    uint32_t rank,
                    const std::byte* window,
                    const EndpointMemory& own);
    ReturnTransport(const ReturnTransport&) = default;

    void assert_result(uint32_t session,
                       uint32_t micro_batch,
                       uint32_t token_idx,
                       uint32_t k,
                       size_t row_bytes,
                       int32_t round) const;
    // In the rank's own control memory.
    int32_t& acknowledged_word(uint32_t session, uint32_t micro_batch) const;

  private:
    const int32_t* descriptor(uint32_t session, uint32_t micro_batch) const;

    WindowLayout layout_;
    const std::byte* window_;
};

}  // namespace afd::schedule

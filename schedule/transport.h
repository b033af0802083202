// SPDX-License-Identifier: Apache-2.0
#pragma once

// The transport seam: how rows, descriptors, results and acknowledgements travel between an
// attention session and the FFN ranks. Shared memory is the first implementation
// (shm_transport.h); one-sided puts over a network can be the next.
//
// These are the bare accesses. The rules about when they may be used (R1, R4, R5, R10; R3 on the
// FFN side) are carried by DispatchLane and ReadyScan, which the loops use.
// Thread roles: one data thread of one process per object; put_row and put_result of different
// rows may run on several threads at once, with the publishing call after all of them.
// Indices outside the geometry are bugs of ours and assert.

#include <cstddef>
#include <cstdint>
#include <span>

#include "schedule/flag.h"
#include "schedule/heartbeat.h"

namespace afd::schedule {

// An attention session's view of all FFN ranks and of its own attention window.
class DispatchTransport {
  public:
    virtual ~DispatchTransport() = default;

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

    // The session's own flag as it stands in the rank's window.
    virtual int32_t descriptor_flag(uint32_t rank, uint32_t micro_batch) const = 0;
    // The round that the rank acknowledged for this session.
    virtual int32_t acknowledged(uint32_t rank, uint32_t micro_batch, Order order) const = 0;

    // Result flags [BS * K1] of a micro-batch, in the session's own memory; read each with
    // observe().
    virtual const int32_t* result_flags(uint32_t micro_batch) const = 0;
    // The row of a slot, HS' bytes. REQUIRES: its flag was observed to carry the awaited round.
    virtual std::span<const std::byte> result_row(uint32_t micro_batch,
                                                  uint32_t token_idx,
                                                  uint32_t k) const = 0;

    // What is known of a rank, aged by `now_us` (steady).
    virtual PeerState peer(uint32_t rank, uint64_t now_us) = 0;
    // Rings every rank's doorbell: once at the start of a process.
    virtual void ring_peers() = 0;
};

// The descriptor flags of a rank: that of (session, micro_batch) is at(session * M + micro_batch).
struct DescriptorFlags {
    const int32_t* first = nullptr;
    size_t stride_words = 0;

    int32_t at(size_t lane, Order order) const {
        return observe(first[lane * stride_words], order);
    }
};

// An FFN rank's view of all sessions and of its own FFN window.
class ReturnTransport {
  public:
    virtual ~ReturnTransport() = default;

    // The flags of all descriptors, which are in the rank's own memory.
    virtual DescriptorFlags descriptor_flags() const = 0;
    // The rank's own acknowledged round.
    virtual int32_t acknowledged(uint32_t session, uint32_t micro_batch) const = 0;

    // The descriptor's layer_id, read once. REQUIRES of this and the next two: the flag of an
    // unacknowledged round was observed. The values are the session's bytes: validate them.
    virtual int32_t layer_id(uint32_t session, uint32_t micro_batch) const = 0;
    // Copies the ids [BS * K1] into private memory (R2).
    virtual void copy_ids(uint32_t session, uint32_t micro_batch, std::span<int32_t> ids) const = 0;
    // The row of a slot, HS bytes.
    virtual const std::byte* token_row(uint32_t session,
                                       uint32_t micro_batch,
                                       uint32_t token_idx,
                                       uint32_t k) const = 0;

    // Copies a finished row of at most HS' bytes into the session's window, then publishes its
    // flag. A slot that already carries the round is left alone (R3).
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

    virtual PeerState peer(uint32_t session, uint64_t now_us) = 0;
    virtual void ring_peers() = 0;
};

}  // namespace afd::schedule

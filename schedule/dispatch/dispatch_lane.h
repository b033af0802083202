// SPDX-License-Identifier: Apache-2.0
#pragma once

// DispatchLane: one micro-batch slot of an attention session. It carries the rules R1, R4, R5,
// R6, R10, R11 and the session's part of R12, so that a loop over it cannot break them:
//
//     may_store()? -> begin(layer) -> put(...)... -> publish() -> poll() until kReady -> row(...)
//          ^                                                                              |
//          +------------------------------------------------------------------------------+
//
// Invariants:
//   (1) Nothing is stored in any FFN window before every rank that the previous round was
//       published to has acknowledged it (R4), and, in a new process, before every rank has
//       acknowledged whatever its predecessor left (R10). begin() asserts may_store().
//   (2) publish() chooses the round number after everything it depends on is known and still (R1).
//   (3) poll() accepts exactly the round of the last publish(), or its refusal (R5, R11).
//   (4) A round that afdd has voided at a rank, or that the transport has fenced off, counts as
//       acknowledged in (1), but nothing is stored to that rank before it has acknowledged; and
//       nothing anywhere while an answer of afdd is on its way (R12).
// docs/protocol/flags.pml and failover.pml have this as a model, `Session`, and what goes wrong
// without each of the rules.
//
// A caller that no longer wants the results (deadline, cancellation) just stops polling: the slot
// stays blocked by may_store() until acknowledged, as it must.
//
// The live path of the daemon's attention loops; the same data movement as an operator that stands
// alone, without the rules above, is ops/operators/attention_to_ffn.h.
//
// One data thread. Allocates only in the constructor.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/context/heartbeat.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/geometry.h"
#include "schedule/transport/transport.h"

namespace afd::schedule {

// kAsync publishes to the ranks that got at least one row, kSync to every rank that it may store
// to: one without rows acknowledges the round at once, and the next round waits for that.
enum class DispatchMode { kSync, kAsync };

constexpr std::string_view name_of(DispatchMode mode) {
    return mode == DispatchMode::kSync ? "sync" : "async";
}

enum class RoundState {
    kIdle,     // No round was published yet.
    kPending,  // Some used slot does not carry the round yet.
    kReady,    // Every row may be read, until the next begin().
    kRefused,  // A rank refused the round (R11): no row may be read.
};

class DispatchLane {
  public:
    // REQUIRES: the transport outlives this; num_ffn_workers >= 1.
    DispatchLane(DispatchTransport& transport, const Geometry& geometry, uint32_t micro_batch);

    // Whether begin() is allowed: R10 is over and R4 holds. Once true it stays so until
    // publish(). Cost: continues where the last call stopped.
    bool may_store();

    // Starts a round; forgets the slots of the last one. REQUIRES: may_store().
    void begin(int32_t layer_id);

    // Notes that a slot is used: `target` is asked for (token_idx, k).
    // REQUIRES: begin(); the slot is not used yet.
    void use(ExpertReplica target, uint32_t token_idx, uint32_t k);
    // Copies the row of a used slot. Different rows may be copied by several threads at once.
    void put_row(uint32_t rank, uint32_t token_idx, uint32_t k, std::span<const std::byte> row) {
        transport_->put_row(rank, micro_batch_, token_idx, k, row);
    }
    // use() and put_row().
    void put(ExpertReplica target, uint32_t token_idx, uint32_t k, std::span<const std::byte> row) {
        use(target, token_idx, k);
        put_row(target.rank, token_idx, k, row);
    }

    // router = ffn: offers the token to every rank at slot (token_idx, 0). The rank that holds the
    // k-th expert of the token answers slot (token_idx, k), for each k < num_slots; which one that
    // is, nobody here knows. Copies the row to each rank. `left_out`: bits of ranks that do not get
    // it, nor answer (R12).
    // REQUIRES: begin(); none of these slots is used yet; may_store_to() each rank that gets it.
    void offer(uint32_t token_idx,
               uint32_t num_slots,
               std::span<const std::byte> row,
               uint32_t left_out = 0);

    // Publishes the round: ids of every slot (unused ones masked), layer, flag, doorbell.
    // Returns its number. REQUIRES: begin(), and every used row is put.
    int32_t publish(DispatchMode mode);

    // Looks at the result flags. Cost: continues where the last call stopped.
    RoundState poll();

    // The result of a used slot, HS' bytes. REQUIRES: poll() returned kReady.
    std::span<const std::byte> row(uint32_t token_idx, uint32_t k) const {
        return transport_->result_row(micro_batch_, token_idx, k);
    }

    // Whether every rank that this lane waits for has acknowledged. Acknowledgements follow all
    // results, so this is the condition to sleep on, with kSeqCst before sleeping (R9).
    bool acknowledged(Order order) const;

    // --- R12 ---

    // Lets go of what stands at `rank` without a question, if the transport can fence it off.
    // Returns whether it did; false, too, if the rank has let go itself. REQUIRES: what is void to
    // the lane already is at ranks that are as lost as this one.
    bool fence(uint32_t rank);

    // The round that stands at `rank` if neither the rank nor afdd has let go of it and nothing has
    // been asked: what afdd may be asked to void. None over a transport that can fence: a process
    // that afdd counts as gone may still run on its host, and be heard.
    std::optional<int32_t> voidable(uint32_t rank) const;
    // afdd was asked to void `round`, and will answer. REQUIRES: voidable(rank) was `round`: what
    // it would be now is another process's word, and may have changed.
    void ask_void(uint32_t rank, int32_t round);
    // Its answer. One that nobody waits for, or about another round, is ignored.
    void answer_void(uint32_t rank, int32_t round, bool is_granted);
    // Whether the round in work lacks a result that will not come: it was voided at its rank, or,
    // of an offered token, at one that may have been to answer.
    bool is_voided() const;
    // Whether rows of the next round may go to `rank`. Once true it stays so until publish(),
    // whatever the rank stores meanwhile. REQUIRES: may_store().
    bool may_store_to(uint32_t rank);

    // Whether there may be ranks that rows may not go to. REQUIRES: may_store().
    bool has_voids() const { return num_voids_ > 0; }

    // What the lane waits for now, if for anything (R7).
    std::optional<WaitInfo> wait_info() const;

    // Whom the last round was published to, and whether one of them has acknowledged it.
    std::span<const uint32_t> published_ranks() const { return published_ranks_; }
    bool acknowledged_by(uint32_t rank, Order order) const;

    uint32_t micro_batch() const { return micro_batch_; }
    int32_t round() const { return round_; }
    int32_t layer_id() const { return layer_id_; }
    // Slots used by the last round: how many, and of the i-th its number token_idx * K1 + k and
    // whom it was sent to; of an offered token nothing.
    size_t num_slots() const { return slots_.size(); }
    uint32_t slot_index(size_t i) const { return slots_[i].index; }
    std::optional<uint32_t> slot_rank(size_t i) const {
        return slots_[i].rank == kAnyRank ? std::nullopt : std::optional(slots_[i].rank);
    }

  private:
    // Instead of a rank: the token was offered, any may answer.
    static constexpr uint32_t kAnyRank = 0xffffffff;

    struct Slot {
        uint32_t index;  // token_idx * K1 + k
        uint32_t rank;   // Or kAnyRank.
    };

    // What became of a rank at which a round was voided or fenced off (R12).
    enum class VoidState : uint8_t {
        kNone,  // Nothing was, since the last publication there.
        kOpen,  // The rank may still say something of it: nothing is stored there.
        kBack,  // It was seen to acknowledge what stood there then; that lasts.
    };
    struct Void {
        VoidState state = VoidState::kNone;
        int32_t flag = 0;  // What stood there; of kNone 0, the flag of a lane never used.
    };

    std::span<int32_t> ids_of(uint32_t rank);
    void begin_void(uint32_t rank, int32_t flag);
    void end_void(uint32_t rank);
    void occupy(uint32_t token_idx, uint32_t k, uint32_t rank);
    void assert_may_store_to(uint32_t rank);
    bool stands(int32_t round) const;
    bool is_refused() const;
    bool is_acknowledged(uint32_t rank, int32_t round, Order order) const;
    // Whether the lane goes on without the rank's acknowledgement of the round.
    bool is_void_at(uint32_t rank, int32_t round) const { return voids_[rank].flag == round; }
    // Whether nothing of the round can be executed at `rank` any more: of the last one that was
    // published there, or of what a predecessor left.
    bool is_let_go(uint32_t rank, int32_t round, Order order) const {
        return is_void_at(rank, round) || is_acknowledged(rank, round, order);
    }
    bool is_taken_over(uint32_t rank, Order order) const;
    bool is_done_with(uint32_t rank, Order order) const;
    uint32_t waits_for(const Slot& slot) const;

    DispatchTransport* transport_;
    uint32_t num_ranks_;
    uint32_t micro_batch_;
    uint32_t selected_expert_num_;
    size_t slots_per_rank_;
    int32_t layer_id_ = 0;
    int32_t round_;
    bool is_storing_ = false;
    bool was_published_ = false;
    bool was_refused_ = false;
    bool has_offers_ = false;
    uint32_t num_taken_over_ = 0;  // Ranks whose predecessor rounds are acknowledged (R10).
    size_t num_acknowledged_ = 0;  // Prefix of published_ranks_ that acknowledged (R4).
    size_t num_decided_ = 0;       // Prefix of slots_ that carry the round.
    std::vector<uint32_t> published_ranks_;
    std::vector<Void> voids_;         // [F]
    uint32_t num_voids_ = 0;          // Of them, not kNone.
    uint32_t asked_rank_ = kAnyRank;  // Where afdd was asked to void a round, which is
    int32_t asked_round_ = 0;         // this one. kAnyRank: nowhere.
    std::vector<uint8_t> has_rows_;   // [F]
    std::vector<int32_t> ids_;        // [F][BS * K1], masked between rounds.
    std::vector<uint8_t> is_used_;    // [BS * K1]
    std::vector<Slot> slots_;
};

}  // namespace afd::schedule

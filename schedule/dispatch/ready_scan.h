// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadyScan: the FFN worker's side of the flag protocol. It finds ready descriptors, snapshots
// and validates them, fills the scheduler output buffers of the ScheduleContext for
// FfnWorkerBatching, and acknowledges (R2, R3, R6, R11). The loop around it:
//
//     next_pass(scheduler, now) -> take(...) -> FfnWorkerBatching, experts
//         -> put_result(...) for every row -> acknowledge_taken()
//
// With schedule/dispatch/ffn_scheduler.h the live path of the FFN workers; the operator that stands
// alone is ops/operators/ffn_worker_scheduler.h, which knows neither time nor acknowledged rounds.
//
// R11: every execution is logged before it starts. What a dead predecessor had started is a
// suspect: it is not listed among the others but executed alone, so that a descriptor which kills
// its worker takes no other along. Started ExecutionLog::kDeadly times without an end, it is
// refused.
//
// Invariants:
//   (1) A descriptor is listed from the scan that first saw its flag until it is acknowledged.
//   (2) layer_id and ids are read from the window once each, into memory that only this worker
//       writes, and only the validated copy is used.
//   (3) A bad descriptor costs itself only: a flag that is no round number or a layer_id outside
//       the model is refused and acknowledged; an id that this rank does not hold is masked.
//   (4) Acknowledging happens after every result of the pass is published.
// As a model, and without each of the rules: `Rank` in docs/protocol/flags.pml; R11 in poison.pml.
//
// One data thread; put_result of different rows may run on several. Allocates only in the
// constructor. Cost of an idle scan: one load per (session, micro-batch), each on a cache line of
// its own and, with descriptors above 4 KiB, on a page of its own. Measured on a 2-core x86 virtual
// machine: 1.5 us for 1,024 lanes; 65,536 lanes take 80 us with small descriptors, and up to 700 us
// once cache and page tables overflow.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/context/context_words.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/dispatch/pass_scheduler.h"
#include "schedule/layout/execution_log.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/window_layout.h"
#include "schedule/transport/transport.h"

namespace afd::schedule {

// Descriptors and ids that failed validation since the worker started.
struct ReadyScanErrors {
    uint64_t num_bad_flags = 0;
    uint64_t num_bad_layers = 0;
    uint64_t num_bad_ids = 0;
    uint64_t num_deadly = 0;  // Refused by R11.
};

class ReadyScan {
  public:
    // With router kFfn the ids of a token's slot 0 may be an offer (is_offered_id()), and take()
    // leaves it.
    // REQUIRES: transport and placement outlive this.
    ReadyScan(ReturnTransport& transport,
              const ExpertPlacement& placement,
              RouterPlacement router = RouterPlacement::kAttention);

    // Everything that is ready and not taken, ascending by the order of first readiness; without
    // suspects(), what is refused, and descriptors whose ids are all kMaskedId, which are
    // acknowledged at once and wait for nobody.
    // Valid until the next call of scan or take.
    std::span<const ReadyDescriptor> scan(uint64_t now_us);

    // What the last scan found and a predecessor died of, perhaps. Valid likewise.
    std::span<const ReadyDescriptor> suspects() const { return suspects_; }

    // Scans, and chooses what to execute now: a suspect alone, else what the scheduler decides.
    // Empty: wait. Valid until the next call of this, scan or take.
    std::span<const ReadyDescriptor> next_pass(PassScheduler& scheduler, uint64_t now_us) {
        const std::span<const ReadyDescriptor> ready = scan(now_us);
        return suspects_.empty() ? scheduler.decide(now_us, ready, true) : suspects().first(1);
    }

    // How many descriptors the last scan listed, and none has taken since.
    size_t num_ready() const { return ready_.size() + suspects_.size(); }

    // Whether a descriptor is ready that the last scan did not list: the condition to wait on.
    bool has_new(Order order) const;

    // Starts a pass: validates the ids of `descriptors` (of the last scan) and fills
    // layer_ids, session_ids, micro_batch_ids, expert_ids and out_num.
    // REQUIRES: nothing is taken; one descriptor or more, at most one per session; a suspect alone.
    void take(std::span<const ReadyDescriptor> descriptors);

    // The pass in work: row i of the output buffers is taken()[i].
    std::span<const ReadyDescriptor> taken() const { return taken_; }

    // The validated ids of taken()[i], [BS * K1]: private, as taken() is. What the pass leaves in
    // the control segment is for observers, and is not read back.
    std::span<const int32_t> ids(size_t i) const {
        return std::span(taken_ids_).subspan(i * slots_per_micro_batch_, slots_per_micro_batch_);
    }

    // Returns one finished row of the pass. REQUIRES: the descriptor of `session` is taken.
    void put_result(uint32_t session,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    std::span<const std::byte> row) {
        transport_->put_result(session, micro_batch, token_idx, k, row, round_of_session_[session]);
    }

    // Ends the pass: acknowledges everything taken. REQUIRES: every result is put.
    void acknowledge_taken();

    const ReadyScanErrors& errors() const { return errors_; }

  private:
    size_t lane(uint32_t session, uint32_t micro_batch) const {
        return size_t{session} * num_micro_batches_ + micro_batch;
    }
    // A listed lane is not new whatever its flag does: a session that breaks R4 gains nothing.
    bool is_new(size_t lane, int32_t flag) const {
        return flag != known_[lane] && flag != 0 && listed_[lane] == 0;
    }
    void list(uint32_t session, uint32_t micro_batch, int32_t flag, uint64_t now_us);
    // What listing copied.
    std::span<int32_t> listed_ids(size_t lane) {
        return std::span(listed_ids_)
            .subspan(lane * slots_per_micro_batch_, slots_per_micro_batch_);
    }
    bool is_offer(size_t slot, int32_t id) const {
        return takes_offers_ && is_offered_id(id) && slot % selected_expert_num_ == 0;
    }
    void refuse_round(uint32_t session, uint32_t micro_batch, int32_t round);
    // `word` is what is published: the round, or its refusal.
    void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round, int32_t word);
    void mask_foreign_ids(int32_t layer_id, std::span<int32_t> ids);

    ReturnTransport* transport_;
    const ExpertPlacement* placement_;
    uint32_t rank_;
    bool takes_offers_;
    uint32_t num_sessions_;
    uint32_t num_micro_batches_;
    uint32_t selected_expert_num_;
    size_t slots_per_micro_batch_;
    ContextWords words_;
    std::span<int32_t> layer_ids_;        // [A], in the control segment, like the next three.
    std::span<int32_t> session_ids_;      // [A]
    std::span<int32_t> micro_batch_ids_;  // [A]
    std::span<int32_t> expert_ids_;       // [A][BS * K1]
    DescriptorFlags flags_;
    std::vector<int32_t> known_;       // [A][M], the round listed last, else acknowledged last.
    std::vector<uint8_t> listed_;      // [A][M], 1 from listing to acknowledgement.
    std::vector<int32_t> listed_ids_;  // [A][M][BS * K1]
    ExecutionLog executions_;
    std::vector<ReadyDescriptor> ready_;
    std::vector<ReadyDescriptor> suspects_;
    std::vector<ReadyDescriptor> taken_;
    std::vector<int32_t> taken_ids_;         // [A][BS * K1]
    std::vector<int32_t> round_of_session_;  // [A], of the pass.
    uint64_t next_order_ = 0;
    ReadyScanErrors errors_;
};

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/ready_scan.h"

#include <algorithm>

#include "proto/crash_point.h"
#include "schedule/layout/round.h"

namespace afd::schedule {
namespace {

// States of a lane in listed_.
constexpr uint8_t kNotListed = 0;
constexpr uint8_t kListed = 1;
constexpr uint8_t kTaken = 2;

std::span<uint64_t> executions_of(const WindowLayout& layout, ControlView control) {
    void* words = control.base() + layout.ffn_control.executions_offset;
    return {static_cast<uint64_t*>(words), layout.ffn_control.executions_bytes / sizeof(uint64_t)};
}

}  // namespace

ReadyScan::ReadyScan(ReturnTransport& transport,
                     const ExpertPlacement& placement,
                     RouterPlacement router)
    : transport_(&transport),
      placement_(&placement),
      rank_(transport.rank()),
      takes_offers_(router == RouterPlacement::kFfn),
      num_sessions_(transport.layout().geometry.num_sessions),
      num_micro_batches_(transport.layout().geometry.num_micro_batches),
      selected_expert_num_(transport.layout().geometry.selected_expert_num),
      slots_per_micro_batch_(transport.layout().geometry.slots_per_micro_batch()),
      words_(transport.words()),
      flags_(transport.descriptor_flags()),
      known_(size_t{num_sessions_} * num_micro_batches_),
      listed_(known_.size(), kNotListed),
      listed_ids_(known_.size() * slots_per_micro_batch_),
      executions_(executions_of(transport.layout(), transport.own_control())),
      round_of_session_(num_sessions_, 0) {
    const FfnControlLayout& offsets = transport.layout().ffn_control;
    std::byte* base = transport.own_control().base();
    layer_ids_ = {words_at(base, offsets.layer_ids_offset), num_sessions_};
    session_ids_ = {words_at(base, offsets.session_ids_offset), num_sessions_};
    micro_batch_ids_ = {words_at(base, offsets.micro_batch_ids_offset), num_sessions_};
    expert_ids_ = {words_at(base, offsets.expert_ids_offset),
                   num_sessions_ * slots_per_micro_batch_};
    ready_.reserve(known_.size());
    suspects_.reserve(known_.size());
    taken_.reserve(num_sessions_);
    taken_ids_.resize(expert_ids_.size());
    // A predecessor's acknowledgements stand (R3); its unfinished pass is simply found again.
    words_.set_out_num(0);
    for (uint32_t session = 0; session < num_sessions_; ++session) {
        for (uint32_t m = 0; m < num_micro_batches_; ++m) {
            known_[lane(session, m)] = round_of(transport.acknowledged(session, m));
        }
    }
}

std::span<const ReadyDescriptor> ReadyScan::scan(uint64_t now_us) {
    for (size_t i = 0; i < known_.size(); ++i) {
        const int32_t flag = flags_.at(i, Order::kAcquire);
        // The only load of an idle scan. Everything else of a lane is read after its flag was found
        // new.
        if (!is_new(i, flag)) continue;
        list(static_cast<uint32_t>(i / num_micro_batches_),
             static_cast<uint32_t>(i % num_micro_batches_),
             flag,
             now_us);
    }
    return ready_;
}

bool ReadyScan::has_new(Order order) const {
    for (size_t i = 0; i < known_.size(); ++i) {
        if (is_new(i, flags_.at(i, order))) return true;
    }
    return false;
}

void ReadyScan::list(uint32_t session, uint32_t micro_batch, int32_t flag, uint64_t now_us) {
    if (flag < 0) {
        // No round number, so there is no slot that a mark could belong to. The acknowledgement
        // repeats the bytes that stand there, and the lane is quiet.
        ++errors_.num_bad_flags;
        acknowledge(session, micro_batch, flag, flag);
        return;
    }
    AFD_CRASH_POINT("scan.found");
    const size_t i = lane(session, micro_batch);
    // R2: one private copy, and nothing but it from here on. Read a second time, the ids could
    // differ from those that were judged.
    const std::span<int32_t> ids = listed_ids(i);
    transport_->copy_ids(session, micro_batch, ids);
    const int32_t layer_id = transport_->layer_id(session, micro_batch);
    if (layer_id < 0 || static_cast<uint32_t>(layer_id) >= placement_->num_layers()) {
        ++errors_.num_bad_layers;
        refuse_round(session, micro_batch, flag);
        return;
    }
    const uint32_t num_unfinished = executions_.num_unfinished(i, flag);
    if (num_unfinished >= ExecutionLog::kDeadly) {
        ++errors_.num_deadly;
        refuse_round(session, micro_batch, flag);
        return;
    }
    // No slot asks anything of this rank: a session that publishes to every rank.
    if (std::all_of(ids.begin(), ids.end(), [](int32_t id) { return id == kMaskedId; })) {
        acknowledge(session, micro_batch, flag, flag);
        return;
    }
    listed_[i] = kListed;
    // Known from listing on, not from the acknowledgement: a session that breaks R4 and stores
    // another flag meanwhile finds its lane listed and gains nothing.
    known_[i] = flag;
    // What a predecessor may have died of waits apart, so that the scheduler cannot put it into a
    // pass with others (R11).
    (num_unfinished == 0 ? ready_ : suspects_)
        .push_back({session, micro_batch, layer_id, flag, next_order_++, now_us});
    AFD_CRASH_POINT("scan.listed");
}

void ReadyScan::take(std::span<const ReadyDescriptor> descriptors) {
    AFD_ASSERT(taken_.empty(), "%zu descriptors of the last pass are in work", taken_.size());
    AFD_ASSERT(descriptors.size() <= num_sessions_,
               "%zu descriptors for %u sessions",
               descriptors.size(),
               num_sessions_);
    taken_.assign(descriptors.begin(), descriptors.end());
    for (size_t i = 0; i < taken_.size(); ++i) {
        const ReadyDescriptor& descriptor = taken_[i];
        uint8_t& listed = listed_[lane(descriptor.session, descriptor.micro_batch)];
        AFD_ASSERT(listed == kListed && round_of_session_[descriptor.session] == 0,
                   "session %u, micro-batch %u is not listed, or its session is taken twice",
                   descriptor.session,
                   descriptor.micro_batch);
        listed = kTaken;
        // Before the first read of its rows: a death from here on is counted against this
        // descriptor.
        executions_.start(lane(descriptor.session, descriptor.micro_batch), descriptor.round);
        AFD_CRASH_POINT("take.execution_noted");
        round_of_session_[descriptor.session] = descriptor.round;
        layer_ids_[i] = descriptor.layer_id;
        session_ids_[i] = static_cast<int32_t>(descriptor.session);
        micro_batch_ids_[i] = static_cast<int32_t>(descriptor.micro_batch);
        const std::span<int32_t> ids =
            std::span(taken_ids_).subspan(i * slots_per_micro_batch_, slots_per_micro_batch_);
        std::ranges::copy(listed_ids(lane(descriptor.session, descriptor.micro_batch)),
                          ids.begin());
        // In the copy that goes to the batching; listed_ids_ keeps what the session wrote.
        mask_foreign_ids(descriptor.layer_id, ids);
        std::ranges::copy(ids, expert_ids_.subspan(i * slots_per_micro_batch_).begin());
    }
    // For observers only; the live loop takes the number of rows from taken_.
    words_.set_out_num(static_cast<uint32_t>(taken_.size()));
    words_.set_polling_index((taken_.back().micro_batch + 1) % num_micro_batches_);
    const auto is_taken = [this](const ReadyDescriptor& descriptor) {
        return listed_[lane(descriptor.session, descriptor.micro_batch)] == kTaken;
    };
    std::erase_if(ready_, is_taken);
    std::erase_if(suspects_, is_taken);
}

void ReadyScan::acknowledge_taken() {
    words_.set_out_num(0);
    for (const ReadyDescriptor& descriptor : taken_) {
        // Before the acknowledgement: a death in between finds the round open and executes it
        // again, which costs time. The other order would leave a count that no execution deserved.
        executions_.end(lane(descriptor.session, descriptor.micro_batch));
        AFD_CRASH_POINT("acknowledge.execution_ended");
        acknowledge(descriptor.session, descriptor.micro_batch, descriptor.round, descriptor.round);
        round_of_session_[descriptor.session] = 0;
        AFD_CRASH_POINT("acknowledge.descriptor_done");
    }
    taken_.clear();
}

// Marks every slot whose id could be this rank's, and acknowledges. A slot with any other id is
// masked (R6) and may belong to another rank. So may the slots of an offered token: then the
// refusal stands in the acknowledgement.
void ReadyScan::refuse_round(uint32_t session, uint32_t micro_batch, int32_t round) {
    const uint32_t num_local = placement_->num_local_experts_per_layer(rank_);
    bool has_offers = false;
    const std::span<const int32_t> ids = listed_ids(lane(session, micro_batch));
    for (size_t slot = 0; slot < slots_per_micro_batch_; ++slot) {
        const int32_t id = ids[slot];
        // Who answers an offered token is unknown, so its result flags are nobody's to mark: the
        // refusal goes into the acknowledgement instead.
        has_offers = has_offers || is_offer(slot, id);
        if (id < 0 || static_cast<uint32_t>(id) >= num_local) continue;
        transport_->put_refusal(session,
                                micro_batch,
                                static_cast<uint32_t>(slot / selected_expert_num_),
                                static_cast<uint32_t>(slot % selected_expert_num_),
                                round);
    }
    acknowledge(session, micro_batch, round, has_offers ? refused_mark(round) : round);
    // Behind the acknowledgement: who dies in between finds the round open and refuses it again.
    // Over UCX it is only sent by now: lost with this process, it leaves a round that is counted
    // from the beginning. Kept, the count would meet the round that gets this number next, since
    // numbers begin anew there when both processes do.
    executions_.end(lane(session, micro_batch));
}

void ReadyScan::acknowledge(uint32_t session, uint32_t micro_batch, int32_t round, int32_t word) {
    transport_->acknowledge(session, micro_batch, word);
    known_[lane(session, micro_batch)] = round;
    listed_[lane(session, micro_batch)] = kNotListed;
}

void ReadyScan::mask_foreign_ids(int32_t layer_id, std::span<int32_t> ids) {
    for (size_t slot = 0; slot < ids.size(); ++slot) {
        int32_t& id = ids[slot];
        if (id == kMaskedId || is_offer(slot, id) || placement_->holds(rank_, layer_id, id)) {
            continue;
        }
        ++errors_.num_bad_ids;
        id = kMaskedId;
    }
}

}  // namespace afd::schedule

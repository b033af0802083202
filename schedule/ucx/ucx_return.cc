// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_return.h"

#include <cstring>
#include <utility>

#include "proto/failure.h"
#include "schedule/context/fresh_memory.h"
#include "schedule/layout/round.h"
#include "schedule/ucx/private_memory.h"

namespace afd::schedule {

Result<std::unique_ptr<UcxReturn>> UcxReturn::make(const UcxEndConfig& config,
                                                   const WindowLayout& layout,
                                                   std::unique_ptr<UcxWorker> worker) {
    const Geometry& geometry = layout.geometry;
    AFD_ASSIGN(Memory memory, make_memory(layout));
    const UcxPlace place{config.epoch, worker->address()};
    auto end = std::make_unique<UcxEnd>(
        config, geometry.num_sessions, geometry.num_micro_batches, std::move(worker));
    std::unique_ptr<UcxReturn> made(new UcxReturn(layout, std::move(end), std::move(memory)));
    config.book->set(Role::kFfn, config.index, place);
    made->end_->start(*made);
    return made;
}

auto UcxReturn::make_memory(const WindowLayout& layout) -> Result<Memory> {
    const Geometry& geometry = layout.geometry;
    AFD_TRY(check_publication_bytes(layout));
    AFD_TRY(check_private_room("the window of this worker and its messages",
                               private_bytes(layout, Role::kFfn)));
    Memory memory;
    AFD_ASSIGN(memory.window, make_ucx_memory(layout.ffn_window.total_bytes));
    format_ffn_window(layout, memory.window.get());
    AFD_ASSIGN(memory.words, UcxReturnRounds::make_words(geometry));
    for (uint64_t i = 0; i < uint64_t{geometry.num_sessions} * geometry.num_micro_batches; ++i) {
        AFD_ASSIGN(
            memory.outboxes.emplace_back(),
            UcxOutbox::make(geometry.ffn_to_attn_token_bytes, geometry.slots_per_micro_batch(), 0));
    }
    return memory;
}

UcxReturn::UcxReturn(const WindowLayout& layout, std::unique_ptr<UcxEnd> end, Memory memory)
    : ReturnTransport(layout, end->index(), memory.window.get(), end->memory()),
      memory_(std::move(memory)),
      numbers_(memory_.outboxes.size()),
      rounds_(*end, end->index(), layout.geometry, std::move(memory_.words)),
      end_(std::move(end)) {
    for (uint32_t session = 0; session < layout.geometry.num_sessions; ++session) {
        for (uint32_t m = 0; m < layout.geometry.num_micro_batches; ++m) {
            publish_release(acknowledged_word(session, m), 0);
        }
    }
}

UcxReturn::~UcxReturn() {
    end_->stop();
}

void UcxReturn::put_result(uint32_t session,
                           uint32_t micro_batch,
                           uint32_t token_idx,
                           uint32_t k,
                           std::span<const std::byte> row,
                           int32_t round) {
    assert_result(session, micro_batch, token_idx, k, row.size(), round);
    outbox(session, micro_batch).add(static_cast<uint32_t>(layout().slot(token_idx, k)), row);
}

void UcxReturn::put_refusal(
    uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k, int32_t round) {
    assert_result(session, micro_batch, token_idx, k, 0, round);
    outbox(session, micro_batch).add_refusal(static_cast<uint32_t>(layout().slot(token_idx, k)));
}

void UcxReturn::acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) {
    UcxHeader header{};
    header.kind = UcxKind::kResults;
    header.micro_batch = micro_batch;
    header.round = round;
    const UcxWorker::Lock held = end_->lock();
    header.number = ++numbers_[lane(session, micro_batch)].sent;
    // Release: the next descriptor's rows are stored by the thread that receives, after it has seen
    // this word (R4).
    publish_release(acknowledged_word(session, micro_batch), round);
    end_->send(session, outbox(session, micro_batch).seal(header));
}

Result<std::unique_ptr<TwoPhaseReturnTransport>> UcxReturn::two_phase() {
    return rounds_.make_transport();
}

void UcxReturn::write_welcome(uint32_t session, std::span<int32_t> words) {
    const uint32_t num_lanes = layout().geometry.num_micro_batches;
    for (uint32_t m = 0; m < num_lanes; ++m) {
        words[m] = descriptor_flags().own_at(lane(session, m));
        words[num_lanes + m] = acknowledged(session, m);
    }
}

void UcxReturn::on_open(uint32_t session) {
    for (uint32_t m = 0; m < layout().geometry.num_micro_batches; ++m) {
        numbers_[lane(session, m)].taken = 0;
    }
    rounds_.on_open(session);
}

bool UcxReturn::on_message(uint32_t session,
                           const UcxHeader& header,
                           std::span<const std::byte> payload) {
    if (header.kind == UcxKind::kWords || header.kind == UcxKind::kBlock) {
        return rounds_.on_message(session, header, payload);
    }
    if (header.kind != UcxKind::kDescriptor ||
        header.micro_batch >= layout().geometry.num_micro_batches || header.round < 1) {
        return false;
    }
    const size_t i = lane(session, header.micro_batch);
    const int32_t standing = descriptor_flags().own_at(i);
    const int32_t done = observe(acknowledged_word(session, header.micro_batch), Order::kAcquire);
    // Its results go out again, or those of its predecessor make room: not without end to a session
    // that reads none (UcxOutbox::kUnsentMax).
    if (outbox(session, header.micro_batch).is_clogged()) return false;
    if (standing == header.round) {
        // R14: it is here already, and may be being read. R15: its results are sent again.
        if (!carries_round(done, standing)) return true;
        UcxMessage* results = outbox(session, header.micro_batch).kept_for_another_send();
        if (results != nullptr) end_->send(session, *results);
        return true;
    }
    // Sent again (R15), and overtaken by later ones, which say that it is over.
    if (header.number <= numbers_[i].taken) return true;
    // A session that keeps to R4 never comes here with another round in work.
    if (!carries_round(done, standing) || !store_descriptor(session, header, payload)) return false;
    numbers_[i].taken = header.number;
    return true;
}

bool UcxReturn::store_descriptor(uint32_t session,
                                 const UcxHeader& header,
                                 std::span<const std::byte> payload) {
    const Geometry& geometry = layout().geometry;
    const size_t num_slots = geometry.slots_per_micro_batch();
    const UcxRecords records(header, payload, geometry.attn_to_ffn_token_bytes, num_slots);
    if (!records.is_valid() || records.tail().size() > num_slots * sizeof(int32_t) ||
        records.tail().size() % sizeof(int32_t) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < records.size(); ++i) {
        const UcxRecord record = records.record(i);
        if (record.bytes == UcxRecord::kRefused) return false;
    }
    for (uint32_t i = 0; i < records.size(); ++i) {
        const UcxRecord record = records.record(i);
        std::memcpy(memory_.window.get() +
                        layout().token_row_offset(session,
                                                  header.micro_batch,
                                                  record.slot / geometry.selected_expert_num,
                                                  record.slot % geometry.selected_expert_num),
                    records.row(i),
                    record.bytes);
    }
    outbox(session, header.micro_batch).release();
    int32_t* words =
        words_at(memory_.window.get(), layout().descriptor_offset(session, header.micro_batch));
    unpack_ids(records.tail(), {words + kDescriptorIdsWord, num_slots});
    words[1] = header.layer_id;
    // After the rows (R14), and seq_cst, so that the look at the armed word comes after it (R9).
    publish_seq_cst(words[0], header.round);
    end_->ring_own();
    return true;
}

}  // namespace afd::schedule

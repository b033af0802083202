// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_dispatch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "proto/failure.h"
#include "schedule/layout/round.h"
#include "schedule/ucx/private_memory.h"

namespace afd::schedule {
namespace {

// No round and no refusal, so no acknowledgement carries it.
constexpr int32_t kUnknownFlag = std::numeric_limits<int32_t>::min();

// Ids up to the last that is not masked.
size_t num_meant(std::span<const int32_t> ids) {
    const auto last =
        std::find_if(ids.rbegin(), ids.rend(), [](int32_t id) { return id != kMaskedId; });
    return static_cast<size_t>(ids.rend() - last);
}

}  // namespace

Result<std::unique_ptr<UcxDispatch>> UcxDispatch::make(const UcxEndConfig& config,
                                                       const WindowLayout& layout,
                                                       std::unique_ptr<UcxWorker> worker) {
    const Geometry& geometry = layout.geometry;
    AFD_ASSIGN(std::unique_ptr<Memory> memory, make_memory(layout));
    const UcxPlace place{config.epoch, worker->address()};
    auto end = std::make_unique<UcxEnd>(
        config, geometry.num_ffn_workers, geometry.num_micro_batches, std::move(worker));
    std::unique_ptr<UcxDispatch> made(new UcxDispatch(layout, std::move(end), std::move(memory)));
    config.book->set(Role::kAttention, config.index, place);
    made->end_->start(*made);
    return made;
}

auto UcxDispatch::make_memory(const WindowLayout& layout) -> Result<std::unique_ptr<Memory>> {
    const Geometry& geometry = layout.geometry;
    AFD_TRY(check_publication_bytes(layout));
    AFD_TRY(check_private_room("the window of this worker and its messages",
                               private_bytes(layout, Role::kAttention)));
    auto memory = std::make_unique<Memory>();
    AFD_ASSIGN(memory->window, make_ucx_memory(layout.attention_window.total_bytes));
    AFD_ASSIGN(memory->words, UcxDispatchRounds::make_words(geometry));
    memory->ranks.resize(geometry.num_ffn_workers);
    for (Rank& rank : memory->ranks) {
        rank.published.assign(geometry.num_micro_batches, kUnknownFlag);
        rank.acknowledged.assign(geometry.num_micro_batches, 0);
        rank.lanes.resize(geometry.num_micro_batches);
        for (Lane& lane : rank.lanes) {
            AFD_ASSIGN(lane.outbox,
                       UcxOutbox::make(geometry.attn_to_ffn_token_bytes,
                                       geometry.slots_per_micro_batch(),
                                       geometry.slots_per_micro_batch() * sizeof(int32_t)));
        }
    }
    return memory;
}

UcxDispatch::UcxDispatch(const WindowLayout& layout,
                         std::unique_ptr<UcxEnd> end,
                         std::unique_ptr<Memory> memory)
    : DispatchTransport(
          layout, end->index(), memory->window.get(), end->memory(), mirrors_of(*memory)),
      asked_ids_(layout.geometry.slots_per_micro_batch()),
      memory_(std::move(memory)),
      rounds_(*end, end->index(), layout.geometry, std::move(memory_->words)),
      end_(std::move(end)) {}

UcxDispatch::~UcxDispatch() {
    end_->stop();
}

std::vector<RankMirror> UcxDispatch::mirrors_of(const Memory& memory) {
    std::vector<RankMirror> mirrors;
    for (const Rank& rank : memory.ranks) {
        mirrors.push_back({{rank.published.data(), 1}, rank.acknowledged.data()});
    }
    return mirrors;
}

void UcxDispatch::put_row(uint32_t rank,
                          uint32_t micro_batch,
                          uint32_t token_idx,
                          uint32_t k,
                          std::span<const std::byte> row) {
    assert_row(rank, micro_batch, token_idx, k, row.size());
    memory_->ranks[rank].lanes[micro_batch].outbox->add(
        static_cast<uint32_t>(layout().slot(token_idx, k)), row);
}

void UcxDispatch::publish(uint32_t rank,
                          uint32_t micro_batch,
                          int32_t layer_id,
                          std::span<const int32_t> ids,
                          int32_t round) {
    assert_publication(rank, micro_batch, ids, round);
    Rank& to = memory_->ranks[rank];
    Lane& lane = to.lanes[micro_batch];
    UcxHeader header{};
    header.kind = UcxKind::kDescriptor;
    header.micro_batch = micro_batch;
    header.round = round;
    header.layer_id = layer_id;
    const UcxWorker::Lock held = end_->lock();
    header.number = ++lane.sent;
    // Before it is sent: what answers it is judged by this word.
    publish_release(to.published[micro_batch], round);
    lane.is_own = true;
    end_->send(rank, lane.outbox->seal(header, std::as_bytes(ids.first(num_meant(ids)))));
}

// Of a round that is not its own nothing is stored anyway. Other micro-batches lose the connection,
// too, and send again what they have open there (R15).
void UcxDispatch::fence(uint32_t rank, uint32_t micro_batch) {
    assert_descriptor(rank, micro_batch);
    const UcxWorker::Lock held = end_->lock();
    Rank& to = memory_->ranks[rank];
    Lane& lane = to.lanes[micro_batch];
    if (!lane.is_own) return;
    lane.is_own = false;
    publish_seq_cst(to.published[micro_batch], kUnknownFlag);
    end_->renew(rank);
}

Result<std::unique_ptr<TwoPhaseDispatchTransport>> UcxDispatch::two_phase() {
    return rounds_.make_transport();
}

void UcxDispatch::read_welcome(uint32_t rank, std::span<const int32_t> words) {
    Rank& from = memory_->ranks[rank];
    const size_t num_lanes = from.lanes.size();
    for (size_t m = 0; m < num_lanes; ++m) {
        Lane& lane = from.lanes[m];
        if (!lane.is_own) {
            lane.outbox->release();
            // R16: taken over. The acknowledgement first, so that no look finds a flag that a word
            // of another time carries.
            publish_seq_cst(from.acknowledged[m], words[num_lanes + m]);
            publish_seq_cst(from.published[m], words[m]);
            continue;
        }
        // R15: the rank may have lost it with its process or with the connection; if it has it, it
        // sends the results again.
        const int32_t round = observe_own(from.published[m]);
        if (carries_round(observe_own(from.acknowledged[m]), round)) continue;
        end_->send(rank, *lane.outbox->kept_for_another_send());
    }
}

void UcxDispatch::on_open(uint32_t rank) {
    for (Lane& lane : memory_->ranks[rank].lanes) lane.taken = 0;
    rounds_.on_open(rank);
}

bool UcxDispatch::on_message(uint32_t rank,
                             const UcxHeader& header,
                             std::span<const std::byte> payload) {
    if (header.kind == UcxKind::kWords || header.kind == UcxKind::kBlock) {
        return rounds_.on_message(rank, header, payload);
    }
    const Geometry& geometry = layout().geometry;
    if (header.kind != UcxKind::kResults || header.micro_batch >= geometry.num_micro_batches) {
        return false;
    }
    Rank& from = memory_->ranks[rank];
    Lane& lane = from.lanes[header.micro_batch];
    int32_t& acknowledged = from.acknowledged[header.micro_batch];
    // R14: sent twice, as R15 has it when the rank acknowledged while the descriptor was on its way
    // once more. The rows may be being read, their slots be another rank's, or later rounds of the
    // lane be published or even acknowledged by now.
    if (header.number <= lane.taken) return true;
    if (carries_round(header.round, round_of(observe_own(acknowledged)))) return true;
    if (!carries_round(header.round, observe_own(from.published[header.micro_batch]))) return false;
    // It answers what it cannot have read.
    if (lane.outbox->is_clogged()) return false;
    const UcxRecords records(
        header, payload, geometry.ffn_to_attn_token_bytes, geometry.slots_per_micro_batch());
    if (!records.is_valid() || !records.tail().empty()) return false;
    if (lane.is_own && !store_results(lane, header, records)) return false;
    lane.outbox->release();
    lane.taken = header.number;
    publish_seq_cst(acknowledged, header.round);
    end_->ring_own();
    return true;
}

bool UcxDispatch::store_results(const Lane& lane,
                                const UcxHeader& header,
                                const UcxRecords& records) {
    const Geometry& geometry = layout().geometry;
    std::vector<int32_t>& ids = asked_ids_;
    unpack_ids(lane.outbox->kept_tail(), ids);
    // All of it is judged before any of it is stored.
    for (uint32_t i = 0; i < records.size(); ++i) {
        const uint32_t slot = records.record(i).slot;
        const uint32_t first = slot - slot % geometry.selected_expert_num;
        // Its own slots, and those of tokens that are offered to every rank.
        if (ids[slot] == kMaskedId && !is_offered_id(ids[first])) return false;
    }
    const int32_t round = round_of(header.round);
    for (uint32_t i = 0; i < records.size(); ++i) {
        const UcxRecord record = records.record(i);
        const uint32_t token_idx = record.slot / geometry.selected_expert_num;
        const uint32_t k = record.slot % geometry.selected_expert_num;
        int32_t& flag = *words_at(memory_->window.get(),
                                  layout().result_flag_offset(header.micro_batch, token_idx, k));
        if (carries_round(observe_own(flag), round)) continue;
        if (record.bytes == UcxRecord::kRefused) {
            publish_release(flag, refused_mark(round));
            continue;
        }
        std::memcpy(
            memory_->window.get() + layout().result_row_offset(header.micro_batch, token_idx, k),
            records.row(i),
            record.bytes);
        publish_release(flag, round);
    }
    return true;
}

}  // namespace afd::schedule

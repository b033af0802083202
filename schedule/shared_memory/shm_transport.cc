// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/shm_transport.h"

#include <cstring>
#include <utility>

#include "proto/crash_point.h"
#include "schedule/layout/round.h"
#include "schedule/shared_memory/shm_two_phase.h"

namespace afd::schedule {
namespace {

std::vector<RankMirror> mirrors(const WindowLayout& layout,
                                uint32_t session,
                                const ShmPeers& ranks) {
    std::vector<RankMirror> made;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        // The original instead of a copy: the peer's memory is mapped, and a mirror of its own
        // would be one more thing that can be stale.
        made.push_back({{words_at(ranks.window(rank), layout.descriptor_offset(session, 0)),
                         layout.ffn_window.descriptor_bytes / sizeof(int32_t)},
                        words_at(ranks.control(rank), layout.acknowledged_offset(session, 0))});
    }
    return made;
}

template <typename Own, typename Peer>
Result<std::unique_ptr<TwoPhaseTransport<Own, Peer>>> attach_two_phase(const Endpoint& end,
                                                                       const ShmPeers& peers) {
    using Shm = ShmTwoPhase<Own, Peer>;
    AFD_ASSIGN(std::unique_ptr<Shm> made,
               Shm::attach(peers.config(), end.index(), peers.ringers()));
    return std::unique_ptr<TwoPhaseTransport<Own, Peer>>(std::move(made));
}

}  // namespace

Result<std::unique_ptr<ShmDispatchTransport>> ShmDispatchTransport::attach(
    const AttachConfig& config, uint32_t session) {
    AFD_ASSIGN(ShmPeers ranks, ShmPeers::attach(config, Role::kAttention, session));
    return std::make_unique<ShmDispatchTransport>(config.layout, session, std::move(ranks));
}

ShmDispatchTransport::ShmDispatchTransport(const WindowLayout& layout,
                                           uint32_t session,
                                           ShmPeers ranks)
    : DispatchTransport(
          layout, session, ranks.own_window(), ranks.own(), mirrors(layout, session, ranks)),
      ranks_(std::move(ranks)) {}

void ShmDispatchTransport::put_row(uint32_t rank,
                                   uint32_t micro_batch,
                                   uint32_t token_idx,
                                   uint32_t k,
                                   std::span<const std::byte> row) {
    assert_row(rank, micro_batch, token_idx, k, row.size());
    std::memcpy(
        ranks_.window(rank) + layout().token_row_offset(session(), micro_batch, token_idx, k),
        row.data(),
        row.size());
    AFD_CRASH_POINT("dispatch.row_stored");
}

void ShmDispatchTransport::publish(uint32_t rank,
                                   uint32_t micro_batch,
                                   int32_t layer_id,
                                   std::span<const int32_t> ids,
                                   int32_t round) {
    assert_publication(rank, micro_batch, ids, round);
    int32_t* words =
        words_at(ranks_.window(rank), layout().descriptor_offset(session(), micro_batch));
    // R2: ids and layer are plain stores, ordered by the flag behind them. All BS · K1 ids are
    // written, masked ones too (R6).
    std::memcpy(words + kDescriptorIdsWord, ids.data(), ids.size_bytes());
    AFD_CRASH_POINT("dispatch.ids_stored");
    words[1] = layer_id;
    publish_seq_cst(words[0], round);
    AFD_CRASH_POINT("dispatch.flag_stored");
    // After the flag, both seq_cst: either this look finds the word armed or the sleeper's look
    // finds the flag (R9).
    ranks_.ring_if_armed(rank);
}

Result<std::unique_ptr<TwoPhaseDispatchTransport>> ShmDispatchTransport::two_phase() {
    return attach_two_phase<TwoPhaseSessionWords, TwoPhaseRankWords>(*this, ranks_);
}

Result<std::unique_ptr<ShmReturnTransport>> ShmReturnTransport::attach(const AttachConfig& config,
                                                                       uint32_t rank) {
    AFD_ASSIGN(ShmPeers sessions, ShmPeers::attach(config, Role::kFfn, rank));
    return std::make_unique<ShmReturnTransport>(config.layout, rank, std::move(sessions));
}

ShmReturnTransport::ShmReturnTransport(const WindowLayout& layout, uint32_t rank, ShmPeers sessions)
    : ReturnTransport(layout, rank, sessions.own_window(), sessions.own()),
      sessions_(std::move(sessions)) {}

int32_t* ShmReturnTransport::result_flag(uint32_t session,
                                         uint32_t micro_batch,
                                         uint32_t token_idx,
                                         uint32_t k) const {
    return words_at(sessions_.window(session),
                    layout().result_flag_offset(micro_batch, token_idx, k));
}

void ShmReturnTransport::put_result(uint32_t session,
                                    uint32_t micro_batch,
                                    uint32_t token_idx,
                                    uint32_t k,
                                    std::span<const std::byte> row,
                                    int32_t round) {
    assert_result(session, micro_batch, token_idx, k, row.size(), round);
    int32_t* flag = result_flag(session, micro_batch, token_idx, k);
    // R3: a predecessor put this row already, and the session may be reading it. Even the same bits
    // a second time would race with that.
    if (carries_round(observe(*flag, Order::kAcquire), round)) return;
    std::memcpy(sessions_.window(session) + layout().result_row_offset(micro_batch, token_idx, k),
                row.data(),
                row.size());
    AFD_CRASH_POINT("return.row_stored");
    // Release and not seq_cst, no ring: sessions sleep on acknowledgements, and a locked store for
    // each row would be paid some hundred times a round.
    publish_release(*flag, round);
    AFD_CRASH_POINT("return.flag_stored");
}

void ShmReturnTransport::put_refusal(
    uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k, int32_t round) {
    assert_result(session, micro_batch, token_idx, k, 0, round);
    int32_t* flag = result_flag(session, micro_batch, token_idx, k);
    if (carries_round(observe(*flag, Order::kAcquire), round)) return;
    publish_release(*flag, refused_mark(round));
    AFD_CRASH_POINT("refuse.slot_marked");
}

void ShmReturnTransport::acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) {
    // The sessions' mirror of this word is the word itself.
    publish_seq_cst(acknowledged_word(session, micro_batch), round);
    AFD_CRASH_POINT("acknowledge.word_stored");
    sessions_.ring_if_armed(session);
}

Result<std::unique_ptr<TwoPhaseReturnTransport>> ShmReturnTransport::two_phase() {
    return attach_two_phase<TwoPhaseRankWords, TwoPhaseSessionWords>(*this, sessions_);
}

Result<std::unique_ptr<ShmEndpoint>> ShmEndpoint::attach(const AttachConfig& config,
                                                         uint32_t session) {
    AFD_ASSIGN(ShmPeers nobody, ShmPeers::attach(config, Role::kAttention, session));
    return std::unique_ptr<ShmEndpoint>(new ShmEndpoint(session, std::move(nobody)));
}

ShmEndpoint::ShmEndpoint(uint32_t session, ShmPeers nobody)
    : Endpoint(session, nobody.own()), nobody_(std::move(nobody)) {}

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#include "schedule/transport/transport.h"

#include <cstring>
#include <utility>

#include "proto/check.h"

namespace afd::schedule {
namespace {

void assert_slot(const Geometry& geometry, uint32_t micro_batch, uint32_t token_idx, uint32_t k) {
    // Always on, also in a release build: an index outside would be written into a peer's memory.
    AFD_ASSERT(micro_batch < geometry.num_micro_batches && token_idx < geometry.micro_batch_size &&
                   k < geometry.selected_expert_num,
               "slot [%u][%u][%u] of a window of [%u][%u][%u]",
               micro_batch,
               token_idx,
               k,
               geometry.num_micro_batches,
               geometry.micro_batch_size,
               geometry.selected_expert_num);
}

}  // namespace

DispatchTransport::DispatchTransport(const WindowLayout& layout,
                                     uint32_t session,
                                     const std::byte* window,
                                     const EndpointMemory& own,
                                     std::vector<RankMirror> ranks)
    : Endpoint(session, own), layout_(layout), window_(window), ranks_(std::move(ranks)) {
    AFD_ASSERT(ranks_.size() == layout.geometry.num_ffn_workers &&
                   own.peer_heartbeats.size() == ranks_.size() &&
                   session < layout.geometry.num_sessions,
               "session %u of %u, %zu mirrors and %zu heartbeats for %u FFN workers",
               session,
               layout.geometry.num_sessions,
               ranks_.size(),
               own.peer_heartbeats.size(),
               layout.geometry.num_ffn_workers);
}

void DispatchTransport::assert_descriptor(uint32_t rank, uint32_t micro_batch) const {
    AFD_ASSERT(rank < ranks_.size() && micro_batch < layout_.geometry.num_micro_batches,
               "descriptor of rank %u of %zu, micro-batch %u of %u",
               rank,
               ranks_.size(),
               micro_batch,
               layout_.geometry.num_micro_batches);
}

void DispatchTransport::assert_publication(uint32_t rank,
                                           uint32_t micro_batch,
                                           std::span<const int32_t> ids,
                                           int32_t round) const {
    assert_descriptor(rank, micro_batch);
    AFD_ASSERT(ids.size() == layout_.geometry.slots_per_micro_batch() && round > 0,
               "%zu ids, round %d",
               ids.size(),
               round);
}

void DispatchTransport::fence(uint32_t rank, uint32_t micro_batch) {
    AFD_ASSERT(false, "rank %u, micro-batch %u: ranks store here themselves", rank, micro_batch);
}

void DispatchTransport::assert_row(
    uint32_t rank, uint32_t micro_batch, uint32_t token_idx, uint32_t k, size_t row_bytes) const {
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    AFD_ASSERT(rank < ranks_.size() && row_bytes <= layout_.geometry.attn_to_ffn_token_bytes,
               "row of %zu bytes to rank %u of %zu; HS is %u",
               row_bytes,
               rank,
               ranks_.size(),
               layout_.geometry.attn_to_ffn_token_bytes);
}

int32_t DispatchTransport::descriptor_flag(uint32_t rank, uint32_t micro_batch) const {
    assert_descriptor(rank, micro_batch);
    return ranks_[rank].descriptors.own_at(micro_batch);
}

int32_t DispatchTransport::acknowledged(uint32_t rank, uint32_t micro_batch, Order order) const {
    assert_descriptor(rank, micro_batch);
    return observe(ranks_[rank].acknowledged[micro_batch], order);
}

const int32_t* DispatchTransport::result_flags(uint32_t micro_batch) const {
    assert_slot(layout_.geometry, micro_batch, 0, 0);
    return words_at(window_, layout_.result_flag_offset(micro_batch, 0, 0));
}

std::span<const std::byte> DispatchTransport::result_row(uint32_t micro_batch,
                                                         uint32_t token_idx,
                                                         uint32_t k) const {
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    return {window_ + layout_.result_row_offset(micro_batch, token_idx, k),
            layout_.geometry.ffn_to_attn_token_bytes};
}

ReturnTransport::ReturnTransport(const WindowLayout& layout,
                                 uint32_t rank,
                                 const std::byte* window,
                                 const EndpointMemory& own)
    : Endpoint(rank, own), layout_(layout), window_(window) {
    AFD_ASSERT(own.peer_heartbeats.size() == layout.geometry.num_sessions &&
                   rank < layout.geometry.num_ffn_workers,
               "rank %u of %u, %zu heartbeats for %u sessions",
               rank,
               layout.geometry.num_ffn_workers,
               own.peer_heartbeats.size(),
               layout.geometry.num_sessions);
}

void ReturnTransport::assert_result(uint32_t session,
                                    uint32_t micro_batch,
                                    uint32_t token_idx,
                                    uint32_t k,
                                    size_t row_bytes,
                                    int32_t round) const {
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    AFD_ASSERT(session < layout_.geometry.num_sessions && round > 0 &&
                   row_bytes <= layout_.geometry.ffn_to_attn_token_bytes,
               "session %u of %u, round %d, row of %zu bytes; HS' is %u",
               session,
               layout_.geometry.num_sessions,
               round,
               row_bytes,
               layout_.geometry.ffn_to_attn_token_bytes);
}

const int32_t* ReturnTransport::descriptor(uint32_t session, uint32_t micro_batch) const {
    AFD_ASSERT(
        session < layout_.geometry.num_sessions && micro_batch < layout_.geometry.num_micro_batches,
        "descriptor of session %u of %u, micro-batch %u of %u",
        session,
        layout_.geometry.num_sessions,
        micro_batch,
        layout_.geometry.num_micro_batches);
    return words_at(window_, layout_.descriptor_offset(session, micro_batch));
}

DescriptorFlags ReturnTransport::descriptor_flags() const {
    // Descriptors of all sessions lie behind each other, so one stride leads through [A][M].
    return {descriptor(0, 0), layout_.ffn_window.descriptor_bytes / sizeof(int32_t)};
}

int32_t& ReturnTransport::acknowledged_word(uint32_t session, uint32_t micro_batch) const {
    AFD_ASSERT(
        session < layout_.geometry.num_sessions && micro_batch < layout_.geometry.num_micro_batches,
        "acknowledgement of session %u, micro-batch %u",
        session,
        micro_batch);
    void* word = own_control().base() + layout_.acknowledged_offset(session, micro_batch);
    return *static_cast<int32_t*>(word);
}

int32_t ReturnTransport::acknowledged(uint32_t session, uint32_t micro_batch) const {
    return observe_own(acknowledged_word(session, micro_batch));
}

int32_t ReturnTransport::layer_id(uint32_t session, uint32_t micro_batch) const {
    int32_t layer_id = 0;
    // A plain copy beside another process's store is allowed only while that process keeps R4. If
    // it does not, the value is torn, judged by range like any other, and costs that session.
    std::memcpy(&layer_id, descriptor(session, micro_batch) + 1, sizeof(layer_id));
    return layer_id;
}

void ReturnTransport::copy_ids(uint32_t session,
                               uint32_t micro_batch,
                               std::span<int32_t> ids) const {
    AFD_ASSERT(ids.size() == layout_.geometry.slots_per_micro_batch(), "%zu ids", ids.size());
    std::memcpy(
        ids.data(), descriptor(session, micro_batch) + kDescriptorIdsWord, ids.size_bytes());
}

const std::byte* ReturnTransport::token_row(uint32_t session,
                                            uint32_t micro_batch,
                                            uint32_t token_idx,
                                            uint32_t k) const {
    AFD_ASSERT(session < layout_.geometry.num_sessions,
               "session %u of %u",
               session,
               layout_.geometry.num_sessions);
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    return window_ + layout_.token_row_offset(session, micro_batch, token_idx, k);
}

}  // namespace afd::schedule

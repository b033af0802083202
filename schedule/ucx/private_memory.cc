// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/private_memory.h"

#include <algorithm>

#include "proto/failure.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/near/near_link.h"
#include "schedule/shared_memory/memory_room.h"
#include "schedule/ucx/ucx_memory.h"
#include "schedule/ucx/ucx_outbox.h"

namespace afd::schedule {

namespace {

// Of the largest that a worker of the role sends.
uint64_t publication_bytes(const Geometry& geometry, Role role) {
    const uint64_t num_slots = geometry.slots_per_micro_batch();
    if (role == Role::kFfn) {
        return UcxOutbox::bytes_max(geometry.ffn_to_attn_token_bytes, num_slots, 0);
    }
    return UcxOutbox::bytes_max(
        geometry.attn_to_ffn_token_bytes, num_slots, num_slots * sizeof(int32_t));
}

}  // namespace

uint64_t private_bytes(const WindowLayout& layout, Role role) {
    const Geometry& geometry = layout.geometry;
    const bool is_ffn = role == Role::kFfn;
    const uint64_t num_peers = is_ffn ? geometry.num_sessions : geometry.num_ffn_workers;
    const uint64_t kept_bytes = ucx_memory_bytes(publication_bytes(geometry, role));
    const auto two_phase = TwoPhaseControlLayout::compute(geometry);
    const uint64_t words_bytes = ucx_memory_bytes(num_peers * two_phase.session_stripe_bytes) +
                                 ucx_memory_bytes(num_peers * two_phase.rank_stripe_bytes);
    const uint64_t window_bytes =
        is_ffn ? layout.ffn_window.total_bytes : layout.attention_window.total_bytes;
    return ucx_memory_bytes(window_bytes) + num_peers * geometry.num_micro_batches * kept_bytes +
           words_bytes;
}

Result<> check_publication_bytes(const WindowLayout& layout) {
    const uint64_t bytes = std::max(publication_bytes(layout.geometry, Role::kAttention),
                                    publication_bytes(layout.geometry, Role::kFfn));
    if (bytes <= NearLink::kPayloadBytesMax) return {};
    return invalid_argument(
        "micro_batch_size = {}: with transport = 'ucx' the rows of a micro-batch are one message, "
        "of {} bytes here, and it may have {}; lower micro_batch_size",
        with(layout.geometry.micro_batch_size, bytes, NearLink::kPayloadBytesMax));
}

Result<> check_private_room(const std::string& what, uint64_t size_bytes) {
    return check_memory_room(what,
                             size_bytes,
                             "lower attention_workers, ffn_workers, micro_batches or "
                             "micro_batch_size, or run workers on more hosts");
}

}  // namespace afd::schedule

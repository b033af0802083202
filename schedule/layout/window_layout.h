// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowLayout: every offset and total size of every segment, computed by one function.
//
// Creator, writers, readers and tests all take their numbers from here; docs/wire.md is the same
// in words. Offsets and sizes are in bytes and count from the start of their segment.
//
//   FFN window         0                 token info   int32 [A][M][2 + BS*K1]: flag, layer_id, ids
//                      data_offset       token data   [A][M][BS][K1][HS]
//   attention window   0                 token info   int32 [M][BS][K1]: flags
//                      data_offset       token data   [M][BS][K1][HS']
//   control (both)     0                 ScheduleContext (1024)
//                      1024              SegmentHeader (512), written once by the creator
//                      1536              doorbell: armed word, one line
//                      1664              heartbeat, one line
//   FFN control only   2048              acknowledged rounds int32 [A][M], a session's row padded
//                                        to whole lines: its poller is not disturbed by others
//                      then              executions uint64 [A][M] (execution_log.h)
//                      then              layer_ids, session_ids, micro_batch_ids int32 [A],
//                                        expert_ids int32 [A][BS][K1]
//   metrics            metrics_layout.h
//
// Invariants: (1) data_offset is the info size rounded up to 512. (2) In our own structures words
// with different writers never share a line of 128 bytes (adjacent-line prefetch pairs two of
// 64). (3) Regions of a segment are ascending and disjoint.

#include <cstddef>
#include <cstdint>

#include "proto/status.h"
#include "schedule/layout/geometry.h"

namespace afd::schedule {

inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kHeaderOffset = 1024;
inline constexpr uint64_t kHeaderBytes = 512;
inline constexpr uint64_t kDoorbellOffset = kHeaderOffset + kHeaderBytes;
inline constexpr uint64_t kHeartbeatOffset = kDoorbellOffset + kLineBytes;
inline constexpr uint64_t kControlCommonBytes = 2048;
static_assert(kHeartbeatOffset + kLineBytes <= kControlCommonBytes);

// Words in front of the ids of a descriptor: flag and layer_id.
inline constexpr uint64_t kDescriptorIdsWord = 2;

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

struct FfnWindowLayout {
    uint64_t descriptor_bytes = 0;  // 4 * (2 + BS * K1)
    uint64_t info_bytes = 0;
    uint64_t data_offset = 0;
    uint64_t data_bytes = 0;
    uint64_t total_bytes = 0;
};

struct AttentionWindowLayout {
    uint64_t info_bytes = 0;
    uint64_t data_offset = 0;
    uint64_t data_bytes = 0;
    uint64_t total_bytes = 0;
};

struct FfnControlLayout {
    uint64_t acknowledged_offset = 0;
    uint64_t acknowledged_row_bytes = 0;  // Of one session: 4 * M rounded up to a line.
    uint64_t executions_offset = 0;
    uint64_t executions_bytes = 0;  // 8 * A * M
    uint64_t layer_ids_offset = 0;
    uint64_t session_ids_offset = 0;
    uint64_t micro_batch_ids_offset = 0;
    uint64_t per_session_bytes = 0;  // Size of each of the three buffers above: 4 * A.
    uint64_t expert_ids_offset = 0;
    uint64_t expert_ids_bytes = 0;
    uint64_t total_bytes = 0;
};

struct WindowLayout {
    Geometry geometry;
    FfnWindowLayout ffn_window;
    FfnControlLayout ffn_control;
    AttentionWindowLayout attention_window;
    uint64_t attention_control_bytes = 0;
    uint64_t attention_metrics_bytes = 0;
    uint64_t ffn_metrics_bytes = 0;

    // Errors: those of validate(geometry).
    static Result<WindowLayout> compute(const Geometry& geometry);

    // In an FFN window. REQUIRES of all offsets below: every index is inside the geometry.
    // The descriptor's flag; layer_id follows at + 4, the ids at + 8.
    uint64_t descriptor_offset(uint32_t session, uint32_t micro_batch) const {
        return (uint64_t{session} * geometry.num_micro_batches + micro_batch) *
               ffn_window.descriptor_bytes;
    }
    uint64_t token_row_offset(uint32_t session,
                              uint32_t micro_batch,
                              uint32_t token_idx,
                              uint32_t k) const {
        const uint64_t lane = uint64_t{session} * geometry.num_micro_batches + micro_batch;
        return ffn_window.data_offset +
               (lane * geometry.slots_per_micro_batch() + slot(token_idx, k)) *
                   geometry.attn_to_ffn_token_bytes;
    }

    // In an attention window.
    uint64_t result_flag_offset(uint32_t micro_batch, uint32_t token_idx, uint32_t k) const {
        return (micro_batch * geometry.slots_per_micro_batch() + slot(token_idx, k)) *
               sizeof(int32_t);
    }
    uint64_t result_row_offset(uint32_t micro_batch, uint32_t token_idx, uint32_t k) const {
        return attention_window.data_offset +
               (micro_batch * geometry.slots_per_micro_batch() + slot(token_idx, k)) *
                   geometry.ffn_to_attn_token_bytes;
    }

    // In an FFN control segment.
    uint64_t acknowledged_offset(uint32_t session, uint32_t micro_batch) const {
        return ffn_control.acknowledged_offset + session * ffn_control.acknowledged_row_bytes +
               micro_batch * sizeof(int32_t);
    }

    // Index of (token, k) inside a micro-batch.
    uint64_t slot(uint32_t token_idx, uint32_t k) const {
        return uint64_t{token_idx} * geometry.selected_expert_num + k;
    }
};

// The 32-bit words (flags, descriptors) at an offset that a layout gives.
inline int32_t* words_at(std::byte* base, uint64_t offset) {
    return static_cast<int32_t*>(static_cast<void*>(base + offset));
}
inline const int32_t* words_at(const std::byte* base, uint64_t offset) {
    return static_cast<const int32_t*>(static_cast<const void*>(base + offset));
}

}  // namespace afd::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Geometry: the eight numbers from which every window, offset and buffer size follows.
//
// All processes of an instance use one geometry; it is written into every control segment at
// creation and compared at attach. It says nothing about layers, weights or placement.

#include <cstdint>

#include "proto/status.h"

namespace afd::schedule {

inline constexpr uint32_t kSessionsMax = 1024;
inline constexpr uint32_t kMicroBatchesMax = 64;
// 64 routed experts of a token (top_k) and four shared ones.
inline constexpr uint32_t kSelectedExpertsMax = 64 + 4;
inline constexpr uint32_t kFfnWorkersMax = 1024;
// Rows are whole multiples of this many bytes in both windows.
inline constexpr uint32_t kTokenAlignBytes = 512;
// No window is larger: 64 TiB, half of the user address space of a 48-bit machine.
inline constexpr uint64_t kWindowBytesMax = uint64_t{1} << 46;
// What is written for a slot that a descriptor does not use. A reader treats every id outside
// [0, number of local experts) as masked (R6).
inline constexpr int32_t kMaskedId = 2147483647;
// With router = ffn, in slot 0 of a token: its row is here, and the ranks route it themselves. With
// some ranks left out (R12), which do not get it, their bits are subtracted; only the first ranks
// can be.
inline constexpr int32_t kOfferedId = 2147483646;
inline constexpr uint32_t kLeftOutRanksMax = 24;
// All ranks that can be are left out. Local ids are below.
inline constexpr int32_t kLeastOfferedId = kOfferedId - ((1 << kLeftOutRanksMax) - 1);

constexpr int32_t offered_id(uint32_t left_out) {
    return kOfferedId - static_cast<int32_t>(left_out);
}
constexpr bool is_offered_id(int32_t id) {
    return id >= kLeastOfferedId && id <= kOfferedId;
}
// REQUIRES: is_offered_id(id).
constexpr uint32_t left_out_of_offer(int32_t id) {
    return static_cast<uint32_t>(kOfferedId - id);
}
constexpr bool is_left_out(uint32_t left_out, uint32_t rank) {
    return rank < kLeftOutRanksMax && (left_out >> rank & 1u) != 0;
}

struct Geometry {
    uint32_t num_sessions = 0;         // A: attention workers.
    uint32_t num_micro_batches = 0;    // M: in flight per session.
    uint32_t micro_batch_size = 0;     // BS: tokens of a micro-batch, at most.
    uint32_t selected_expert_num = 0;  // K1: top_k, and 1 if shared experts are dispatched.
    uint32_t num_experts = 0;          // Routed of a layer, and 1 if shared ones are dispatched.
    uint32_t attn_to_ffn_token_bytes = 0;  // HS: one row in an FFN window.
    uint32_t ffn_to_attn_token_bytes = 0;  // HS': one row in an attention window.
    uint32_t num_ffn_workers = 0;          // F; 0 when colocated (no windows are used).

    friend bool operator==(const Geometry&, const Geometry&) = default;

    // BS * K1: slots of one micro-batch.
    uint64_t slots_per_micro_batch() const {
        return uint64_t{micro_batch_size} * selected_expert_num;
    }
};

// Checks every limit above, and that the rows of no window exceed kWindowBytesMax (its flags and
// ids come on top); afterwards no product of these numbers that a layout needs can overflow 64
// bits. Errors: kInvalidArgument naming the parameter, its value and what is allowed.
Result<> validate(const Geometry& geometry);

}  // namespace afd::schedule

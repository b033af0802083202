// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/geometry.h"

#include <algorithm>
#include <string>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

Result<> check_range(const char* name, uint32_t value, uint32_t low, uint32_t high) {
    if (value >= low && value <= high) return {};
    return invalid_argument("{} is {}; allowed are {} to {}", with(name, value, low, high));
}

Result<> check_token_bytes(const char* name, uint32_t value) {
    if (value != 0 && value % kTokenAlignBytes == 0) return {};
    return invalid_argument("{} is {}; it must be a positive multiple of {}",
                            with(name, value, kTokenAlignBytes));
}

// Multiplies into `product`; false once it passes kWindowBytesMax.
bool multiply(uint64_t& product, uint64_t factor) {
    return !__builtin_mul_overflow(product, factor, &product) && product <= kWindowBytesMax;
}

}  // namespace

Result<> validate(const Geometry& geometry) {
    // Numbers travel as int32 in descriptors and messages, so none may need the 32nd bit.
    constexpr uint32_t kAny = 0x7fffffff;
    AFD_TRY(check_range("num_sessions", geometry.num_sessions, 1, kSessionsMax));
    AFD_TRY(check_range("num_micro_batches", geometry.num_micro_batches, 1, kMicroBatchesMax));
    AFD_TRY(check_range("micro_batch_size", geometry.micro_batch_size, 1, kAny));
    AFD_TRY(
        check_range("selected_expert_num", geometry.selected_expert_num, 1, kSelectedExpertsMax));
    AFD_TRY(check_range("num_experts", geometry.num_experts, 1, kAny));
    AFD_TRY(check_range("num_ffn_workers", geometry.num_ffn_workers, 0, kFfnWorkersMax));
    AFD_TRY(check_token_bytes("attn_to_ffn_token_bytes", geometry.attn_to_ffn_token_bytes));
    AFD_TRY(check_token_bytes("ffn_to_attn_token_bytes", geometry.ffn_to_attn_token_bytes));

    // Token data is the largest product: a row has at least 512 bytes, its id 4, its flag 4.
    uint64_t bytes = std::max(geometry.attn_to_ffn_token_bytes, geometry.ffn_to_attn_token_bytes);
    if (!multiply(bytes, geometry.micro_batch_size) ||
        !multiply(bytes, geometry.selected_expert_num) ||
        !multiply(bytes, geometry.num_micro_batches) || !multiply(bytes, geometry.num_sessions)) {
        return invalid_argument(
            "a window of num_sessions {} * num_micro_batches {} * micro_batch_size {} * "
            "selected_expert_num {} rows exceeds {} bytes; lower one of them",
            with(geometry.num_sessions,
                 geometry.num_micro_batches,
                 geometry.micro_batch_size,
                 geometry.selected_expert_num,
                 kWindowBytesMax));
    }
    return {};
}

}  // namespace afd::schedule

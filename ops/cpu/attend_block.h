// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of attention are called with (ops/cpu/kernels.h): the state of some heads, and a
// block of positions that they attend to.

#include <algorithm>
#include <cstddef>
#include <span>

#include "ops/cpu/quantised_rows.h"
#include "ops/format/attention_batch.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {

// So few heads of keys of their own are done before memory is, and fetch close ahead of their own
// reads.
inline constexpr size_t kNearHeads = 2;

// Most heads of one HeadsState.
inline constexpr size_t kHeadsMax = 16;

// Attention of some heads that share their keys, of one token or of several: begin_heads,
// attend_block for every block of positions, finish_heads. In between, the arrays hold what the
// class wants to find there. The words are those of latent attention
// (ops/attention/mla_attention.h); with grouped heads (ops/attention/gqa_attention.h) `latent` is
// the head's width, `rope` 0, and values are apart.
struct HeadsState {
    size_t num_heads = 0;  // 1 ... kHeadsMax
    size_t latent = 0;
    size_t rope = 0;
    size_t o_stride = 0;       // latent rounded up to 32
    Bf16* query = nullptr;     // query_elements(latent, rope)
    float* scores = nullptr;   // [kHeadsMax · kAttentionBlock]
    Bf16* p = nullptr;         // [kHeadsMax · kAttentionBlock]
    float* o = nullptr;        // [num_heads][o_stride]
    float* maximum = nullptr;  // [kHeadsMax], as the next two
    float* sum = nullptr;
    float* alpha = nullptr;
};

// Heads are padded to kHeadsMax, and elements to sixteen floats.
constexpr size_t query_width(size_t count) {
    return (count + 15) / 16 * 16;
}
constexpr size_t query_elements(size_t latent, size_t rope) {
    constexpr size_t kFloat = sizeof(float) / sizeof(Bf16);
    return kHeadsMax * (query_width(latent) + query_width(rope)) * kFloat;
}

struct HeadQueries {
    const Bf16* query = nullptr;       // [num_heads][latent]
    const Bf16* query_rope = nullptr;  // [num_heads][rope]
    // [num_heads]: a score of each head that no position has; null: none. begin_heads() leaves them
    // alone (ops/attention/head_attention.h).
    const float* sinks = nullptr;
};

// Heads of one state, and how many of a block's positions they attend to, from its first one on.
struct HeadsSpan {
    const HeadsState* state = nullptr;
    size_t first_head = 0;
    size_t last_head = 0;  // One behind.
    size_t num_positions = 0;
};
inline constexpr size_t kHeadsSpansMax = kAttentionBlock;  // Of one call.

// At most kAttentionBlock consecutive positions, and the heads of the state that attend to them;
// the others keep what they have.
struct AttendBlock {
    size_t first_head = 0;
    size_t last_head = kHeadsMax;  // One behind; the state's last one at most.
    const Bf16* ckv = nullptr;     // [num_positions][latent]; with keys_in_pairs see there.
    const Bf16* kr = nullptr;      // [num_positions][rope]
    // What is summed, [num_positions][latent]; null: ckv itself.
    const Bf16* values = nullptr;
    size_t num_positions = 0;  // 1 ... kAttentionBlock
    float scale = 1.0f;
    bool is_cold = false;  // No block named it as its next.
    // ckv and next_ckv are KeyOrder::kPairs (ops/format/gqa_cache.h), from the pair of the first
    // position on, rope is 0 and values are apart. For Kernels::key_pair_heads.
    bool keys_in_pairs = false;
    // The rows that will be asked for next, num_next of each, to be fetched meanwhile.
    const Bf16* next_ckv = nullptr;
    const Bf16* next_kr = nullptr;
    size_t num_next = 0;
    // What will be asked for behind next_ckv, or instead of it where rows are expanded before the
    // kernels see them, to be fetched meanwhile as far as that goes. Up to kNearHeads heads may
    // leave it alone, and so do blocks that have next_ckv and keys_in_pairs.
    std::span<const std::byte> afterwards{};

    // What to fetch during the sums. With keys in pairs the scores fetch the values, and the sums
    // the next keys: half a block ahead stays in the first-level cache until it is read. These are
    // those of a whole block, since few positions of it are in nearly as many lines; the end may be
    // beyond the array.
    std::span<const std::byte> behind_values(size_t latent) const {
        if (!keys_in_pairs || num_next == 0) return afterwards;
        return std::as_bytes(std::span(next_ckv, kAttentionBlock * latent));
    }
    const Bf16* summed() const { return values != nullptr ? values : ckv; }
    size_t end_of_heads(const HeadsState& state) const {
        return std::min(last_head, state.num_heads);
    }
    // What the span attends to.
    [[gnu::always_inline]] AttendBlock of(const HeadsSpan& span) const {
        AttendBlock block = *this;
        block.first_head = span.first_head;
        block.last_head = span.last_head;
        block.num_positions = span.num_positions;
        return block;
    }
};

// Most heads of a state for Kernels::attend_quantised. With more, products are what takes the time,
// and registers that are expanded between them cost more than an expansion before.
struct QuantisedHeadsMax {
    size_t int8 = 0;
    size_t fp8 = 0;

    constexpr size_t of(KvDtype dtype) const {
        return dtype == KvDtype::kInt8 ? int8 : dtype == KvDtype::kFp8 ? fp8 : 0;
    }
};

// The same of a block of a quantised cache with keys in KeyOrder::kPairs, for all heads of a state.
struct QuantisedBlock {
    KvDtype dtype = KvDtype::kInt8;  // Or kFp8.
    // From the block's first position on. Of either, `next` is what the next block has in its
    // place, to be fetched meanwhile.
    QuantisedKeyPairs keys;  // count: the state's latent
    QuantisedRows values;    // [num_positions]
    // Room for both in bf16, as AttendBlock has them with keys_in_pairs: for scales that only the
    // plain way takes.
    Bf16* keys_room = nullptr;    // [latent / 2][kAttentionBlock][2]
    Bf16* values_room = nullptr;  // [kAttentionBlock][latent]
    size_t num_positions = 0;     // 1 ... kAttentionBlock
    float scale = 1.0f;

    // Whether widths of `latent` may be attended to so: a key has one scale, and columns of values
    // fill registers.
    static constexpr bool takes(size_t latent) { return latent % 32 == 0 && latent <= kKvTile; }
};

// Elements that attend_spans needs to have room for: what is summed of half a block.
constexpr size_t spans_room_elements(size_t latent) {
    return kAttentionBlock / 2 * ((latent + 31) / 32 * 32);
}

}  // namespace afd::ops::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What flows through the fused-MoE framework: the layer's input, and the activations that a
// PrepareFinalize hands to its Experts, in one of three formats (or nowhere, when they left).
//
// Three kinds of expert id are different types: logical (the checkpoint's index, shared expert j at
// num_experts + j), physical (a place of it: rank and local id) and local (index on the worker that
// runs it). Converting one into another is the work of placement and dispatch, never of a cast.

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "ops/experts/grouped_ffn.h"
#include "ops/format/int8_rows.h"
#include "ops/fused_moe/amounts.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

enum class LogicalExpert : int32_t {};
enum class LocalExpert : int32_t {};

// Two places in a micro-batch: a token's row, and one of its slots (routed ones first).
enum class TokenRow : uint32_t {};
enum class SlotIndex : uint32_t {};
enum class RankId : uint32_t {};

// One of the places where a logical expert is.
struct PhysicalExpert {
    RankId rank;
    LocalExpert local;
};

// Where the slot of a token is in an array [num_tokens, num_slots].
constexpr size_t place_of(TokenRow token, SlotIndex slot, size_t num_slots) {
    return static_cast<size_t>(token) * num_slots + static_cast<size_t>(slot);
}

// What a slot is to the process that runs the experts. All but the first add nothing.
enum class AssignmentState : uint8_t {
    kValid,     // A local expert.
    kMasked,    // The router chose none.
    kNonLocal,  // An expert of another process, or of none.
    kPadding,   // The token is none.
};
inline constexpr LocalExpert kMaskedSlot{-1};
inline constexpr LocalExpert kNonLocalSlot{-2};
inline constexpr LocalExpert kPaddingSlot{-3};

constexpr AssignmentState state_of(LocalExpert expert) {
    if (static_cast<int32_t>(expert) >= 0) return AssignmentState::kValid;
    if (expert == kNonLocalSlot) return AssignmentState::kNonLocal;
    return expert == kPaddingSlot ? AssignmentState::kPadding : AssignmentState::kMasked;
}

class DispatchLayout;

// One micro-batch at one layer. A dense layer is a MoeInput whose slot 0 names expert 0 with weight
// 1 while the other slots hold -1, and num_shared is 0.
struct MoeInput {
    Rows<const Bf16> x = {};  // [num_tokens, hidden], normalised rows.
    // What their rounding left (SplitRows in ops/attention/rms_norm.h), for a part that routes; or
    // none.
    Rows<const Bf16> x_middle = {};
    Rows<const Bf16> x_low = {};
    uint32_t layer_id = 0;
    uint32_t num_tokens = 0;
    uint32_t top_k = 0;
    uint32_t num_shared = 0;  // Appended slots top_k + j of every token, weight 1.
    // [num_tokens, top_k] logical, -1 masks a slot; null: not routed yet (needs_routing).
    const int32_t* topk_ids = nullptr;
    // The same as int64: the caller's instead of topk_ids, where the layer was composed for int64
    // ids; a part's beside topk_ids, where its record asks for them. Else null.
    const int64_t* topk_ids_int64 = nullptr;
    // Set by the driver: which array the caller brought. The one of the other dtype is the driver's
    // own, which all calls of a batch share. Null without a driver: topk_ids.
    const void* topk_ids_given = nullptr;
    const float* topk_weights = nullptr;  // [num_tokens, top_k]; null with the ids.
    // The routing's identity, for calls that share a layout (ops/fused_moe/dispatch_layout.h).
    uint64_t ids_generation = 0;  // Of the contents of topk_ids; 0: not named.
    uint64_t placement_epoch = 0;
    const DispatchLayout* layout = nullptr;  // Of an earlier call; null: made for this one.

    uint32_t num_slots() const { return top_k + num_shared; }
    // REQUIRES: topk_ids is given; a routed slot.
    LogicalExpert expert_of(TokenRow token, SlotIndex slot) const {
        return LogicalExpert{topk_ids[place_of(token, slot, top_k)]};
    }
};

// Rows as dispatched: bf16, or quantised to int8 with one scale a row (ops/linear/quantise.h).
struct ActivationRows {
    Rows<const Bf16> bf16 = {};
    Int8Rows int8 = {};  // Instead, where row_scale is given.

    bool is_int8() const { return int8.row_scale != nullptr; }
    size_t num_rows() const { return is_int8() ? int8.values.num_rows : bf16.num_rows; }
    ActivationRows slice(size_t first, size_t count) const {
        if (!is_int8()) return {.bf16 = bf16.slice(first, count)};
        return {.int8 = {int8.values.slice(first, count), int8.row_scale + first}};
    }
};

enum class ActivationFormat : uint8_t {
    kStandard,  // [num_tokens, hidden] with ids per slot; the experts permute.
    kBatched,   // [num_local_experts, max_num_tokens, hidden] with counts; rows above are garbage.
    kGrouped,   // [num_rows, hidden] sorted by expert: the dispatch has permuted already.
};

struct StandardActivations {
    ActivationRows x;  // [num_tokens, hidden]
    uint32_t layer_id = 0;
    uint32_t num_slots = 0;
    const LocalExpert* local_ids = nullptr;  // [num_tokens, num_slots]
    const float* weights = nullptr;          // [num_tokens, num_slots], for experts that reduce.
};

struct BatchedActivations {
    ActivationRows x;  // [num_local_experts · max_num_tokens, hidden]
    uint32_t layer_id = 0;
    size_t num_local_experts = 0;
    Capacity max_num_tokens;                     // Places of one expert.
    const int32_t* expert_num_tokens = nullptr;  // [num_local_experts]

    Count num_tokens_of(size_t expert) const {
        return Count(static_cast<uint64_t>(expert_num_tokens[expert]));
    }
    // Row of an expert's place. REQUIRES: below max_num_tokens.
    size_t row_of(size_t expert, size_t place) const {
        return expert * max_num_tokens.value() + place;
    }
};

// The one format that mixes layers: what a worker of several sessions batches.
struct GroupedActivations {
    ActivationRows x;  // [num_rows, hidden]
    // Keys layer · experts_per_layer + local id, ascending; counts sum up to at most num_rows.
    std::span<const ExpertGroup> groups;
};

// The rows left this process: nothing for a local Experts part to do.
struct RemoteActivations {};

using Activations =
    std::variant<StandardActivations, BatchedActivations, GroupedActivations, RemoteActivations>;

// What Experts produced. Standard: row token·num_slots + slot; Batched: row expert·max_num_tokens +
// place; Grouped: the row of x; reduced by the experts themselves: row token; Remote: no rows.
struct ExpertsOutput {
    Rows<const Bf16> rows;
    // Of the shared stage, row token·num_shared + j; written until finalize.
    Rows<const Bf16> shared = {};
    size_t num_shared = 0;
};

// The rows of a call before they are weighted and summed, for a caller that does both itself
// (FusedMoe::defer). Slot k of token t adds weight(t, k) · rows[row_index[t · num_slots + k]];
// shared slots have weight 1; rows of a shared stage come after them, in `output.shared`.
struct DeferredRows {
    ExpertsOutput output;
    const int32_t* row_index =
        nullptr;     // [num_tokens, num_slots]; negative: the slot adds nothing.
    MoeInput input;  // Whose num_shared are the dispatched ones.
};

}  // namespace afd::ops

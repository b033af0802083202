// SPDX-License-Identifier: Apache-2.0
#pragma once

// Grouped expert FFN: rows sorted by expert key, each through its expert's SwiGLU MLP.
//
//   bf16 and int4 weights:
//   gate = x·Wgateᵀ →bf16, up = x·Wupᵀ →bf16, h = (silu(gate)·up) →bf16, y = h·Wdownᵀ →bf16
//   int8 weights: the same of the quantised x and of the quantised h (ops/weight_format.h)
// A row's bits depend on the row and its expert only. Work is cut by expert and by column panel.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/bf16.h"
#include "ops/fused_moe/stage_profile.h"
#include "ops/int8_rows.h"
#include "ops/linear.h"
#include "ops/parallel.h"
#include "ops/tensor_view.h"
#include "ops/workspace.h"
#include "proto/status.h"

namespace afd::ops {

// One SwiGLU MLP: a routed expert, the shared experts of a layer (one wide MLP) or a dense layer.
// Both matrices may be views (PackedLinear::view); each has its own format.
struct PackedExpert {
    PackedLinear gate_up;  // pack_gate_up, depth = hidden
    PackedLinear down;     // [hidden, intermediate]

    bool empty() const { return gate_up.empty(); }
    size_t intermediate() const { return gate_up.num_outputs() / 2; }
    size_t hidden() const { return down.num_outputs(); }
};

// gate, up [intermediate, hidden], down [hidden, intermediate], as checkpoints store them.
PackedExpert pack_expert(Rows<const Bf16> gate,
                         Rows<const Bf16> up,
                         Rows<const Bf16> down,
                         NumericClass numeric_class);
PackedExpert pack_expert(const Int8Weight& gate,
                         const Int8Weight& up,
                         const Int8Weight& down,
                         NumericClass numeric_class);
PackedExpert pack_expert(const Int4Weight& gate,
                         const Int4Weight& up,
                         const Int4Weight& down,
                         NumericClass numeric_class);

// Expert key -> its MLP. Keys are dense: layer · experts_per_layer + local id; a key may be empty
// (a layer with fewer experts than the others). Each expert has its own intermediate size.
class ExpertTable {
  public:
    ExpertTable() = default;
    ExpertTable(size_t num_keys, size_t hidden) : experts_(num_keys), hidden_(hidden) {}

    // REQUIRES: key < num_keys(); the expert's hidden size is ours.
    void set(size_t key, PackedExpert expert);

    size_t num_keys() const { return experts_.size(); }
    size_t hidden() const { return hidden_; }
    size_t intermediate_max() const { return intermediate_max_; }
    // Whether any expert has int8 weights: its rows are quantised on the way.
    bool has_int8() const { return has_int8_; }
    const PackedExpert& at(size_t key) const { return experts_[key]; }

  private:
    std::vector<PackedExpert> experts_;
    size_t hidden_ = 0;
    size_t intermediate_max_ = 0;
    bool has_int8_ = false;
};

// A row of a group list: FfnWorkerBatching's group_list is an array of these.
struct ExpertGroup {
    int64_t key = 0;
    int64_t count = 0;
};
static_assert(sizeof(ExpertGroup) == 16, "group_list is [expert_num, 2] int64");

struct GroupedFfnRequest {
    const ExpertTable* experts = nullptr;
    std::span<const ExpertGroup> groups;  // Keys ascending; rows follow each other in x.
    Rows<const Bf16> x;                   // [num_rows, hidden], sorted by key
    Int8Rows x_int8 = {};                 // Instead of x, quantised already; gate and up are int8.
    Rows<Bf16> y;                         // out [at least num_rows, hidden]
    // First row of each group in x and y; null: the groups follow each other.
    const int32_t* first_rows = nullptr;
    // Row i of x goes to row row_index[i] of y; null: row i. Rows that no index names are
    // untouched.
    const int32_t* row_index = nullptr;
    StageProfile* profile = nullptr;  // Optional: gets the time of kQuantise, kGemm1 and kGemm2.
};

size_t grouped_ffn_workspace_bytes(const ExpertTable& experts,
                                   size_t num_rows_max,
                                   size_t num_groups_max);

// Errors: kInvalidArgument: a key outside the table or without an expert, keys not ascending,
// counts beyond x, x_int8 for an expert without int8 weights. Rows of y beyond the last group are
// untouched.
Result<void> grouped_ffn(const GroupedFfnRequest& request,
                         std::span<std::byte> workspace,
                         Parallel& parallel);

}  // namespace afd::ops

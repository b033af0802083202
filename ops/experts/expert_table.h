// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedExpert and ExpertTable: the MLPs that grouped_ffn runs, packed, by their keys.
//
// One thread fills a table. From then on nobody changes it, and threads may read it together, as
// those of a grouped_ffn do; with a FirstUse only one grouped_ffn at a time, which FirstUse
// requires. A table owns what was packed for it. The bytes of a view (PackedLinear::view) are
// somebody else's, aligned to kPackedAlignment, and outlive the table, as the table outlives
// whatever was made with it: requests and parts point to it, and nobody may move it under them.

#include <cstddef>
#include <span>
#include <vector>

#include "ops/experts/first_use.h"
#include "ops/format/expert_activation.h"
#include "ops/format/int4_rows.h"
#include "ops/format/numeric_class.h"
#include "ops/format/weight_format.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// One MLP: a routed expert, the shared experts of a layer (one wide MLP) or a dense layer. Both
// matrices may be views (PackedLinear::view); each has its own format. A gated one (is_gated) has
// gate and up in one matrix, an ungated one the gate alone.
struct PackedExpert {
    PackedLinear gate_up;  // pack_gate_up, or pack of the gate; depth = hidden
    PackedLinear down;     // [hidden, intermediate]
    // Of each output in the order of the panels, with zeros behind the last; empty: none.
    std::vector<float> gate_up_bias = {};
    std::vector<float> down_bias = {};
    // [hidden], with int8 weights: what a bf16 row is multiplied by before it is quantised; empty:
    // nothing. Rows that come as int8 have it in them.
    std::vector<float> smooth = {};
    // [hidden]: the expert's result is multiplied by sigmoid(x · output_gate); empty: by nothing.
    std::vector<float> output_gate = {};

    bool empty() const { return gate_up.empty(); }
    size_t intermediate() const { return gate_up.num_outputs() / (gate_up.is_gate_up() ? 2 : 1); }
    size_t hidden() const { return down.num_outputs(); }
    bool has_bias() const { return !gate_up_bias.empty(); }
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
PackedExpert pack_expert(const Fp8Weight& gate,
                         const Fp8Weight& up,
                         const Fp8Weight& down,
                         NumericClass numeric_class);

// The same without up, for ungated activations.
PackedExpert pack_expert(Rows<const Bf16> gate, Rows<const Bf16> down, NumericClass numeric_class);
PackedExpert pack_expert(const Int8Weight& gate,
                         const Int8Weight& down,
                         NumericClass numeric_class);
PackedExpert pack_expert(const Int4Weight& gate,
                         const Int4Weight& down,
                         NumericClass numeric_class);
PackedExpert pack_expert(const Fp8Weight& gate, const Fp8Weight& down, NumericClass numeric_class);

// Added to the fp32 sums of each product (of int8 weights after both scales) before they are
// rounded.
struct ExpertBiasRows {
    std::span<const Bf16> gate;  // [intermediate]
    std::span<const Bf16> up;    // [intermediate]; empty where there is no up projection
    std::span<const Bf16> down;  // [hidden]
};
PackedExpert with_bias(PackedExpert expert, const ExpertBiasRows& bias);

// What depends on sizes and formats alone, of a table whose experts are all alike.
struct ExpertSizes {
    size_t num_keys = 0;
    size_t hidden = 0;
    size_t intermediate = 0;
    WeightFormat format = WeightFormat::kBf16;
    Int4Rows int4_rows = Int4Rows::kBf16;
    ExpertActivation activation = ExpertActivation::kSilu;
    bool has_bias = false;
};

// Expert key -> its MLP, all of one activation. Keys are dense: layer · experts_per_layer + local
// id; a key may be empty, as in a layer with fewer experts than the others. Each expert has its own
// intermediate size; all have a bias or none.
class ExpertTable {
  public:
    ExpertTable() = default;
    ExpertTable(size_t num_keys,
                size_t hidden,
                ExpertActivation activation = ExpertActivation::kSilu)
        : num_keys_(num_keys), experts_(num_keys), hidden_(hidden), activation_(activation) {}

    // A table without experts, for what depends on sizes alone: the workspaces of its users. It
    // takes no memory for its keys.
    static ExpertTable of_sizes(const ExpertSizes& sizes);

    // REQUIRES: key < num_keys(); the expert's hidden size is ours; it is gated as the activation
    // is; it has a bias if the others have one.
    void set(size_t key, PackedExpert expert);

    // with_bias() of an expert that is there. REQUIRES: every expert of the table gets one.
    void set_bias(size_t key, const ExpertBiasRows& bias);

    // REQUIRES: the key has an expert with int8 weights; [hidden].
    void set_smooth(size_t key, std::vector<float> smooth);

    // REQUIRES: the key has an expert; [hidden].
    void set_output_gate(size_t key, std::vector<float> gate);

    // What experts with int4 weights multiply; bf16 if nobody says otherwise. REQUIRES: no
    // workspace was sized yet.
    void set_int4_rows(Int4Rows rows) { int4_rows_ = rows; }

    // Asked before experts are used; null: nobody. It outlives the table.
    void set_first_use(FirstUse* first_use) { first_use_ = first_use; }
    FirstUse* first_use() const { return first_use_; }

    size_t num_keys() const { return num_keys_; }
    size_t hidden() const { return hidden_; }
    ExpertActivation activation() const { return activation_; }
    size_t intermediate_max() const { return intermediate_max_; }
    bool has_int8() const { return has_int8_; }  // Weights, of any expert.
    bool has_smooth() const { return has_smooth_; }
    // Whether rows are quantised on their way into this weight.
    bool takes_int8_rows(const PackedLinear& weight) const {
        return weight.format() == WeightFormat::kInt8 || takes_w4a8_rows(weight);
    }
    // Whether they are arranged, too (ops/format/w4a8_rows.h).
    bool takes_w4a8_rows(const PackedLinear& weight) const {
        return int4_rows_ == Int4Rows::kInt8 && is_int4(weight.format());
    }
    bool has_w4a8_rows() const { return has_int4_ && int4_rows_ == Int4Rows::kInt8; }
    bool has_int8_rows() const { return has_int8_ || has_w4a8_rows(); }
    bool has_bias() const { return has_bias_; }
    bool has_output_gate() const { return has_output_gate_; }
    // That of each key; of a table of sizes there are none.
    std::span<const PackedExpert> experts() const { return experts_; }
    const PackedExpert& at(size_t key) const { return experts_[key]; }

  private:
    size_t num_keys_ = 0;
    std::vector<PackedExpert> experts_;
    FirstUse* first_use_ = nullptr;
    size_t hidden_ = 0;
    ExpertActivation activation_ = ExpertActivation::kSilu;
    size_t intermediate_max_ = 0;
    bool has_int8_ = false;
    bool has_int4_ = false;
    bool has_smooth_ = false;
    Int4Rows int4_rows_ = Int4Rows::kBf16;
    bool has_bias_ = false;
    bool has_output_gate_ = false;
};

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/expert_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/check.h"

namespace afd::ops {
namespace {

PackedExpert checked(PackedExpert expert) {
    AFD_ASSERT(
        expert.down.depth() == expert.intermediate() && expert.hidden() == expert.gate_up.depth(),
        "gate and up [%zu, %zu], down [%zu, %zu]",
        expert.intermediate(),
        expert.gate_up.depth(),
        expert.hidden(),
        expert.down.depth());
    return expert;
}

template <typename Weight>
PackedExpert pack_gated(const Weight& gate,
                        const Weight& up,
                        const Weight& down,
                        NumericClass numeric_class) {
    return checked({PackedLinear::pack_gate_up(gate, up, numeric_class),
                    PackedLinear::pack(down, numeric_class)});
}

template <typename Weight>
PackedExpert pack_ungated(const Weight& gate, const Weight& down, NumericClass numeric_class) {
    return checked(
        {PackedLinear::pack(gate, numeric_class), PackedLinear::pack(down, numeric_class)});
}

// `bias` at columns [first, first + width) of panels whose whole width is kPanelColumns.
void put_bias(std::span<const Bf16> bias, size_t first, size_t width, std::vector<float>& panels) {
    for (size_t n = 0; n < bias.size(); ++n) {
        panels[n / width * kPanelColumns + first + n % width] = to_float(bias[n]);
    }
}

}  // namespace

PackedExpert pack_expert(Rows<const Bf16> gate,
                         Rows<const Bf16> up,
                         Rows<const Bf16> down,
                         NumericClass numeric_class) {
    return pack_gated(gate, up, down, numeric_class);
}

PackedExpert pack_expert(const Int8Weight& gate,
                         const Int8Weight& up,
                         const Int8Weight& down,
                         NumericClass numeric_class) {
    return pack_gated(gate, up, down, numeric_class);
}

PackedExpert pack_expert(const Int4Weight& gate,
                         const Int4Weight& up,
                         const Int4Weight& down,
                         NumericClass numeric_class) {
    return pack_gated(gate, up, down, numeric_class);
}

PackedExpert pack_expert(const Fp8Weight& gate,
                         const Fp8Weight& up,
                         const Fp8Weight& down,
                         NumericClass numeric_class) {
    return pack_gated(gate, up, down, numeric_class);
}

PackedExpert pack_expert(Rows<const Bf16> gate, Rows<const Bf16> down, NumericClass numeric_class) {
    return pack_ungated(gate, down, numeric_class);
}

PackedExpert pack_expert(const Int8Weight& gate,
                         const Int8Weight& down,
                         NumericClass numeric_class) {
    return pack_ungated(gate, down, numeric_class);
}

PackedExpert pack_expert(const Int4Weight& gate,
                         const Int4Weight& down,
                         NumericClass numeric_class) {
    return pack_ungated(gate, down, numeric_class);
}

PackedExpert pack_expert(const Fp8Weight& gate, const Fp8Weight& down, NumericClass numeric_class) {
    return pack_ungated(gate, down, numeric_class);
}

PackedExpert with_bias(PackedExpert expert, const ExpertBiasRows& bias) {
    const size_t num_ups = expert.gate_up.is_gate_up() ? expert.intermediate() : 0;
    AFD_ASSERT(bias.gate.size() == expert.intermediate() && bias.up.size() == num_ups &&
                   bias.down.size() == expert.hidden(),
               "bias of %zu, %zu and %zu for an expert [%zu, %zu] with %zu ups",
               bias.gate.size(),
               bias.up.size(),
               bias.down.size(),
               expert.intermediate(),
               expert.hidden(),
               num_ups);
    // Laid out as the sums of a panel come out, padding included, so that it is added without a
    // look at the column's number.
    const size_t width = num_ups > 0 ? kPanelColumns / 2 : kPanelColumns;
    expert.gate_up_bias.assign(expert.gate_up.num_panels() * kPanelColumns, 0.0f);
    put_bias(bias.gate, 0, width, expert.gate_up_bias);
    put_bias(bias.up, width, width, expert.gate_up_bias);
    expert.down_bias.assign(expert.down.num_panels() * kPanelColumns, 0.0f);
    put_bias(bias.down, 0, kPanelColumns, expert.down_bias);
    return expert;
}

ExpertTable ExpertTable::of_sizes(const ExpertSizes& sizes) {
    ExpertTable table(0, sizes.hidden, sizes.activation);
    table.num_keys_ = sizes.num_keys;
    table.intermediate_max_ = sizes.intermediate;
    table.has_int8_ = sizes.format == WeightFormat::kInt8;
    table.has_int4_ = is_int4(sizes.format);
    table.int4_rows_ = sizes.int4_rows;
    table.has_bias_ = sizes.has_bias;
    return table;
}

void ExpertTable::set(size_t key, PackedExpert expert) {
    AFD_ASSERT(key < experts_.size(), "key %zu of %zu", key, experts_.size());
    AFD_ASSERT(expert.hidden() == hidden_ && expert.gate_up.depth() == hidden_,
               "expert of hidden %zu in a table of %zu",
               expert.hidden(),
               hidden_);
    AFD_ASSERT(expert.down.depth() == expert.intermediate(),
               "intermediate size %zu of gate and up, %zu of down",
               expert.intermediate(),
               expert.down.depth());
    AFD_ASSERT(expert.gate_up.is_gate_up() == is_gated(activation_),
               "key %zu: an expert %s up projection in a table for %s",
               key,
               expert.gate_up.is_gate_up() ? "with" : "without",
               std::string(name_of(activation_)).c_str());
    AFD_ASSERT(intermediate_max_ == 0 || expert.has_bias() == has_bias_,
               "key %zu %s a bias, unlike the others",
               key,
               expert.has_bias() ? "has" : "lacks");
    has_bias_ = expert.has_bias();
    has_smooth_ = has_smooth_ || !expert.smooth.empty();
    intermediate_max_ = std::max(intermediate_max_, expert.intermediate());
    for (const PackedLinear* matrix : {&expert.gate_up, &expert.down}) {
        has_int8_ = has_int8_ || matrix->format() == WeightFormat::kInt8;
        has_int4_ = has_int4_ || is_int4(matrix->format());
    }
    experts_[key] = std::move(expert);
}

void ExpertTable::set_bias(size_t key, const ExpertBiasRows& bias) {
    AFD_ASSERT(key < experts_.size() && !experts_[key].empty(), "no expert %zu", key);
    experts_[key] = with_bias(std::move(experts_[key]), bias);
    has_bias_ = true;
}

void ExpertTable::set_smooth(size_t key, std::vector<float> smooth) {
    AFD_ASSERT(key < experts_.size() && experts_[key].gate_up.format() == WeightFormat::kInt8 &&
                   smooth.size() == hidden_,
               "%zu smooth scales of hidden %zu for key %zu, which must have int8 weights",
               smooth.size(),
               hidden_,
               key);
    experts_[key].smooth = std::move(smooth);
    has_smooth_ = true;
}

void ExpertTable::set_output_gate(size_t key, std::vector<float> gate) {
    AFD_ASSERT(key < experts_.size() && !experts_[key].empty() && gate.size() == hidden_,
               "a gate of %zu for key %zu, hidden %zu",
               gate.size(),
               key,
               hidden_);
    experts_[key].output_gate = std::move(gate);
    has_output_gate_ = true;
}

}  // namespace afd::ops

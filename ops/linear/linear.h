// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedLinear: a weight matrix in the layout of one numeric class, and y = x · Wᵀ.
//
// bf16 and int4 weights: y[i, n] = Σ_k x[i, k] · W[n, k], accumulated in fp32 in one order per
// output, as the numeric class says (ops/format/numeric_class.h). int8 weights: the exact int32 sum
// · row scale · column scale, in that order (ops/format/weight_format.h). So y[i, n] depends on row
// i of x, row n of W and the class, and on nothing else: not on the other rows, their number, or
// the threads.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/format/int8_rows.h"
#include "ops/format/numeric_class.h"
#include "ops/format/packed_shape.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

class PackedLinear {
  public:
    // An absent matrix: empty() holds.
    PackedLinear() = default;

    // Copies `weight` [num_outputs, depth], row-major as checkpoints store it.
    // REQUIRES: supported(numeric_class); num_outputs and depth at least 1, depth of int8 weights
    // at most kInt8DepthMax; values_in_range() of int4 weights.
    static PackedLinear pack(Rows<const Bf16> weight, NumericClass numeric_class);
    static PackedLinear pack(const Int8Weight& weight, NumericClass numeric_class);
    static PackedLinear pack(const Int4Weight& weight, NumericClass numeric_class);

    // Copies a matrix given as [depth, num_outputs].
    static PackedLinear pack_transposed(Rows<const Bf16> weight, NumericClass numeric_class);

    // Packs gate_proj and up_proj, both [intermediate, depth], for swiglu(): each panel holds 16
    // gate columns and the 16 up columns that they meet. num_outputs() is 2 · intermediate.
    static PackedLinear pack_gate_up(Rows<const Bf16> gate,
                                     Rows<const Bf16> up,
                                     NumericClass numeric_class);
    static PackedLinear pack_gate_up(const Int8Weight& gate,
                                     const Int8Weight& up,
                                     NumericClass numeric_class);
    static PackedLinear pack_gate_up(const Int4Weight& gate,
                                     const Int4Weight& up,
                                     NumericClass numeric_class);

    // A matrix over the bytes() of another one of this shape, which somebody else keeps (a mapped
    // file, say) for as long as this lives. Nothing is copied, and nothing that could be checked:
    // any bytes give some matrix. REQUIRES: supported(shape.numeric_class); bytes of
    // shape.size_bytes(), aligned to kPackedAlignment.
    static PackedLinear view(const PackedShape& shape, std::span<const std::byte> bytes);

    bool empty() const { return shape_.num_outputs == 0; }
    const PackedShape& shape() const { return shape_; }
    size_t num_outputs() const { return shape_.num_outputs; }
    size_t depth() const { return shape_.depth; }
    WeightFormat format() const { return shape_.format; }
    NumericClass numeric_class() const { return shape_.numeric_class; }
    bool is_gate_up() const { return shape_.is_gate_up; }
    size_t num_panels() const { return num_panels_; }

    // The packed weights, padding included: what view() takes.
    std::span<const std::byte> bytes() const { return {data_, size_bytes()}; }
    size_t size_bytes() const { return num_panels_ * panel_bytes_; }

    // For the kernels: panel `index` (ops/format/packed_shape.h).
    const std::byte* panel_data(size_t index) const { return data_ + index * panel_bytes_; }
    size_t panel_bytes() const { return panel_bytes_; }

    // The same of a bf16 matrix, in elements.
    const uint16_t* panel(size_t index) const {
        return reinterpret_cast<const uint16_t*>(panel_data(index));
    }
    size_t panel_elements() const { return panel_bytes_ / sizeof(uint16_t); }

  private:
    explicit PackedLinear(const PackedShape& shape);

    // Reserves zeroed storage of our own and returns it.
    std::byte* allocate();

    Workspace storage_;
    const std::byte* data_ = nullptr;  // In storage_, or somebody else's.
    PackedShape shape_;
    size_t num_panels_ = 0;
    size_t panel_bytes_ = 0;
};

// What a product takes: rows of bf16, for int8 weights the same rows quantised, or these alone.
struct LinearInput {
    Rows<const Bf16> rows;  // [num_rows, depth]; without data where only int8 rows were given.
    Int8Rows int8;          // Set by quantised_input.

    LinearInput(Rows<const Bf16> bf16) : rows(bf16) {}  // Implicit: rows pass as they are.
    LinearInput(Rows<Bf16> bf16) : rows(bf16) {}
    LinearInput(const Int8Rows& quantised)
        : rows{nullptr, quantised.values.num_rows, quantised.values.num_cols, 0}, int8(quantised) {}
};

// `rows` quantised one by one, for any number of products with int8 weights of this depth.
size_t quantised_input_bytes(size_t num_rows, size_t depth);
LinearInput quantised_input(Rows<const Bf16> rows,
                            std::span<std::byte> workspace,
                            Parallel& parallel);

// In all products: x must hold int8 rows if the weight is int8; x and y must not overlap.

// y →bf16. Shapes: x [num_rows, depth], y [num_rows, num_outputs].
void linear(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> y, Parallel& parallel);

// The columns of panels [first_panel, last_panel) of it, on the calling thread.
void linear_panels(const LinearInput& x,
                   const PackedLinear& weight,
                   size_t first_panel,
                   size_t last_panel,
                   Rows<Bf16> y);

// Two products of the same rows at once, so that threads wait for each other once.
struct LinearOutput {
    const PackedLinear* weight;
    Rows<Bf16> y;
};
void linear_pair(const LinearInput& x,
                 const LinearOutput& first,
                 const LinearOutput& second,
                 Parallel& parallel);

// y in fp32 (router logits, head).
void linear_f32(const LinearInput& x,
                const PackedLinear& weight,
                Rows<float> y,
                Parallel& parallel);

// h = (silu(gate) · up) →bf16, with gate and up each →bf16 first (specification, section 10).
// Shapes: x [num_rows, depth], h [num_rows, num_outputs / 2]. REQUIRES: weight.is_gate_up().
void swiglu(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> h, Parallel& parallel);

}  // namespace afd::ops

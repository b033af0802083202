// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedLinear: a bf16 weight matrix in the layout of one numeric class, and y = x · Wᵀ.
//
// y[i, n] = Σ_k x[i, k] · W[n, k], accumulated in fp32 in one chain per output, k ascending, as
// the numeric class says (ops/numeric_class.h); so y[i, n] depends on row i of x, row n of W and
// the class, and on nothing else: not on the other rows, their number, or the threads.

#include <cstddef>
#include <cstdint>

#include "ops/bf16.h"
#include "ops/numeric_class.h"
#include "ops/parallel.h"
#include "ops/tensor_view.h"
#include "ops/workspace.h"

namespace afd::ops {

// Outputs are packed in panels of this many columns, the last one padded with zero weights.
inline constexpr size_t kPanelColumns = 32;

class PackedLinear {
  public:
    // An absent matrix: empty() holds.
    PackedLinear() = default;

    // Copies `weight` [num_outputs, depth], row-major as checkpoints store it.
    // REQUIRES: supported(numeric_class); num_outputs and depth at least 1.
    static PackedLinear pack(Rows<const Bf16> weight, NumericClass numeric_class);

    // Copies a matrix given as [depth, num_outputs].
    static PackedLinear pack_transposed(Rows<const Bf16> weight, NumericClass numeric_class);

    // Packs gate_proj and up_proj, both [intermediate, depth], for swiglu(): each panel holds 16
    // gate columns and the 16 up columns that they meet. num_outputs() is 2 · intermediate.
    static PackedLinear pack_gate_up(Rows<const Bf16> gate,
                                     Rows<const Bf16> up,
                                     NumericClass numeric_class);

    bool empty() const { return num_outputs_ == 0; }
    size_t num_outputs() const { return num_outputs_; }
    size_t depth() const { return depth_; }
    NumericClass numeric_class() const { return numeric_class_; }
    bool is_gate_up() const { return is_gate_up_; }
    size_t num_panels() const { return num_panels_; }

    // Bytes of the packed weights, padding included.
    size_t size_bytes() const { return num_panels_ * panel_elements() * sizeof(uint16_t); }

    // For the kernels: panel `index`, 64-byte aligned, panel_elements() bf16 values.
    // avx512-bf16: [ceil(depth / 2)][32][2]; the other classes: [depth][32].
    const uint16_t* panel(size_t index) const {
        return reinterpret_cast<const uint16_t*>(storage_.bytes().data()) +
               index * panel_elements();
    }
    size_t panel_elements() const;

  private:
    PackedLinear(size_t num_outputs, size_t depth, size_t num_panels, NumericClass numeric_class);

    // Stores W[column of panel, k].
    void set(size_t panel, size_t column, size_t k, Bf16 value);

    Workspace storage_;
    size_t num_outputs_ = 0;
    size_t depth_ = 0;
    size_t num_panels_ = 0;
    NumericClass numeric_class_ = NumericClass::kPortable;
    bool is_gate_up_ = false;
};

// y →bf16. Shapes: x [num_rows, depth], y [num_rows, num_outputs]; x and y must not overlap.
void linear(Rows<const Bf16> x, const PackedLinear& weight, Rows<Bf16> y, Parallel& parallel);

// y in fp32 (router logits, head).
void linear_f32(Rows<const Bf16> x, const PackedLinear& weight, Rows<float> y, Parallel& parallel);

// h = (silu(gate) · up) →bf16, with gate and up each →bf16 first (specification, section 10).
// Shapes: x [num_rows, depth], h [num_rows, num_outputs / 2]. REQUIRES: weight.is_gate_up().
void swiglu(Rows<const Bf16> x, const PackedLinear& weight, Rows<Bf16> h, Parallel& parallel);

}  // namespace afd::ops

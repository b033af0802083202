// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedLinear: a weight matrix in the layout of one numeric class (ops/format/packed_shape.h).
// Products with it are ops/linear/linear.h.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/format/int8_rows.h"
#include "ops/format/numeric_class.h"
#include "ops/format/packed_shape.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::ops {

class PackedLinear {
  public:
    // An absent matrix: empty() holds.
    PackedLinear() = default;

    // Copies `weight` [num_outputs, depth], row-major as checkpoints store it.
    // REQUIRES: supported(numeric_class); num_outputs and depth at least 1, depth of int8 weights
    // at most kInt8DepthMax; q of int4 weights, and zero, in [-8, 7].
    static PackedLinear pack(Rows<const Bf16> weight, NumericClass numeric_class);
    static PackedLinear pack(const Int8Weight& weight, NumericClass numeric_class);
    static PackedLinear pack(const Int4Weight& weight, NumericClass numeric_class);
    static PackedLinear pack(const Fp8Weight& weight, NumericClass numeric_class);

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
    static PackedLinear pack_gate_up(const Fp8Weight& gate,
                                     const Fp8Weight& up,
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

// Whether `matrix`, called `part`, has the size that the shape of a layer asks for.
// Errors: kInvalidArgument names the part, its size and the size wanted.
Result<> check_matrix(const char* part, const PackedLinear& matrix, size_t outputs, size_t depth);

}  // namespace afd::ops

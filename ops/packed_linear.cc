// SPDX-License-Identifier: Apache-2.0

#include <cstring>

#include "ops/linear.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr size_t kHalfPanel = kPanelColumns / 2;

size_t div_up(size_t value, size_t by) {
    return (value + by - 1) / by;
}

}  // namespace

PackedLinear::PackedLinear(size_t num_outputs,
                           size_t depth,
                           size_t num_panels,
                           NumericClass numeric_class)
    : num_outputs_(num_outputs),
      depth_(depth),
      num_panels_(num_panels),
      numeric_class_(numeric_class) {
    AFD_ASSERT(supported(numeric_class),
               "numeric class %s needs another processor",
               std::string(name_of(numeric_class)).c_str());
    AFD_ASSERT(num_outputs > 0 && depth > 0, "matrix [%zu, %zu]", num_outputs, depth);
    storage_.reserve(size_bytes());
    std::memset(storage_.bytes().data(), 0, size_bytes());
}

size_t PackedLinear::panel_elements() const {
    const size_t padded_depth =
        numeric_class_ == NumericClass::kAvx512Bf16 ? div_up(depth_, 2) * 2 : depth_;
    return padded_depth * kPanelColumns;
}

void PackedLinear::set(size_t panel_index, size_t column, size_t k, Bf16 value) {
    auto* elements = reinterpret_cast<uint16_t*>(storage_.bytes().data());
    const size_t place = numeric_class_ == NumericClass::kAvx512Bf16
                             ? (k / 2) * 2 * kPanelColumns + column * 2 + k % 2
                             : k * kPanelColumns + column;
    elements[panel_index * panel_elements() + place] = value.bits;
}

PackedLinear PackedLinear::pack(Rows<const Bf16> weight, NumericClass numeric_class) {
    PackedLinear packed(
        weight.num_rows, weight.num_cols, div_up(weight.num_rows, kPanelColumns), numeric_class);
    for (size_t n = 0; n < weight.num_rows; ++n) {
        const Bf16* row = weight.row(n);
        for (size_t k = 0; k < weight.num_cols; ++k) {
            packed.set(n / kPanelColumns, n % kPanelColumns, k, row[k]);
        }
    }
    return packed;
}

PackedLinear PackedLinear::pack_transposed(Rows<const Bf16> weight, NumericClass numeric_class) {
    PackedLinear packed(
        weight.num_cols, weight.num_rows, div_up(weight.num_cols, kPanelColumns), numeric_class);
    for (size_t k = 0; k < weight.num_rows; ++k) {
        const Bf16* row = weight.row(k);
        for (size_t n = 0; n < weight.num_cols; ++n) {
            packed.set(n / kPanelColumns, n % kPanelColumns, k, row[n]);
        }
    }
    return packed;
}

PackedLinear PackedLinear::pack_gate_up(Rows<const Bf16> gate,
                                        Rows<const Bf16> up,
                                        NumericClass numeric_class) {
    AFD_ASSERT(gate.num_rows == up.num_rows && gate.num_cols == up.num_cols,
               "gate [%zu, %zu] and up [%zu, %zu]",
               gate.num_rows,
               gate.num_cols,
               up.num_rows,
               up.num_cols);
    PackedLinear packed(
        2 * gate.num_rows, gate.num_cols, div_up(gate.num_rows, kHalfPanel), numeric_class);
    packed.is_gate_up_ = true;
    for (size_t n = 0; n < gate.num_rows; ++n) {
        for (size_t k = 0; k < gate.num_cols; ++k) {
            packed.set(n / kHalfPanel, n % kHalfPanel, k, gate.row(n)[k]);
            packed.set(n / kHalfPanel, kHalfPanel + n % kHalfPanel, k, up.row(n)[k]);
        }
    }
    return packed;
}

}  // namespace afd::ops

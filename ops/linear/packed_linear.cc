// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/tensor/huge_pages.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

constexpr size_t kHalfPanel = kPanelColumns / 2;

PackedShape shape_of(size_t num_outputs,
                     size_t depth,
                     WeightFormat format,
                     NumericClass numeric_class) {
    return {num_outputs, depth, format, numeric_class, false};
}

template <typename Weight>
PackedShape gate_up_shape(const Weight& gate,
                          const Weight& up,
                          WeightFormat format,
                          NumericClass numeric_class) {
    AFD_ASSERT(gate.num_outputs() == up.num_outputs() && gate.depth() == up.depth(),
               "gate [%zu, %zu] and up [%zu, %zu]",
               gate.num_outputs(),
               gate.depth(),
               up.num_outputs(),
               up.depth());
    return {2 * gate.num_outputs(), gate.depth(), format, numeric_class, true};
}

// W[n, k] read through the strides of its storage.
struct Bf16Weight {
    const Bf16* data;
    size_t n_stride;
    size_t k_stride;
    size_t outputs;
    size_t columns;

    explicit Bf16Weight(Rows<const Bf16> rows)
        : data(rows.data),
          n_stride(rows.stride),
          k_stride(1),
          outputs(rows.num_rows),
          columns(rows.num_cols) {}
    Bf16Weight(const Bf16* first, size_t by_output, size_t by_depth, size_t num_outputs, size_t k)
        : data(first), n_stride(by_output), k_stride(by_depth), outputs(num_outputs), columns(k) {}

    size_t num_outputs() const { return outputs; }
    size_t depth() const { return columns; }
};

// Each writes output n of a matrix to column `column` of a panel (ops/format/packed_shape.h).
void put_column(
    const Bf16Weight& w, size_t n, const PackedShape& shape, size_t column, std::byte* panel) {
    auto* elements = reinterpret_cast<uint16_t*>(panel);
    const size_t pair = bf16_interleave(shape.numeric_class);
    const Bf16* row = w.data + n * w.n_stride;
    for (size_t k = 0; k < shape.depth; ++k) {
        elements[k / pair * pair * kPanelColumns + column * pair + k % pair] =
            row[k * w.k_stride].bits;
    }
}

void put_column(
    const Int8Weight& w, size_t n, const PackedShape& shape, size_t column, std::byte* panel) {
    auto* values = reinterpret_cast<uint8_t*>(panel);
    const int8_t* row = w.values.row(n);
    for (size_t k = 0; k < shape.depth; ++k) {
        // Four values of a column side by side, as vpdpbusd takes them, and unsigned, as it wants
        // one of its sides. row[k] + 128 is 0 to 255.
        values[k / 4 * 4 * kPanelColumns + column * 4 + k % 4] = static_cast<uint8_t>(row[k] + 128);
    }
    std::memcpy(panel + int8_values_bytes(shape.depth) + column * sizeof(float),
                &w.scale[n],
                sizeof(float));
}

void put_column(
    const Int4Weight& w, size_t n, const PackedShape& shape, size_t column, std::byte* panel) {
    const Int4Groups groups = int4_groups(shape.format);
    // An odd depth ends in a pair whose second weight is zero.
    for (size_t k = 0; k < (shape.depth + 1) / 2 * 2; ++k) {
        const size_t in_group = k % groups.size;
        std::byte* group = panel + groups.offset(k);
        if (in_group == 0) {
            std::byte* head = group + column * sizeof(uint16_t);
            std::memcpy(head, &w.scale.row(n)[k / groups.size], sizeof(uint16_t));
            if (groups.has_zeros) {
                const Bf16 zero = from_float(static_cast<float>(w.zero_at(n, k)));
                std::memcpy(head + kInt4ScaleBytes, &zero.bits, sizeof zero.bits);
            }
        }
        const int value = k < shape.depth ? w.value(n, k) : w.zero_at(n, shape.depth - 1);
        std::byte* word = group + groups.head_bytes() + in_group / 8 * kInt4StepBytes + column * 4 +
                          in_group % 2 * 2;
        const size_t nibble = in_group % 8 / 2;
        word[nibble / 2] |=
            static_cast<std::byte>((static_cast<unsigned>(value) & 0xfu) << nibble % 2 * 4);
    }
}

void put_column(
    const Fp8Weight& w, size_t n, const PackedShape& shape, size_t column, std::byte* panel) {
    const E4m3* row = w.values.row(n);
    for (size_t k = 0; k < shape.depth; ++k) {
        panel[k / 4 * 4 * kPanelColumns + column * 4 + k % 4] = std::byte{row[k].bits};
    }
    const float* scale = w.scale.row(n / kFp8BlockEdge);
    std::byte* scales = panel + fp8_values_bytes(shape.depth) + column / kHalfPanel * sizeof *scale;
    for (size_t block = 0; block < w.scale.num_cols; ++block) {
        std::memcpy(scales + 2 * block * sizeof *scale, &scale[block], sizeof *scale);
    }
}

template <typename Weight>
void put_all(const Weight& w, const PackedShape& shape, std::byte* data) {
    for (size_t n = 0; n < w.num_outputs(); ++n) {
        put_column(w, n, shape, n % kPanelColumns, data + n / kPanelColumns * shape.panel_bytes());
    }
}

template <typename Weight>
void put_gate_up(const Weight& gate, const Weight& up, const PackedShape& shape, std::byte* data) {
    for (size_t n = 0; n < gate.num_outputs(); ++n) {
        std::byte* panel = data + n / kHalfPanel * shape.panel_bytes();
        put_column(gate, n, shape, n % kHalfPanel, panel);
        put_column(up, n, shape, kHalfPanel + n % kHalfPanel, panel);
    }
}

}  // namespace

PackedLinear::PackedLinear(const PackedShape& shape)
    : shape_(shape), num_panels_(shape.num_panels()), panel_bytes_(shape.panel_bytes()) {
    AFD_ASSERT(supported(shape.numeric_class),
               "numeric class %s needs another processor",
               std::string(name_of(shape.numeric_class)).c_str());
    AFD_ASSERT(shape.num_outputs > 0 && shape.depth > 0,
               "matrix [%zu, %zu]",
               shape.num_outputs,
               shape.depth);
    AFD_ASSERT(shape.format != WeightFormat::kInt8 || shape.depth <= kInt8DepthMax,
               "int8 matrix of depth %zu, at most %zu",
               shape.depth,
               kInt8DepthMax);
}

std::byte* PackedLinear::allocate() {
    storage_.reserve(size_bytes());
    // Weights stream through once a step: with pages of 4 KiB the walks of the page table cost up
    // to a third of the bandwidth. A cold bf16 expert of 2048x1408 ran at 0.62 of the read
    // bandwidth in pages of 4 KiB, at 1.0 in pages of 2 MiB (Zen 4, virtual machine).
    prefer_huge_pages(storage_.bytes().data(), storage_.bytes().size());
    // Padding is multiplied as well, so it must be zero; and pages are touched now and not in the
    // first step.
    std::memset(storage_.bytes().data(), 0, size_bytes());
    data_ = storage_.bytes().data();
    return storage_.bytes().data();
}

PackedLinear PackedLinear::view(const PackedShape& shape, std::span<const std::byte> bytes) {
    PackedLinear packed(shape);
    AFD_ASSERT(bytes.size() == packed.size_bytes() &&
                   reinterpret_cast<uintptr_t>(bytes.data()) % kPackedAlignment == 0,
               "%zu bytes at %p for a packed matrix of %zu",
               bytes.size(),
               static_cast<const void*>(bytes.data()),
               packed.size_bytes());
    packed.data_ = bytes.data();
    return packed;
}

PackedLinear PackedLinear::pack(Rows<const Bf16> weight, NumericClass numeric_class) {
    PackedLinear packed(
        shape_of(weight.num_rows, weight.num_cols, WeightFormat::kBf16, numeric_class));
    put_all(Bf16Weight(weight), packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack(const Int8Weight& weight, NumericClass numeric_class) {
    PackedLinear packed(
        shape_of(weight.num_outputs(), weight.depth(), WeightFormat::kInt8, numeric_class));
    put_all(weight, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack(const Int4Weight& weight, NumericClass numeric_class) {
    PackedLinear packed(
        shape_of(weight.num_outputs(), weight.depth(), weight.format, numeric_class));
    put_all(weight, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack(const Fp8Weight& weight, NumericClass numeric_class) {
    PackedLinear packed(
        shape_of(weight.num_outputs(), weight.depth(), WeightFormat::kFp8Block128, numeric_class));
    put_all(weight, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack_transposed(Rows<const Bf16> weight, NumericClass numeric_class) {
    PackedLinear packed(
        shape_of(weight.num_cols, weight.num_rows, WeightFormat::kBf16, numeric_class));
    put_all(Bf16Weight(weight.data, 1, weight.stride, weight.num_cols, weight.num_rows),
            packed.shape_,
            packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack_gate_up(Rows<const Bf16> gate,
                                        Rows<const Bf16> up,
                                        NumericClass numeric_class) {
    const Bf16Weight g(gate);
    const Bf16Weight u(up);
    PackedLinear packed(gate_up_shape(g, u, WeightFormat::kBf16, numeric_class));
    put_gate_up(g, u, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack_gate_up(const Int8Weight& gate,
                                        const Int8Weight& up,
                                        NumericClass numeric_class) {
    PackedLinear packed(gate_up_shape(gate, up, WeightFormat::kInt8, numeric_class));
    put_gate_up(gate, up, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack_gate_up(const Fp8Weight& gate,
                                        const Fp8Weight& up,
                                        NumericClass numeric_class) {
    PackedLinear packed(gate_up_shape(gate, up, WeightFormat::kFp8Block128, numeric_class));
    put_gate_up(gate, up, packed.shape_, packed.allocate());
    return packed;
}

PackedLinear PackedLinear::pack_gate_up(const Int4Weight& gate,
                                        const Int4Weight& up,
                                        NumericClass numeric_class) {
    AFD_ASSERT(gate.format == up.format,
               "gate is %s, up %s",
               std::string(name_of(gate.format)).c_str(),
               std::string(name_of(up.format)).c_str());
    PackedLinear packed(gate_up_shape(gate, up, gate.format, numeric_class));
    put_gate_up(gate, up, packed.shape_, packed.allocate());
    return packed;
}

Result<> check_matrix(const char* part, const PackedLinear& matrix, size_t outputs, size_t depth) {
    if (matrix.num_outputs() == outputs && matrix.depth() == depth) return {};
    return invalid_argument("{} is [{}, {}]; the shape asks for [{}, {}]",
                            with(part, matrix.num_outputs(), matrix.depth(), outputs, depth));
}

}  // namespace afd::ops

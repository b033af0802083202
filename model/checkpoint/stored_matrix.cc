// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/stored_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/foreign/foreign_floats.h"
#include "model/foreign/foreign_int4.h"
#include "model/foreign/foreign_int8.h"
#include "model/foreign/fused_experts.h"
#include "model/safetensors/float_types.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::WeightFormat;

// Of what afd-quantize writes. A file may hold any bits; a NaN among scales would turn up in the
// logits, layers later. Zero is allowed: it is the scale of a row or group of zeros.
Result<> check_scales(const std::string& name, std::span<const float> scales, size_t per_row) {
    for (size_t i = 0; i < scales.size(); ++i) {
        if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
        return data_loss(
            "tensor {}: the scale of row {} is {:f}; a finite number of at least 0 is needed. "
            "Quantise the model again",
            with(name, i / per_row, scales[i]));
    }
    return {};
}

Result<> read_int8(const TensorStore& tensors, const std::string& name, StoredMatrix& matrix) {
    const std::array<uint64_t, 2> shape = {matrix.num_outputs, matrix.depth};
    if (tensors.foreign().has(name)) {
        AFD_ASSIGN(
            ForeignInt8 stored,
            read_foreign_int8({tensors, tensors.form(), name, matrix.num_outputs, matrix.depth},
                              0,
                              matrix.num_outputs));
        matrix.int8 = std::move(stored.values);
        matrix.int8_scale = std::move(stored.scale);
        return {};
    }
    AFD_ASSIGN(matrix.int8, tensors.read_as_stored<int8_t>(name, StorageType::kI8, shape));
    AFD_ASSIGN(matrix.int8_scale,
               tensors.read_as_stored<float>(
                   name + "_scale", StorageType::kF32, std::span(shape).first(1)));
    return check_scales(name + "_scale", matrix.int8_scale, 1);
}

// As another program has quantised it: -8 is a value there, and a scale may be negative, so that -8
// and 7 may lie on either side.
Result<> read_foreign(const TensorStore& tensors, const std::string& name, StoredMatrix& matrix) {
    AFD_ASSIGN(ForeignInt4 stored,
               read_foreign_int4({tensors, tensors.form(), name, matrix.num_outputs, matrix.depth},
                                 ops::int4_group_size(matrix.format)));
    matrix.int4 = std::move(stored.nibbles);
    matrix.int4_zero = std::move(stored.zero);
    for (const float scale : stored.scale) {
        const uint16_t bits = ops::has_fp16_scales(matrix.format) ? ops::fp16_from_float(scale).bits
                                                                  : ops::from_float(scale).bits;
        if (ops::int4_scale(matrix.format, bits) != scale) {
            return unimplemented(
                "tensor {}: has a scale of {:e}, which is no {}; scales of all experts have one "
                "type. Give them one format with afd-quantize --experts int4",
                with(name, scale, ops::has_fp16_scales(matrix.format) ? "fp16" : "bf16"));
        }
        matrix.int4_scale.push_back(bits);
    }
    return {};
}

Result<> read_int4(const TensorStore& tensors, const std::string& name, StoredMatrix& matrix) {
    if (tensors.foreign().has(name)) return read_foreign(tensors, name, matrix);
    const uint64_t groups = int4_scale_columns(matrix.depth, matrix.format);
    const std::array<uint64_t, 2> shape = {matrix.num_outputs, (matrix.depth + 1) / 2};
    const std::array<uint64_t, 2> scale_shape = {matrix.num_outputs, groups};
    AFD_ASSIGN(matrix.int4, tensors.read_as_stored<uint8_t>(name, StorageType::kU8, shape));
    AFD_ASSIGN(matrix.int4_scale,
               tensors.read_as_stored<uint16_t>(
                   name + "_scale", int4_scale_type(matrix.format), scale_shape));
    // In fp32 for the check alone; what is packed are the bits as stored.
    std::vector<float> scales(matrix.int4_scale.size());
    std::ranges::transform(matrix.int4_scale, scales.begin(), [&](uint16_t bits) {
        return ops::int4_scale(matrix.format, bits);
    });
    AFD_TRY(check_scales(name + "_scale", scales, groups));
    // -8 is no value of the format, whose quantisation is symmetric: these are not the nibbles that
    // somebody wrote.
    if (ops::values_in_range(matrix.int4_weight())) return {};
    return data_loss(
        "tensor {}: holds the int4 value -8; allowed are -7 to 7. Quantise the model again",
        with(name));
}

// An element that is no bf16, since its scale is, or that is too large for one, is named.
Result<> read_mxfp4(const TensorStore& tensors, const std::string& name, StoredMatrix& matrix) {
    AFD_ASSIGN(Mxfp4Rows rows,
               fused_mxfp4_rows({tensors, tensors.form(), name, matrix.num_outputs, matrix.depth},
                                0,
                                matrix.num_outputs));
    // The largest scale by which 6 is still a bf16: 2^125.
    constexpr uint8_t kSafeExponent = 252;
    if (std::ranges::any_of(rows.exponents, [](uint8_t e) { return e > kSafeExponent; })) {
        AFD_TRY(mxfp4_values(name, rows.bytes, rows.exponents, matrix.depth, 0));
    }
    matrix.int4 = std::move(rows.bytes);
    for (const float scale : e8m0_values(rows.exponents)) {
        matrix.int4_scale.push_back(ops::from_float(scale).bits);
    }
    return {};
}

Result<> read_fp8(const TensorStore& tensors, const std::string& name, StoredMatrix& matrix) {
    const TensorInfo* stored = tensors.find(name);
    if (stored != nullptr && stored->dtype != StorageType::kF8E4M3) {
        if (std::ranges::find(kFloatTypes, stored->dtype) == kFloatTypes.end()) {
            return unimplemented("tensor {} is {} where config.json says fp8; supported: F8_E4M3{}",
                                 with(name, storage_type_name(stored->dtype), kForeignRemedy));
        }
        // One format for all experts is what packed weights are made for.
        return unimplemented(
            "tensor {} is {} where config.json says fp8; experts that are not all in fp8 are not "
            "served as they are: give them one format with afd-quantize --experts int8",
            with(name, storage_type_name(stored->dtype)));
    }
    AFD_ASSIGN(matrix.fp8, tensors.read_fp8_blocks(name, matrix.num_outputs, matrix.depth));
    return {};
}

}  // namespace

StorageType int4_scale_type(WeightFormat format) {
    return ops::has_fp16_scales(format) ? StorageType::kF16 : StorageType::kBf16;
}

uint64_t int4_scale_columns(uint64_t depth, WeightFormat format) {
    const uint64_t group = ops::int4_group_size(format);
    return (depth + group - 1) / group;
}

ops::Rows<const Bf16> StoredMatrix::bf16_rows() const {
    AFD_ASSERT(format == WeightFormat::kBf16, "format %d", static_cast<int>(format));
    return ops::make_rows(bf16.data(), num_outputs, depth);
}

ops::Int8Weight StoredMatrix::int8_weight() const {
    AFD_ASSERT(format == WeightFormat::kInt8, "format %d", static_cast<int>(format));
    return {.values = ops::make_rows(int8.data(), num_outputs, depth), .scale = int8_scale.data()};
}

ops::Int4Weight StoredMatrix::int4_weight() const {
    AFD_ASSERT(ops::has_nibbles(format), "format %d", static_cast<int>(format));
    const size_t groups = int4_scale_columns(depth, format);
    const bool has_zeros = ops::has_zero_points(format);
    return {.values = ops::make_rows(int4.data(), num_outputs, (depth + 1) / 2),
            .scale = ops::make_rows(int4_scale.data(), num_outputs, groups),
            .num_columns = depth,
            .format = format,
            .zero = has_zeros ? ops::make_rows(int4_zero.data(), num_outputs, groups)
                              : ops::Rows<const int8_t>{}};
}

ops::Fp8Weight StoredMatrix::fp8_weight() const {
    AFD_ASSERT(format == WeightFormat::kFp8Block128, "format %d", static_cast<int>(format));
    return {.values = ops::make_rows(fp8.values.data(), num_outputs, depth),
            .scale = ops::make_rows(
                fp8.scale.data(), ops::fp8_blocks(num_outputs), ops::fp8_blocks(depth))};
}

ops::PackedLinear StoredMatrix::packed(ops::NumericClass numeric_class) const {
    switch (format) {
        case WeightFormat::kBf16:
            return ops::PackedLinear::pack(bf16_rows(), numeric_class);
        case WeightFormat::kInt8:
            return ops::PackedLinear::pack(int8_weight(), numeric_class);
        case WeightFormat::kFp8Block128:
            return ops::PackedLinear::pack(fp8_weight(), numeric_class);
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            break;
    }
    return ops::PackedLinear::pack(int4_weight(), numeric_class);
}

ops::PackedLinear packed_gate_up(const StoredMatrix& gate,
                                 const StoredMatrix& up,
                                 ops::NumericClass numeric_class) {
    AFD_ASSERT(gate.format == up.format, "formats %d and %d", int(gate.format), int(up.format));
    switch (gate.format) {
        case WeightFormat::kBf16:
            return ops::PackedLinear::pack_gate_up(gate.bf16_rows(), up.bf16_rows(), numeric_class);
        case WeightFormat::kInt8:
            return ops::PackedLinear::pack_gate_up(
                gate.int8_weight(), up.int8_weight(), numeric_class);
        case WeightFormat::kFp8Block128:
            return ops::PackedLinear::pack_gate_up(
                gate.fp8_weight(), up.fp8_weight(), numeric_class);
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            break;
    }
    return ops::PackedLinear::pack_gate_up(gate.int4_weight(), up.int4_weight(), numeric_class);
}

std::vector<float> StoredMatrix::values() const {
    std::vector<float> out(num_outputs * depth);
    for (size_t n = 0; n < num_outputs; ++n) {
        for (size_t k = 0; k < depth; ++k) {
            float& value = out[n * depth + k];
            if (format == WeightFormat::kBf16) {
                value = ops::to_float(bf16[n * depth + k]);
            } else if (format == WeightFormat::kInt8) {
                value = static_cast<float>(int8[n * depth + k]) * int8_scale[n];
            } else if (format == WeightFormat::kFp8Block128) {
                value = ops::to_float(fp8.values[n * depth + k]) * fp8_weight().scale_at(n, k);
            } else {
                const ops::Int4Weight weight = int4_weight();
                // Rounded as unpacked weights are (ops/format/weight_format.h).
                value = ops::to_float(ops::from_float(weight.number(n, k) * weight.scale_at(n, k)));
            }
        }
    }
    return out;
}

Result<StoredMatrix> read_matrix(const TensorStore& tensors,
                                 const std::string& prefix,
                                 uint64_t num_outputs,
                                 uint64_t depth,
                                 WeightFormat format) {
    const std::string name = prefix + ".weight";
    StoredMatrix matrix{.format = format, .num_outputs = num_outputs, .depth = depth};
    switch (format) {
        case WeightFormat::kBf16: {
            const std::array<uint64_t, 2> shape = {num_outputs, depth};
            AFD_ASSIGN(matrix.bf16, tensors.read_bf16(name, shape));
            return matrix;
        }
        case WeightFormat::kMxfp4:
            AFD_TRY(read_mxfp4(tensors, name, matrix));
            return matrix;
        case WeightFormat::kInt8:
            AFD_TRY(read_int8(tensors, name, matrix));
            return matrix;
        case WeightFormat::kFp8Block128:
            AFD_TRY(read_fp8(tensors, name, matrix));
            return matrix;
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            break;
    }
    AFD_TRY(read_int4(tensors, name, matrix));
    return matrix;
}

}  // namespace afd::model

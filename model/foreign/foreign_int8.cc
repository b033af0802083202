// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/foreign_int8.h"

#include <array>
#include <string>

#include "proto/failure.h"

namespace afd::model {

using ops::Bf16;

Result<ForeignInt8> read_foreign_int8(const ForeignMatrix& matrix, uint64_t first, uint64_t count) {
    constexpr std::array kTypes = {StorageType::kI8};
    const std::array<uint64_t, 2> shape = {matrix.num_outputs, matrix.depth};
    const std::string scale_name = std::string(matrix.weight) + "_scale";
    const std::string zero_name = std::string(matrix.weight) + "_zero_point";
    AFD_ASSIGN(const TensorInfo* tensor, matrix.tensors.checked(matrix.weight, shape, kTypes));
    if (matrix.tensors.find(zero_name) != nullptr) {
        return unimplemented("tensor {}: config.json says symmetric; supported: no zero points{}",
                             with(zero_name, kForeignRemedy));
    }
    const TensorInfo* scales = matrix.tensors.find(scale_name);
    const std::vector<uint64_t> column = {matrix.num_outputs, 1};
    const std::vector<uint64_t> found = scales == nullptr ? column : scales->shape;
    if (found != column && found != std::vector<uint64_t>{matrix.num_outputs}) {
        return unimplemented(
            "tensor {}: {}; supported: a scale for each row, {}{}",
            with(scale_name, shape_text(found), shape_text(column), kForeignRemedy));
    }
    ForeignInt8 rows;
    AFD_ASSIGN(rows.values,
               read_block<int8_t>(matrix.tensors, *tensor, {first, count, 0, matrix.depth}));
    // In one dimension, columns of a single row.
    const Block of_rows = found.size() == 2 ? Block{first, count, 0, 1} : Block{0, 1, first, count};
    AFD_ASSIGN(rows.scale, read_scales(matrix.tensors, scale_name, found, of_rows));
    return rows;
}

Result<std::vector<Bf16>> foreign_int8_rows(const ForeignMatrix& matrix,
                                            uint64_t first,
                                            uint64_t count) {
    AFD_ASSIGN(const ForeignInt8 rows, read_foreign_int8(matrix, first, count));
    std::vector<Bf16> out(rows.values.size());
    for (uint64_t i = 0; i < out.size(); ++i) {
        out[i] = ops::from_float(static_cast<float>(rows.values[i]) * rows.scale[i / matrix.depth]);
    }
    AFD_TRY(check_expanded(matrix.weight, out, matrix.depth, first));
    return out;
}

}  // namespace afd::model

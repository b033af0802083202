// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the readers of foreign forms (foreign_int4.h, foreign_floats.h) share: the matrix that they
// are asked for, and parts of the tensors that it is stored in.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/foreign/foreign_form.h"
#include "model/safetensors/tensor_files.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

constexpr uint64_t kNibblesOfWord = 8;

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

// "X" of "X.weight".
std::string foreign_stem(std::string_view weight);

// "X.weight" [N, K] in a store. Valid as long as what it refers to.
struct ForeignMatrix {
    const TensorFiles& tensors;
    const ForeignForm& form;
    std::string_view weight;
    uint64_t num_outputs = 0;  // N
    uint64_t depth = 0;        // K

    std::string stem() const { return foreign_stem(weight); }
};

// A part of a tensor of two dimensions.
struct Block {
    uint64_t first_row = 0;
    uint64_t num_rows = 0;
    uint64_t first_column = 0;
    uint64_t num_columns = 0;
};

// The block's elements, row after row. Errors: those of TensorFiles::read_bytes.
template <typename T>
Result<std::vector<T>> read_block(const TensorFiles& tensors,
                                  const TensorInfo& tensor,
                                  const Block& block) {
    const uint64_t columns = tensor.shape.back();
    std::vector<T> values(block.num_rows * block.num_columns);
    if (block.num_columns == columns) {
        AFD_TRY(tensors.read_bytes(tensor,
                                   block.first_row * columns * sizeof(T),
                                   std::as_writable_bytes(std::span(values))));
        return values;
    }
    for (uint64_t row = 0; row < block.num_rows; ++row) {
        const uint64_t offset = (block.first_row + row) * columns + block.first_column;
        const auto part = std::span(values).subspan(row * block.num_columns, block.num_columns);
        AFD_TRY(tensors.read_bytes(tensor, offset * sizeof(T), std::as_writable_bytes(part)));
    }
    return values;
}

// Errors: those of TensorFiles::checked and of read_block.
Result<std::vector<uint32_t>> read_words(const TensorFiles& tensors,
                                         const std::string& name,
                                         const std::array<uint64_t, 2>& shape,
                                         const Block& block);

// bf16, fp16 or fp32, widened. Errors: as above; kDataLoss for a scale that is not finite.
Result<std::vector<float>> read_scales(const TensorFiles& tensors,
                                       const std::string& name,
                                       std::span<const uint64_t> shape,
                                       const Block& block);

// Of values [rows, depth] as they were expanded, of the matrix's rows from `first` on. Errors:
// kDataLoss for one that is infinite or no number: names it.
Result<> check_expanded(std::string_view weight,
                        std::span<const ops::Bf16> values,
                        uint64_t depth,
                        uint64_t first);

}  // namespace afd::model

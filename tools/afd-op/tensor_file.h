// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tensors of a safetensors file in memory, in the operators' types.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "model/safetensors/whole_file.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::tools {

// A contiguous tensor that owns its elements, aligned for any kernel.
class Tensor {
  public:
    Tensor() = default;
    // Zero-filled. REQUIRES: at most kRankMax dimensions.
    Tensor(ops::DType dtype, std::vector<size_t> shape);

    ops::DType dtype() const { return dtype_; }
    const std::vector<size_t>& shape() const { return shape_; }
    std::span<std::byte> bytes() const { return memory_.bytes().subspan(0, size_); }
    ops::TensorView view() const;

  private:
    ops::DType dtype_ = ops::DType::kBf16;
    std::vector<size_t> shape_;
    size_t size_ = 0;
    ops::Workspace memory_;
};

using TensorMap = std::map<std::string, Tensor>;

// Errors: those of the file; kInvalidArgument for a type or rank that no operator takes.
Result<TensorMap> read_tensors(const std::string& path);

// Gives the file its place. Errors: those of model::WholeFile.
Result<> write_tensors(model::WholeFile file, const TensorMap& tensors);

}  // namespace afd::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes a *.safetensors file: the header padded with spaces to a multiple of 8, then the tensors
// in the order given.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/safetensors/safetensors.h"
#include "model/safetensors/whole_file.h"
#include "proto/status.h"

namespace afd::model {

struct TensorToWrite {
    std::string name;
    StorageType dtype = StorageType::kBf16;
    std::vector<uint64_t> shape;
    std::span<const std::byte> data;  // As many bytes as shape and dtype need.
};

// A tensor of a file that is written in parts, and where its bytes go.
struct TensorPlace {
    std::string name;
    StorageType dtype = StorageType::kBf16;
    std::vector<uint64_t> shape;
    uint64_t begin = 0;  // Offset in the file.
    uint64_t end = 0;
};

// What a file begins with, if the tensors' bytes follow it in this order. Sets begin and end.
std::string safetensors_prefix(std::span<TensorPlace> tensors);

// Writes all of the file and gives it its place. Errors: those of WholeFile.
Result<> write_safetensors(WholeFile file, std::span<const TensorToWrite> tensors);
// The same, made now.
Result<> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors);

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes a *.safetensors file: the header padded with spaces to a multiple of 8, then the tensors
// in the order given.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/safetensors.h"
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

// Creates or replaces `path`. Errors: kPermissionDenied, kResourceExhausted (a full disk),
// kUnavailable.
Result<> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors);

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// TensorStore: all tensors of a model directory, from one file or from the shards that
// model.safetensors.index.json lists. Const and thread-safe after open().

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/fp8_blocks.h"
#include "model/checkpoint/safetensors.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

class TensorStore {
  public:
    // Opens model.safetensors.index.json and its shards, or model.safetensors.
    // Errors: kNotFound (neither exists; the message lists what the directory holds), kDataLoss
    // (a shard's name is not a bare file name, a tensor is not in the shard the index names, a
    // tensor is in two shards).
    static Result<TensorStore> open(const std::string& directory);

    // Null if there is no such tensor.
    const TensorInfo* find(std::string_view name) const;

    // All tensors, by name.
    std::vector<const TensorInfo*> list() const;
    // What they take on the disk.
    uint64_t total_bytes() const;

    // The tensor's elements, row-major. BF16 as stored; F32 and F16 rounded to bf16, half to even;
    // a matrix in F8_E4M3 as Fp8Blocks::to_bf16() of read_fp8_blocks(). Errors: kNotFound,
    // kInvalidArgument (another shape; both are named), kUnimplemented (another type), and those of
    // SafetensorsFile::read.
    Result<std::vector<ops::Bf16>> read_bf16(std::string_view name,
                                             std::span<const uint64_t> shape) const;

    // The same for `count` entries of the leading dimension, from `first`: an expert of a fused
    // tensor. Not of F8_E4M3. REQUIRES: first + count <= shape[0].
    Result<std::vector<ops::Bf16>> read_bf16_slice(std::string_view name,
                                                   std::span<const uint64_t> shape,
                                                   uint64_t first,
                                                   uint64_t count) const;

    // A matrix in F8_E4M3 with its scales. Errors: as read_bf16, kUnimplemented for scales that are
    // missing or of another shape (says what to do), and those of Fp8Blocks::check.
    Result<Fp8Blocks> read_fp8_blocks(std::string_view name,
                                      uint64_t num_outputs,
                                      uint64_t depth) const;

    // The same as read_bf16 in fp32; BF16 and F16 are widened, which is exact.
    Result<std::vector<float>> read_f32(std::string_view name,
                                        std::span<const uint64_t> shape) const;

    // The same for integers: I32 or I64.
    Result<std::vector<int64_t>> read_integers(std::string_view name,
                                               std::span<const uint64_t> shape) const;

    // The whole tensor, values as stored. Memory is taken for what the file holds, after its shape
    // was found to be `shape`. Errors: as read_bf16; kUnimplemented names both types.
    // REQUIRES: T is as wide as a value of `dtype`.
    template <typename T>
    Result<std::vector<T>> read_as_stored(std::string_view name,
                                          StorageType dtype,
                                          std::span<const uint64_t> shape) const {
        AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, std::span(&dtype, 1)));
        std::vector<T> values((tensor->end - tensor->begin) / sizeof(T));
        AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(values))));
        return values;
    }

    // Raw bytes [offset, offset + out.size()) of the tensor. REQUIRES: inside the tensor.
    Result<> read_bytes(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;

  private:
    struct Entry {
        size_t file = 0;
        size_t tensor = 0;
    };

    // `weight`_scale_inv.
    Result<std::vector<float>> read_block_scales(const std::string& weight,
                                                 std::span<const uint64_t> shape) const;

    Result<> add_file(const std::string& path);
    // The tensor of that name if it has this shape and one of these types.
    Result<const TensorInfo*> checked(std::string_view name,
                                      std::span<const uint64_t> shape,
                                      std::span<const StorageType> dtypes) const;

    std::string directory_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, Entry, std::less<>> by_name_;
};

}  // namespace afd::model

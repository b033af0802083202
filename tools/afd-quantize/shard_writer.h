// SPDX-License-Identifier: Apache-2.0
#pragma once

// ShardWriter: the weights of a checkpoint, written one tensor after the other: one file
// model.safetensors, or shards of some GiB and their model.safetensors.index.json. Holds one shard
// in memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/storage_type.h"
#include "proto/status.h"

namespace afd {

class ShardWriter {
  public:
    // Writes into `directory`, which exists. A shard is closed when it holds `shard_bytes`.
    ShardWriter(std::string directory, uint64_t shard_bytes)
        : directory_(std::move(directory)), shard_bytes_(shard_bytes) {}

    // REQUIRES: as many bytes as dtype and shape need. Errors: those of model::write_safetensors.
    Result<> add(std::string name,
                 model::StorageType dtype,
                 std::vector<uint64_t> shape,
                 std::vector<std::byte> bytes);

    // Writes what is left, and the index if there are several shards.
    Result<> finish();

    uint64_t total_bytes() const { return total_bytes_; }

  private:
    struct Tensor {
        std::string name;
        model::StorageType dtype;
        std::vector<uint64_t> shape;
        std::vector<std::byte> bytes;
    };

    Result<> flush(const std::string& file_name);
    std::string next_shard_name() const;
    Result<> write_index() const;

    std::string directory_;
    uint64_t shard_bytes_;
    std::vector<Tensor> pending_;
    uint64_t pending_bytes_ = 0;
    uint64_t total_bytes_ = 0;
    size_t num_shards_ = 0;
    std::vector<std::pair<std::string, std::string>> tensor_shard_;
};

}  // namespace afd

// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/shard_writer.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "model/checkpoint/safetensors_writer.h"

namespace afd {

Result<> ShardWriter::add(std::string name,
                          model::StorageType dtype,
                          std::vector<uint64_t> shape,
                          std::vector<std::byte> bytes) {
    pending_bytes_ += bytes.size();
    total_bytes_ += bytes.size();
    pending_.push_back({std::move(name), dtype, std::move(shape), std::move(bytes)});
    return pending_bytes_ < shard_bytes_ ? Result<>() : flush(next_shard_name());
}

Result<> ShardWriter::finish() {
    if (num_shards_ == 0) return flush("model.safetensors");
    if (!pending_.empty()) AFD_TRY(flush(next_shard_name()));
    return write_index();
}

std::string ShardWriter::next_shard_name() const {
    return fmt::format("model-{:05}.safetensors", num_shards_ + 1);
}

Result<> ShardWriter::flush(const std::string& file_name) {
    std::vector<model::TensorToWrite> tensors;
    for (const Tensor& tensor : pending_) {
        tensors.push_back({tensor.name, tensor.dtype, tensor.shape, std::span(tensor.bytes)});
        tensor_shard_.emplace_back(tensor.name, file_name);
    }
    AFD_TRY(model::write_safetensors(directory_ + "/" + file_name, tensors));
    ++num_shards_;
    pending_.clear();
    pending_bytes_ = 0;
    return {};
}

Result<> ShardWriter::write_index() const {
    nlohmann::ordered_json index;
    index["metadata"] = {{"total_size", total_bytes_}};
    for (const auto& [tensor, shard] : tensor_shard_) index["weight_map"][tensor] = shard;
    const std::string path = directory_ + "/model.safetensors.index.json";
    std::ofstream stream(path);
    stream << index.dump(2) << '\n';
    stream.flush();
    if (stream) return {};
    return Error{Code::kUnavailable, path + ": cannot be written; is the disk full?"};
}

}  // namespace afd

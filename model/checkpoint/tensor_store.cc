// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/tensor_store.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "model/checkpoint/json_document.h"
#include "ops/tensor/fp16.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 256u << 20;
constexpr std::array kFloatTypes = {StorageType::kBf16, StorageType::kF16, StorageType::kF32};

// Calls body(zero of the element type) for a type of kFloatTypes.
template <typename Body>
auto with_float_type(StorageType dtype, const Body& body) {
    if (dtype == StorageType::kBf16) return body(ops::Bf16{});
    if (dtype == StorageType::kF16) return body(ops::Fp16{});
    AFD_ASSERT(dtype == StorageType::kF32, "type %d", static_cast<int>(dtype));
    return body(0.0f);
}

// Some names of the directory, for the message that the weights are missing.
std::string listing(const std::string& directory) {
    constexpr size_t kNamesMax = 12;
    std::set<std::string> names;
    if (DIR* stream = ::opendir(directory.c_str())) {
        while (const dirent* entry = ::readdir(stream)) {
            if (entry->d_name[0] != '.') names.insert(entry->d_name);
        }
        ::closedir(stream);
    }
    if (names.empty()) return "nothing";
    std::string text;
    size_t count = 0;
    for (const std::string& name : names) {
        if (count++ == kNamesMax) return text + ", ...";
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

bool is_bare_file_name(const std::string& name) {
    // The index is a file from somewhere: no path out of the directory, and nothing hidden.
    return !name.empty() && name.find('/') == std::string::npos && name.front() != '.' &&
           name.find('\0') == std::string::npos;
}

// tensor -> shard, as the index file says.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
    AFD_ASSIGN(const std::string text, read_text_file(path, kIndexBytesMax));
    AFD_ASSIGN(const Json index, parse_json(text, path));
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object()) {
        return data_loss("{}: weight_map is missing or not an object", with(path));
    }
    std::map<std::string, std::string> shards;
    for (const auto& [tensor, shard] : map->items()) {
        if (!shard.is_string() || !is_bare_file_name(shard.get_ref<const std::string&>())) {
            return data_loss(
                "{}: weight_map: tensor {} is in {}; only a file name of the same directory is "
                "accepted",
                with(path, tensor, shard.dump(-1, ' ', false, Json::error_handler_t::replace)));
        }
        shards.emplace(tensor, shard.get<std::string>());
    }
    return shards;
}

}  // namespace

Result<TensorStore> TensorStore::open(const std::string& directory) {
    TensorStore store;
    store.directory_ = directory;
    const std::string index_path = directory + "/" + kIndexFile;
    auto index = read_index(index_path);
    // Only a missing index means one file. A broken one must not make the other look complete.
    if (!index.ok() && index.error().code != Code::kNotFound) return index.error();
    if (!index.ok()) {
        const auto added = store.add_file(directory + "/" + kSingleFile);
        if (added.ok()) return store;
        if (added.error().code != Code::kNotFound) return added.error();
        return not_found("{}: neither {} nor {} is there; the directory holds {}",
                         with(directory, kSingleFile, kIndexFile, listing(directory)));
    }
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index.value()) shards.insert(shard);
    for (const std::string& shard : shards) {
        AFD_TRY(store.add_file(directory + "/" + shard));
    }
    for (const auto& [tensor, shard] : index.value()) {
        const auto at = store.by_name_.find(tensor);
        if (at == store.by_name_.end() ||
            store.files_[at->second.file].path() != directory + "/" + shard) {
            return data_loss("{}: tensor {} is not in {}", with(index_path, tensor, shard));
        }
    }
    return store;
}

Result<> TensorStore::add_file(const std::string& path) {
    AFD_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
    for (size_t i = 0; i < file.tensors().size(); ++i) {
        const std::string& name = file.tensors()[i].name;
        const auto [at, is_new] = by_name_.try_emplace(name, Entry{files_.size(), i});
        if (!is_new) {
            return data_loss("{}: tensor {} is also in {}",
                             with(path, name, files_[at->second.file].path()));
        }
    }
    files_.push_back(std::move(file));
    return {};
}

const TensorInfo* TensorStore::find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &files_[at->second.file].tensors()[at->second.tensor];
}

std::vector<const TensorInfo*> TensorStore::list() const {
    std::vector<const TensorInfo*> tensors;
    for (const auto& [name, entry] : by_name_) {
        tensors.push_back(&files_[entry.file].tensors()[entry.tensor]);
    }
    return tensors;
}

uint64_t TensorStore::total_bytes() const {
    uint64_t total = 0;
    for (const TensorInfo* tensor : list()) total += tensor->end - tensor->begin;
    return total;
}

Result<const TensorInfo*> TensorStore::checked(std::string_view name,
                                               std::span<const uint64_t> shape,
                                               std::span<const StorageType> dtypes) const {
    const TensorInfo* tensor = find(name);
    if (tensor == nullptr) {
        return not_found("{}: tensor {} {} is missing from the weights",
                         with(directory_, name, shape_text(shape)));
    }
    const std::string where =
        files_[by_name_.find(name)->second.file].path() + ": tensor " + std::string(name);
    if (!std::ranges::equal(tensor->shape, shape)) {
        return invalid_argument(
            "{}: expected shape {}, found {}; config.json and the weights disagree",
            with(where, shape_text(shape), shape_text(tensor->shape)));
    }
    if (std::ranges::find(dtypes, tensor->dtype) != dtypes.end()) return tensor;
    std::string supported;
    for (const StorageType dtype : dtypes) {
        supported += (supported.empty() ? "" : ", ") + std::string(storage_type_name(dtype));
    }
    return unimplemented("{}: dtype is {}; supported: {}",
                         with(where, storage_type_name(tensor->dtype), supported));
}

Result<> TensorStore::read_bytes(const TensorInfo& tensor,
                                 uint64_t offset,
                                 std::span<std::byte> out) const {
    const auto at = by_name_.find(tensor.name);
    AFD_ASSERT(at != by_name_.end() && offset + out.size() <= tensor.end - tensor.begin,
               "tensor %s, bytes %zu+%zu",
               tensor.name.c_str(),
               static_cast<size_t>(offset),
               out.size());
    return files_[at->second.file].read(tensor.begin + offset, out);
}

Result<std::vector<float>> TensorStore::read_block_scales(const std::string& weight,
                                                          std::span<const uint64_t> shape) const {
    const std::string name = weight + "_scale_inv";
    const TensorInfo* scale = find(name);
    if (scale == nullptr) {
        return unimplemented(
            "tensor {} is F8_E4M3, and {} {} with a scale for each block of 128 x 128 is missing; "
            "other scales are not served: convert the model to bf16 first",
            with(weight, name, shape_text(shape)));
    }
    if (!std::ranges::equal(scale->shape, shape)) {
        return unimplemented(
            "tensor {}: expected shape {}, a scale for each block of 128 x 128, found {}; other "
            "blocks are not served: convert the model to bf16 first",
            with(name, shape_text(shape), shape_text(scale->shape)));
    }
    if (scale->dtype != StorageType::kF8E8M0 && scale->dtype != StorageType::kU8) {
        return read_f32(name, shape);
    }
    std::vector<uint8_t> exponents(scale->end - scale->begin);
    AFD_TRY(read_bytes(*scale, 0, std::as_writable_bytes(std::span(exponents))));
    return e8m0_values(exponents);
}

Result<Fp8Blocks> TensorStore::read_fp8_blocks(std::string_view name,
                                               uint64_t num_outputs,
                                               uint64_t depth) const {
    const std::array<uint64_t, 2> shape = {num_outputs, depth};
    constexpr StorageType kType = StorageType::kF8E4M3;
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, std::span(&kType, 1)));
    Fp8Blocks blocks{.num_outputs = num_outputs, .depth = depth};
    blocks.values.resize(num_outputs * depth);
    AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(blocks.values))));
    AFD_ASSIGN(blocks.scale,
               read_block_scales(std::string(name), fp8_scale_shape(num_outputs, depth)));
    AFD_TRY(blocks.check(std::string(name)));
    return blocks;
}

Result<std::vector<ops::Bf16>> TensorStore::read_bf16(std::string_view name,
                                                      std::span<const uint64_t> shape) const {
    const TensorInfo* tensor = find(name);
    if (tensor != nullptr && tensor->dtype == StorageType::kF8E4M3 && shape.size() == 2) {
        AFD_ASSIGN(const Fp8Blocks blocks, read_fp8_blocks(name, shape[0], shape[1]));
        return blocks.to_bf16();
    }
    return read_bf16_slice(name, shape, 0, shape.empty() ? 1 : shape[0]);
}

Result<std::vector<ops::Bf16>> TensorStore::read_bf16_slice(std::string_view name,
                                                            std::span<const uint64_t> shape,
                                                            uint64_t first,
                                                            uint64_t count) const {
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, kFloatTypes));
    const uint64_t bytes = tensor->end - tensor->begin;
    const uint64_t entry_bytes = shape.empty() || shape[0] == 0 ? bytes : bytes / shape[0];
    // Only the slice is read and converted: a fused tensor of all experts would take twice its
    // size.
    return with_float_type(tensor->dtype, [&](auto zero) -> Result<std::vector<ops::Bf16>> {
        std::vector<decltype(zero)> stored(count * entry_bytes / sizeof zero);
        AFD_TRY(
            read_bytes(*tensor, first * entry_bytes, std::as_writable_bytes(std::span(stored))));
        if constexpr (std::is_same_v<decltype(zero), ops::Bf16>) return stored;
        std::vector<ops::Bf16> values(stored.size());
        std::ranges::transform(stored, values.begin(), [](auto value) {
            return ops::from_float(ops::to_float(value));
        });
        return values;
    });
}

Result<std::vector<float>> TensorStore::read_f32(std::string_view name,
                                                 std::span<const uint64_t> shape) const {
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, kFloatTypes));
    return with_float_type(tensor->dtype, [&](auto zero) -> Result<std::vector<float>> {
        std::vector<decltype(zero)> stored((tensor->end - tensor->begin) / sizeof zero);
        AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(stored))));
        std::vector<float> values(stored.size());
        std::ranges::transform(
            stored, values.begin(), [](auto value) { return ops::to_float(value); });
        return values;
    });
}

Result<std::vector<int64_t>> TensorStore::read_integers(std::string_view name,
                                                        std::span<const uint64_t> shape) const {
    constexpr StorageType kIntegerTypes[] = {StorageType::kI32, StorageType::kI64};
    AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, kIntegerTypes));
    const uint64_t bytes = tensor->end - tensor->begin;
    if (tensor->dtype == StorageType::kI64) {
        std::vector<int64_t> values(bytes / sizeof(int64_t));
        AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(values))));
        return values;
    }
    std::vector<int32_t> narrow(bytes / sizeof(int32_t));
    AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(narrow))));
    return std::vector<int64_t>(narrow.begin(), narrow.end());
}

}  // namespace afd::model

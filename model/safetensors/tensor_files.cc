// SPDX-License-Identifier: Apache-2.0

#include "model/safetensors/tensor_files.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/json/json_document.h"
#include "model/safetensors/float_types.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 256u << 20;

Error doubled(const std::string& directory, const std::string& name, const NamePrefix& prefix) {
    return data_loss(
        "{}: tensor {} is there twice, within a larger model (as {}) and beside it; fetch the "
        "model again, or write its files without one of the two",
        with(directory, name, prefix.stored_name(name)));
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

std::string NamePrefix::stored_name(std::string_view plain_name) const {
    if (!plain_name.starts_with(plain)) return std::string(plain_name);
    return std::string(stored) + std::string(plain_name.substr(plain.size()));
}

Result<TensorFiles> TensorFiles::open(const std::string& directory) {
    TensorFiles files;
    files.directory_ = directory;
    const std::string index_path = directory + "/" + kIndexFile;
    auto index = read_index(index_path);
    // Only a missing index means one file. A broken one must not make the other look complete.
    if (!index.ok() && index.error().code != Code::kNotFound) return index.error();
    if (!index.ok()) {
        const auto added = files.add_file(directory + "/" + kSingleFile);
        if (added.ok()) return files;
        if (added.error().code != Code::kNotFound) return added.error();
        return not_found("{}: neither {} nor {} is there; the directory holds {}",
                         with(directory, kSingleFile, kIndexFile, listing(directory)));
    }
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index.value()) shards.insert(shard);
    for (const std::string& shard : shards) {
        const auto added = files.add_file(directory + "/" + shard);
        if (added.ok()) continue;
        if (added.error().code != Code::kNotFound) return added.error();
        return not_found("{}; {} names it. The download may be incomplete: fetch the model again",
                         with(added.error().message, kIndexFile));
    }
    for (const auto& [tensor, shard] : index.value()) {
        const auto at = files.by_name_.find(tensor);
        if (at == files.by_name_.end() ||
            files.files_[at->second.file].path() != directory + "/" + shard) {
            return data_loss("{}: tensor {} is not in {}", with(index_path, tensor, shard));
        }
    }
    return files;
}

Result<> TensorFiles::add_file(const std::string& path) {
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

Result<> TensorFiles::rename(const NamePrefix& prefix) {
    AFD_ASSERT(prefix_.stored.empty(), "renamed for the second time");
    prefix_ = prefix;
    std::map<std::string, Entry, std::less<>> renamed;
    for (const auto& [name, entry] : by_name_) {
        SafetensorsFile& file = files_[entry.file];
        if (name.starts_with(prefix.stored)) {
            const std::string plain = std::string(prefix.plain) + name.substr(prefix.stored.size());
            file.rename(entry.tensor, plain);
            const Entry under_plain{entry.file, entry.tensor, true};
            if (!renamed.emplace(plain, under_plain).second) {
                return doubled(directory_, plain, prefix);
            }
        } else if (!prefix.kept.empty() && name.starts_with(prefix.kept)) {
            if (!renamed.emplace(name, entry).second) return doubled(directory_, name, prefix);
        } else {
            const TensorInfo& tensor = file.tensors()[entry.tensor];
            ++nameless_.count;
            nameless_.bytes += tensor.end - tensor.begin;
        }
    }
    by_name_ = std::move(renamed);
    return {};
}

const TensorInfo* TensorFiles::find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &files_[at->second.file].tensors()[at->second.tensor];
}

std::vector<const TensorInfo*> TensorFiles::list() const {
    std::vector<const TensorInfo*> tensors;
    for (const auto& [name, entry] : by_name_) {
        tensors.push_back(&files_[entry.file].tensors()[entry.tensor]);
    }
    return tensors;
}

uint64_t TensorFiles::total_bytes() const {
    uint64_t total = 0;
    for (const TensorInfo* tensor : list()) total += tensor->end - tensor->begin;
    return total;
}

Result<const TensorInfo*> TensorFiles::checked(std::string_view name,
                                               std::span<const uint64_t> shape,
                                               std::span<const StorageType> dtypes) const {
    const TensorInfo* tensor = find(name);
    if (tensor == nullptr) {
        return not_found("{}: tensor {} {} is missing from the weights",
                         with(directory_, prefix_.stored_name(name), shape_text(shape)));
    }
    const Entry& entry = by_name_.find(name)->second;
    const std::string where = files_[entry.file].path() + ": tensor " +
                              (entry.is_renamed ? prefix_.stored_name(name) : std::string(name));
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

void TensorFiles::will_read(const TensorInfo& tensor, uint64_t offset, uint64_t bytes) const {
    const auto at = by_name_.find(tensor.name);
    AFD_ASSERT(at != by_name_.end() && offset + bytes <= tensor.end - tensor.begin,
               "tensor %s, bytes %zu+%zu",
               tensor.name.c_str(),
               static_cast<size_t>(offset),
               static_cast<size_t>(bytes));
    files_[at->second.file].will_read(tensor.begin + offset, bytes);
}

Result<> TensorFiles::read_bytes(const TensorInfo& tensor,
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

Result<std::vector<float>> TensorFiles::read_f32(std::string_view name,
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

Result<std::vector<int64_t>> TensorFiles::read_integers(std::string_view name,
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

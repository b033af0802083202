// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace afd::model {

std::string safetensors_prefix(std::span<TensorPlace> tensors) {
    // Ordered, so that equal tensors give equal bytes in the order of the caller. Appended to: a
    // name that is set is looked for among all before it.
    auto header = nlohmann::ordered_json::object();
    auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
    members.reserve(tensors.size());
    uint64_t offset = 0;
    for (TensorPlace& tensor : tensors) {
        const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
        AFD_ASSERT(bytes.has_value(), "%s", tensor.name.c_str());
        tensor.begin = offset;
        tensor.end = offset += *bytes;
        nlohmann::ordered_json entry = {{"dtype", storage_type_name(tensor.dtype)},
                                        {"shape", tensor.shape},
                                        {"data_offsets", {tensor.begin, tensor.end}}};
        members.emplace_back(tensor.name, std::move(entry));
    }
    std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    // Spaces up to a multiple of 8, so that the data of the first tensor is aligned.
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string prefix(8, '\0');
    for (size_t i = 0; i < prefix.size(); ++i) {
        prefix[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
    }
    prefix += text;
    for (TensorPlace& tensor : tensors) {
        tensor.begin += prefix.size();
        tensor.end += prefix.size();
    }
    return prefix;
}

Result<> write_safetensors(WholeFile file, std::span<const TensorToWrite> tensors) {
    std::vector<TensorPlace> places;
    for (const TensorToWrite& tensor : tensors) {
        places.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    const std::string prefix = safetensors_prefix(places);
    AFD_TRY(file.write(std::as_bytes(std::span(prefix))));
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto data = tensors[i].data;
        AFD_ASSERT(places[i].end - places[i].begin == data.size(),
                   "%s has %zu bytes of data",
                   tensors[i].name.c_str(),
                   data.size());
        AFD_TRY(file.write(data));
    }
    return file.commit();
}

Result<> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors) {
    AFD_ASSIGN(WholeFile file, WholeFile::create(path));
    return write_safetensors(std::move(file), tensors);
}

}  // namespace afd::model

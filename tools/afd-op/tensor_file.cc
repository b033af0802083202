// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/tensor_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "model/safetensors/safetensors.h"
#include "model/safetensors/safetensors_writer.h"

namespace afd::tools {
namespace {

using model::StorageType;
using ops::DType;

constexpr std::array<std::pair<StorageType, DType>, 8> kTypes = {{
    {StorageType::kBf16, DType::kBf16},
    {StorageType::kF16, DType::kFp16},
    {StorageType::kF32, DType::kFp32},
    {StorageType::kI8, DType::kInt8},
    {StorageType::kI32, DType::kInt32},
    {StorageType::kI64, DType::kInt64},
    {StorageType::kU8, DType::kUint8},
    {StorageType::kBool, DType::kBool},
}};

// Always found: the table has every DType.
StorageType storage_type_of(DType dtype) {
    const auto* found = std::find_if(
        kTypes.begin(), kTypes.end(), [&](const auto& entry) { return entry.second == dtype; });
    return found->first;
}

Result<Tensor> read_tensor(const model::SafetensorsFile& file, const model::TensorInfo& info) {
    const auto* found = std::find_if(
        kTypes.begin(), kTypes.end(), [&](const auto& entry) { return entry.first == info.dtype; });
    if (found == kTypes.end()) {
        return Error{Code::kInvalidArgument,
                     file.path() + ": " + info.name + " has type " +
                         std::string(model::storage_type_name(info.dtype)) +
                         "; operators take BF16, F16, F32, I8, I32, I64, U8, BOOL"};
    }
    if (info.shape.size() > ops::TensorView::kRankMax) {
        return Error{Code::kInvalidArgument,
                     file.path() + ": " + info.name + " has " + std::to_string(info.shape.size()) +
                         " dimensions; operators take at most 4"};
    }
    Tensor tensor(found->second, {info.shape.begin(), info.shape.end()});
    AFD_TRY(file.read(info.begin, tensor.bytes()));
    return tensor;
}

}  // namespace

Tensor::Tensor(DType dtype, std::vector<size_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    size_ = size_of(dtype);
    for (const size_t extent : shape_) size_ *= extent;
    // One byte more, so that a tensor without elements has an address, too.
    memory_.reserve(size_ + 1);
    std::memset(memory_.bytes().data(), 0, memory_.bytes().size());
}

ops::TensorView Tensor::view() const {
    ops::TensorView view{.data = bytes().data(), .dtype = dtype_, .rank = shape_.size()};
    std::copy(shape_.begin(), shape_.end(), view.shape.begin());
    size_t stride = 1;
    for (size_t axis = view.rank; axis-- > 0;) {
        view.strides[axis] = stride;
        stride *= view.shape[axis];
    }
    return view;
}

Result<TensorMap> read_tensors(const std::string& path) {
    AFD_ASSIGN(const model::SafetensorsFile file, model::SafetensorsFile::open(path));
    TensorMap tensors;
    for (const model::TensorInfo& info : file.tensors()) {
        AFD_ASSIGN(Tensor tensor, read_tensor(file, info));
        tensors.emplace(info.name, std::move(tensor));
    }
    return tensors;
}

Result<> write_tensors(model::WholeFile file, const TensorMap& tensors) {
    std::vector<model::TensorToWrite> entries;
    for (const auto& [name, tensor] : tensors) {
        entries.push_back({name,
                           storage_type_of(tensor.dtype()),
                           {tensor.shape().begin(), tensor.shape().end()},
                           tensor.bytes()});
    }
    return model::write_safetensors(std::move(file), entries);
}

}  // namespace afd::tools

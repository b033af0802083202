// SPDX-License-Identifier: Apache-2.0
#pragma once

// SafetensorsFile: one validated *.safetensors file, and TensorStore: all tensors of a model
// directory, from one file or from the shards of model.safetensors.index.json.
//
//   0        8 bytes, little-endian: N, size of the header
//   8        N bytes of UTF-8 JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}
//   8 + N    data, row-major and little-endian; offsets count from here
//
// Invariants after open(): (1) the tensors, sorted by offset, tile the data exactly: no hole, no
// overlap, nothing behind the last. (2) Each tensor's byte range is what its shape and type need.
//
// Bytes are read with pread into the caller's buffers and never mapped: weights are repacked at
// load anyway, a file that shrinks meanwhile is an error and not a SIGBUS, and offsets that are not
// aligned need no care. Every message names the file and, where there is one, the tensor.
//
// Readers are const and may be called from several threads.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/bf16.h"
#include "proto/status.h"

namespace afd::model {

enum class StorageType : uint8_t {
    kBool,
    kU8,
    kI8,
    kF8E5M2,
    kF8E4M3,
    kF8E8M0,
    kF8E4M3Fnuz,
    kF8E5M2Fnuz,
    kI16,
    kU16,
    kF16,
    kBf16,
    kI32,
    kU32,
    kF32,
    kI64,
    kU64,
    kF64,
    kC64,
    kF4,
    kF6E2M3,
    kF6E3M2,
};

// As written in a header: "BF16", "F8_E4M3", ...
std::string_view storage_type_name(StorageType type);
unsigned storage_type_bits(StorageType type);

// "[2048, 512]", as messages show shapes.
std::string shape_text(std::span<const uint64_t> shape);

struct TensorInfo {
    std::string name;
    StorageType dtype = StorageType::kBf16;
    std::vector<uint64_t> shape;
    uint64_t begin = 0;  // Offset in the file, not in the data.
    uint64_t end = 0;
};

// The header's JSON may take this many bytes (the limit of the format's own library).
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr size_t kTensorRankMax = 8;
inline constexpr size_t kTensorNameBytesMax = 1024;
inline constexpr size_t kTensorsPerFileMax = 1'000'000;

class SafetensorsFile {
  public:
    // Opens (not through a symbolic link as the last step inside `directory`) and validates.
    // Errors: kNotFound, kPermissionDenied, kDataLoss.
    static Result<SafetensorsFile> open(const std::string& path);

    SafetensorsFile(SafetensorsFile&&) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
    ~SafetensorsFile();

    const std::string& path() const { return path_; }
    // Sorted by offset.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }

    // Copies `out.size()` bytes from `offset` in the file. Errors: kDataLoss when the file is
    // shorter than it was, kUnavailable when reading fails.
    Result<> read(uint64_t offset, std::span<std::byte> out) const;

  private:
    SafetensorsFile() = default;

    std::string path_;
    int fd_ = -1;
    std::vector<TensorInfo> tensors_;
};

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

    // The tensor's elements, row-major. BF16 as stored; F32 rounded to bf16, half to even.
    // Errors: kNotFound, kInvalidArgument (another shape; both are named), kUnimplemented (another
    // type), and those of SafetensorsFile::read.
    Result<std::vector<ops::Bf16>> read_bf16(std::string_view name,
                                             std::span<const uint64_t> shape) const;

    // The same in fp32; BF16 is widened.
    Result<std::vector<float>> read_f32(std::string_view name,
                                        std::span<const uint64_t> shape) const;

    // Raw bytes [offset, offset + out.size()) of the tensor. REQUIRES: inside the tensor.
    Result<> read_bytes(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;

  private:
    struct Entry {
        size_t file = 0;
        size_t tensor = 0;
    };

    Result<> add_file(const std::string& path);
    Result<const TensorInfo*> checked(std::string_view name, std::span<const uint64_t> shape) const;

    std::string directory_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, Entry, std::less<>> by_name_;
};

}  // namespace afd::model

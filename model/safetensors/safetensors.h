// SPDX-License-Identifier: Apache-2.0
#pragma once

// SafetensorsFile: one validated *.safetensors file. All tensors of a model directory together are
// model/checkpoint/tensor_store.h.
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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/safetensors/storage_type.h"
#include "proto/status.h"

namespace afd::model {

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

// Reads a header: `text` is the JSON, `data_bytes` what follows it in the file and `data_begin` the
// file offset of that. Sorted by offset. `origin` (the path) starts every message.
// Errors: kDataLoss.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view text,
                                                         uint64_t data_begin,
                                                         uint64_t data_bytes,
                                                         const std::string& origin);

class SafetensorsFile {
  public:
    // Opens and validates. (Symbolic links are followed: model caches are full of them.)
    // Errors: kNotFound, kPermissionDenied, kDataLoss.
    static Result<SafetensorsFile> open(const std::string& path);

    SafetensorsFile(SafetensorsFile&&) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
    ~SafetensorsFile();

    const std::string& path() const { return path_; }
    // Sorted by offset.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }

    // What changes when the open file does, as text: its size, device and inode, and when its bytes
    // and its inode changed last. Errors: kUnavailable.
    Result<std::string> stamp() const;
    // Under another name from now on. Not thread-safe.
    void rename(size_t tensor, std::string name) { tensors_[tensor].name = std::move(name); }

    // Copies `out.size()` bytes from `offset` in the file. Errors: kDataLoss when the file is
    // shorter than it was, kUnavailable when reading fails.
    Result<> read(uint64_t offset, std::span<std::byte> out) const;

    // Tells the kernel that these bytes will be read, and waits for nothing: a disk is fast only
    // with much to do at once.
    void will_read(uint64_t offset, uint64_t bytes) const;

  private:
    SafetensorsFile() = default;

    std::string path_;
    int fd_ = -1;
    std::vector<TensorInfo> tensors_;
};

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

// TensorFiles: all tensors of a model directory, from one file or from the shards that
// model.safetensors.index.json lists, as they are stored. As weights: TensorStore. Const and
// thread-safe after open() and rename().

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors/huge_vector.h"
#include "model/safetensors/safetensors.h"
#include "proto/status.h"

namespace afd::model {

// How some names begin in the files, and how programs call them.
struct NamePrefix {
    std::string_view stored;
    std::string_view plain;
    std::string_view kept;  // Names that begin so are plain already; "": none.

    // As files have the name, if it is not one of the kept ones.
    std::string stored_name(std::string_view plain_name) const;
};

class TensorFiles {
  public:
    // Tensors that rename() has left without a name.
    struct Nameless {
        size_t count = 0;
        uint64_t bytes = 0;
    };

    // Opens model.safetensors.index.json and its shards, or model.safetensors.
    // Errors: kNotFound (neither exists; the message lists what the directory holds; or a shard
    // does not, which the index names), kDataLoss (a shard's name is not a bare file name, a tensor
    // is not in the shard the index names, a tensor is in two shards).
    static Result<TensorFiles> open(const std::string& directory);

    // Adds the tensors of a file that the index does not name. Errors: those of
    // SafetensorsFile::open(), kDataLoss for a tensor that is there already.
    Result<> add_file(const std::string& path);

    // Tensors are found and listed by their plain names from now on; those whose stored names begin
    // in another way are not there any more. Messages of this class have the stored names; what is
    // missing would have that of `prefix`. Files that are added later keep their names.
    // REQUIRES: for the first time; what `prefix` views lives as long as the program.
    // Errors: kDataLoss: two tensors have one plain name.
    Result<> rename(const NamePrefix& prefix);
    const Nameless& nameless() const { return nameless_; }

    // Null if there is no such tensor.
    const TensorInfo* find(std::string_view name) const;

    // All tensors, by name.
    std::vector<const TensorInfo*> list() const;
    // As they lie on the disk.
    const std::vector<SafetensorsFile>& files() const { return files_; }
    // What they take on the disk.
    uint64_t total_bytes() const;

    // The tensor's elements in fp32, row-major; BF16 and F16 are widened, which is exact.
    // Errors: kNotFound, kInvalidArgument (another shape; both are named), kUnimplemented (another
    // type), and those of SafetensorsFile::read.
    Result<std::vector<float>> read_f32(std::string_view name,
                                        std::span<const uint64_t> shape) const;

    // The same for integers: I32 or I64.
    Result<std::vector<int64_t>> read_integers(std::string_view name,
                                               std::span<const uint64_t> shape) const;

    // The whole tensor, values as stored. Memory is taken for what the file holds, after its shape
    // was found to be `shape`. Errors: as read_f32; kUnimplemented names both types.
    // REQUIRES: T is as wide as a value of `dtype`.
    template <typename T>
    Result<std::vector<T>> read_as_stored(std::string_view name,
                                          StorageType dtype,
                                          std::span<const uint64_t> shape) const {
        AFD_ASSIGN(const TensorInfo* tensor, checked(name, shape, std::span(&dtype, 1)));
        auto values = huge_vector<T>((tensor->end - tensor->begin) / sizeof(T));
        AFD_TRY(read_bytes(*tensor, 0, std::as_writable_bytes(std::span(values))));
        return values;
    }

    // Tells the kernel that bytes of the tensor will be read. REQUIRES: as read_bytes().
    void will_read(const TensorInfo& tensor, uint64_t offset, uint64_t bytes) const;

    // Raw bytes [offset, offset + out.size()) of the tensor. REQUIRES: inside the tensor.
    Result<> read_bytes(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;

    // The tensor of that name if it has this shape and one of these types.
    Result<const TensorInfo*> checked(std::string_view name,
                                      std::span<const uint64_t> shape,
                                      std::span<const StorageType> dtypes) const;

  private:
    struct Entry {
        size_t file = 0;
        size_t tensor = 0;
        bool is_renamed = false;  // NamePrefix::stored_name() has its name in the file.
    };

    std::string directory_;
    std::vector<SafetensorsFile> files_;
    NamePrefix prefix_;
    Nameless nameless_;
    std::map<std::string, Entry, std::less<>> by_name_;
};

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json/json_document.h"
#include "model/json/other_format.h"
#include "model/safetensors/file_error.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kPrefixBytes = 8;
// Larger numbers in a header are nonsense and would only feed overflows.
constexpr uint64_t kNumberMax = uint64_t{1} << 48;

template <typename... Values>
Error bad_tensor(const std::string& origin,
                 const std::string& name,
                 Text<Values...> what,
                 const With<Values...>& values = {}) {
    return data_loss("{}: tensor {}: {}", with(origin, name, fmt::vformat(what, values)));
}

Result<std::vector<uint64_t>> read_numbers(const Json& entry,
                                           const char* key,
                                           const std::string& name,
                                           const std::string& origin) {
    const auto at = entry.find(key);
    if (at == entry.end() || !at->is_array()) {
        return bad_tensor(origin, name, "{} is missing or not an array", with(key));
    }
    std::vector<uint64_t> numbers;
    for (const Json& number : *at) {
        if (!number.is_number_unsigned() || number.get<uint64_t>() > kNumberMax) {
            return bad_tensor(origin,
                              name,
                              "{} holds {}; only integers in [0, 2^48] are valid",
                              with(key, number.dump()));
        }
        numbers.push_back(number.get<uint64_t>());
    }
    return numbers;
}

Result<TensorInfo> read_entry(const std::string& name,
                              const Json& entry,
                              const std::string& origin) {
    TensorInfo tensor;
    tensor.name = name;
    if (name.size() > kTensorNameBytesMax) {
        return bad_tensor(origin,
                          name.substr(0, 64) + "...",
                          "its name has {} bytes; at most {} are accepted",
                          with(name.size(), kTensorNameBytesMax));
    }
    if (!entry.is_object()) return bad_tensor(origin, name, "its entry is not an object");
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string()) {
        return bad_tensor(origin, name, "dtype is missing or not a string");
    }
    const auto type = parse_storage_type(dtype->get_ref<const std::string&>());
    if (!type) return bad_tensor(origin, name, "unknown dtype {}", with(dtype->dump()));
    tensor.dtype = *type;
    AFD_ASSIGN(tensor.shape, read_numbers(entry, "shape", name, origin));
    if (tensor.shape.size() > kTensorRankMax) {
        return bad_tensor(origin,
                          name,
                          "its shape has {} dimensions; at most {} are accepted",
                          with(tensor.shape.size(), kTensorRankMax));
    }
    AFD_ASSIGN(const auto offsets, read_numbers(entry, "data_offsets", name, origin));
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
        return bad_tensor(origin, name, "data_offsets are not [begin, end] with begin <= end");
    }
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    return tensor;
}

Result<> check_metadata(const Json& metadata, const std::string& origin) {
    bool is_text = metadata.is_object();
    for (const Json& value : metadata) is_text = is_text && value.is_string();
    if (is_text) return {};
    return data_loss("{}: __metadata__ is not an object of strings", with(origin));
}

// Invariants (1) and (2) of the header; `tensors` is sorted by offset.
Result<> check_tiling(const std::vector<TensorInfo>& tensors,
                      uint64_t data_bytes,
                      const std::string& origin) {
    uint64_t expected_begin = 0;
    for (const TensorInfo& tensor : tensors) {
        // No holes and no overlaps: two names for the same bytes, or bytes of nobody, are no
        // checkpoint.
        if (tensor.begin != expected_begin) {
            return bad_tensor(origin,
                              tensor.name,
                              "its data begins at {}, the tensor before ends at {}{}",
                              with(tensor.begin,
                                   expected_begin,
                                   tensor.begin < expected_begin ? " (overlap)" : " (hole)"));
        }
        const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
        const auto type = storage_type_name(tensor.dtype);
        if (!bytes) {
            return bad_tensor(origin,
                              tensor.name,
                              "{} {} is not a whole number of bytes below 2^64",
                              with(type, shape_text(tensor.shape)));
        }
        if (*bytes != tensor.end - tensor.begin) {
            return bad_tensor(
                origin,
                tensor.name,
                "{} {} needs {} bytes, data_offsets give {}",
                with(type, shape_text(tensor.shape), *bytes, tensor.end - tensor.begin));
        }
        expected_begin = tensor.end;
    }
    if (expected_begin != data_bytes) {
        return data_loss(
            "{}: the tensors end at {} of the data, the file holds {} bytes of it{}",
            with(origin,
                 expected_begin,
                 data_bytes,
                 expected_begin > data_bytes ? " (truncated file)" : " (trailing bytes)"));
    }
    return {};
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view text,
                                                         uint64_t data_begin,
                                                         uint64_t data_bytes,
                                                         const std::string& origin) {
    if (text.empty() || text.front() != '{') {
        return data_loss("{}: the header does not begin with '{{'", with(origin));
    }
    AFD_ASSIGN(const Json header, parse_json(text, origin + ": header"));
    if (header.size() > kTensorsPerFileMax) {
        return data_loss("{}: {} tensors; at most {} are accepted",
                         with(origin, header.size(), kTensorsPerFileMax));
    }
    std::vector<TensorInfo> tensors;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") {
            AFD_TRY(check_metadata(entry, origin));
            continue;
        }
        AFD_ASSIGN(TensorInfo tensor, read_entry(name, entry, origin));
        tensors.push_back(std::move(tensor));
    }
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
        // By the end as well: an empty tensor stands at the beginning of the next one.
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    AFD_TRY(check_tiling(tensors, data_bytes, origin));
    for (TensorInfo& tensor : tensors) {
        tensor.begin += data_begin;
        tensor.end += data_begin;
    }
    return tensors;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
    SafetensorsFile file;
    file.path_ = path;
    file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd_ < 0) return Error{file_error_code(errno), path + ": " + std::strerror(errno)};
    struct stat status {};
    if (::fstat(file.fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
        return data_loss("{}: not a regular file", with(path));
    }
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    if (file_bytes < kPrefixBytes) {
        return data_loss("{}: {} bytes are too few for a safetensors file", with(path, file_bytes));
    }
    std::array<std::byte, kPrefixBytes> prefix;
    AFD_TRY(file.read(0, prefix));
    uint64_t header_bytes = 0;
    for (size_t i = 0; i < kPrefixBytes; ++i) {
        // Byte by byte: little-endian by the format, whatever this machine is.
        header_bytes |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
    }
    // Before the string is made: the number is the file's, and could ask for any amount of memory.
    if (header_bytes > kSafetensorsHeaderBytesMax || header_bytes > file_bytes - kPrefixBytes) {
        const std::string_view text(reinterpret_cast<const char*>(prefix.data()), prefix.size());
        const std::string other = other_format_text(text, "safetensors file");
        if (!other.empty()) return data_loss("{}: {}", with(path, other));
        return data_loss(
            "{}: a header of {} bytes is announced in a file of {}; at most {} and what the file "
            "holds are accepted (truncated file?)",
            with(path, header_bytes, file_bytes, kSafetensorsHeaderBytesMax));
    }
    std::string header(header_bytes, '\0');
    AFD_TRY(file.read(kPrefixBytes, std::as_writable_bytes(std::span(header))));
    const uint64_t data_begin = kPrefixBytes + header_bytes;
    AFD_ASSIGN(file.tensors_,
               parse_safetensors_header(header, data_begin, file_bytes - data_begin, path));
    return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      tensors_(std::move(other.tensors_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(tensors_, other.tensors_);
    return *this;
}

SafetensorsFile::~SafetensorsFile() {
    if (fd_ >= 0) ::close(fd_);
}

Result<std::string> SafetensorsFile::stamp() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) {
        return unavailable("{}: its size and times cannot be read: {}",
                           with(path_, std::strerror(errno)));
    }
    // Whoever sets the time of the bytes back changes that of the inode.
    return fmt::format("{} bytes, device {}, inode {}, written {}.{:09}, changed {}.{:09}",
                       status.st_size,
                       status.st_dev,
                       status.st_ino,
                       status.st_mtim.tv_sec,
                       status.st_mtim.tv_nsec,
                       status.st_ctim.tv_sec,
                       status.st_ctim.tv_nsec);
}

void SafetensorsFile::will_read(uint64_t offset, uint64_t bytes) const {
    // To the kernel no bytes are all that follow.
    if (bytes == 0) return;
    ::posix_fadvise(
        fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

Result<> SafetensorsFile::read(uint64_t offset, std::span<std::byte> out) const {
    // The kernel's own reading ahead follows a reader; it leaves a fast disk idle in between.
    constexpr size_t kLongRead = 1u << 20;
    if (out.size() >= kLongRead) will_read(offset, out.size());
    while (!out.empty()) {
        // Read and not mapped: a file that shrinks meanwhile is then an error and no SIGBUS.
        // Weights are repacked anyway.
        const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return unavailable("{}: reading: {}", with(path_, std::strerror(errno)));
        }
        if (got == 0) {
            return data_loss("{}: ends at byte {}, {} more were expected (the file became shorter)",
                             with(path_, offset, out.size()));
        }
        offset += static_cast<uint64_t>(got);
        out = out.subspan(static_cast<size_t>(got));
    }
    return {};
}

}  // namespace afd::model

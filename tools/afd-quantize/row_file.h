// SPDX-License-Identifier: Apache-2.0
#pragma once

// RowFile: rows of one size in a file without a name, which goes with the process: what memory need
// not hold between two layers. Read and written by one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::tools {

class RowFile {
  public:
    // In `directory`. Errors: those of model::file_error_code().
    static Result<RowFile> create(const std::string& directory, size_t row_bytes);

    RowFile(RowFile&& other) noexcept
        : directory_(std::move(other.directory_)),
          fd_(std::exchange(other.fd_, -1)),
          row_bytes_(other.row_bytes_) {}
    RowFile& operator=(RowFile&&) = delete;
    ~RowFile();

    // Rows from `first` on, as many as `rows` holds. Errors: kResourceExhausted, kUnavailable; of
    // read() also kDataLoss for a row that was never written.
    Result<> write(uint64_t first, std::span<const std::byte> rows) const;
    Result<> read(uint64_t first, std::span<std::byte> rows) const;
    Result<> write(uint64_t first, std::span<const ops::Bf16> rows) const {
        return write(first, std::as_bytes(rows));
    }
    Result<> read(uint64_t first, std::span<ops::Bf16> rows) const {
        return read(first, std::as_writable_bytes(rows));
    }

  private:
    RowFile(std::string directory, int fd, size_t row_bytes)
        : directory_(std::move(directory)), fd_(fd), row_bytes_(row_bytes) {}
    Error failure(const char* what, int error) const;

    std::string directory_;
    int fd_;
    size_t row_bytes_;
};

}  // namespace afd::tools

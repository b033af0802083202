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

namespace afd {

class RowFile {
  public:
    // In `directory`. Rows are of `num_columns`. Errors: kPermissionDenied, kResourceExhausted,
    // kUnavailable.
    static Result<RowFile> create(const std::string& directory, size_t num_columns);

    RowFile(RowFile&& other) noexcept
        : directory_(std::move(other.directory_)),
          fd_(std::exchange(other.fd_, -1)),
          num_columns_(other.num_columns_) {}
    RowFile& operator=(RowFile&&) = delete;
    ~RowFile();

    // Rows from `first` on, as many as `rows` holds. Errors: kResourceExhausted, kUnavailable; of
    // read() also kDataLoss for a row that was never written.
    Result<> write(uint64_t first, std::span<const ops::Bf16> rows) const;
    Result<> read(uint64_t first, std::span<ops::Bf16> rows) const;

  private:
    RowFile(std::string directory, int fd, size_t num_columns)
        : directory_(std::move(directory)), fd_(fd), num_columns_(num_columns) {}
    Error failure(const char* what, int error) const;

    std::string directory_;
    int fd_;
    size_t num_columns_;
};

}  // namespace afd

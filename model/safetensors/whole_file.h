// SPDX-License-Identifier: Apache-2.0
#pragma once

// WholeFile: a file that is there whole or not at all. It is written beside its place, and takes it
// when everything is on the disk; whatever was there before stays until then, and stays when the
// writing fails. The new file has the mode of any new file: the folder must be writable, the old
// file need not be. A process that is killed leaves a file `path`.RANDOM.tmp.
//
// Made before the work whose result it is to hold: a place that cannot be written shows at once.

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "proto/status.h"

namespace afd::model {

class WholeFile {
  public:
    // `path` may be a link to the place. Where something else than a file stands (a pipe, a device)
    // it is written into directly.
    // Errors: kPermissionDenied, kResourceExhausted (a full disk), kNotFound (no such folder),
    // kUnavailable.
    static Result<WholeFile> create(const std::string& path);

    WholeFile(WholeFile&& other) noexcept;
    WholeFile& operator=(WholeFile&&) = delete;
    ~WholeFile();

    // Appends. Errors: as create().
    Result<> write(std::span<const std::byte> bytes);

    // Gives it its place. Nothing is written afterwards. Errors: as create().
    Result<> commit();

  private:
    WholeFile(std::string path, std::string written) noexcept
        : path_(std::move(path)), written_(std::move(written)) {}
    bool is_beside() const { return written_ != path_; }
    void open_beside();
    Error failure(const char* what) const;

    std::string path_;
    std::string written_;  // Where the bytes go until commit().
    int fd_ = -1;
};

// The whole file at once.
Result<> write_whole_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace afd::model

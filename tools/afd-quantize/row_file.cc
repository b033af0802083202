// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/row_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/safetensors/file_error.h"
#include "model/safetensors/write_at.h"

namespace afd::tools {

Result<RowFile> RowFile::create(const std::string& directory, size_t row_bytes) {
    std::string path = directory + "/rows-XXXXXX";
    const int fd = ::mkostemp(path.data(), O_CLOEXEC);
    RowFile file(directory, fd, row_bytes);
    if (fd < 0) return file.failure("making a file", errno);
    ::unlink(path.c_str());
    return file;
}

RowFile::~RowFile() {
    if (fd_ >= 0) ::close(fd_);
}

Error RowFile::failure(const char* what, int error) const {
    return Error{model::file_error_code(error),
                 directory_ + ": " + what + " for intermediate rows: " + std::strerror(error)};
}

Result<> RowFile::write(uint64_t first, std::span<const std::byte> rows) const {
    const int error = model::write_at(fd_, first * row_bytes_, rows);
    if (error != 0) return failure("writing", error);
    return {};
}

Result<> RowFile::read(uint64_t first, std::span<std::byte> rows) const {
    uint64_t offset = first * row_bytes_;
    while (!rows.empty()) {
        const ssize_t done = ::pread(fd_, rows.data(), rows.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return failure("reading", errno);
        if (done == 0) {
            return Error{Code::kDataLoss, directory_ + ": intermediate rows are missing"};
        }
        offset += static_cast<uint64_t>(done);
        rows = rows.subspan(static_cast<size_t>(done));
    }
    return {};
}

}  // namespace afd::tools

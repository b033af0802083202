// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/whole_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "model/safetensors/file_error.h"
#include "proto/check.h"
#include "proto/write_all.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;

// As the kernel has it.
constexpr int kLinksMax = 40;
// Of 2^32, each taken by a process that was killed.
constexpr int kNamesMax = 100;

// Writes the names in the folder of `path` to the disk: they are what a rename changes. A file
// system that cannot do it has done what it can.
void flush_folder(const std::string& path) {
    const std::string folder = fs::path(path).parent_path();
    const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ::fsync(fd);
    ::close(fd);
}

}  // namespace

WholeFile::WholeFile(WholeFile&& other) noexcept
    : path_(std::move(other.path_)),
      written_(std::move(other.written_)),
      fd_(std::exchange(other.fd_, -1)) {}

WholeFile::~WholeFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (is_beside()) ::unlink(written_.c_str());
}

Error WholeFile::failure(const char* what) const {
    const int error = errno;
    return Error{file_error_code(error), path_ + ": " + what + ": " + std::strerror(error)};
}

Result<WholeFile> WholeFile::create(const std::string& path) {
    std::error_code error;
    std::string place = path;
    const fs::file_status status = fs::status(path, error);
    const bool is_beside = !fs::exists(status) || fs::is_regular_file(status);
    // Also through links to what is not there yet. A pipe or device is opened by its own name.
    for (int i = 0; is_beside && i < kLinksMax && fs::is_symlink(place, error); ++i) {
        const fs::path target = fs::read_symlink(place, error);
        if (error) break;
        place = (fs::path(place).parent_path() / target).string();
    }
    WholeFile file(place, place);
    if (is_beside) {
        file.open_beside();
    } else {
        file.fd_ = ::open(place.c_str(), O_WRONLY | O_CLOEXEC);
    }
    if (file.fd_ < 0) return file.failure("cannot be written");
    return file;
}

// Under a name that nobody else has: two that write the same file do not write into one, be they in
// one process or in two containers, where they may have the same id. Not mkstemp(): the mode is to
// be that of any new file.
void WholeFile::open_beside() {
    for (int i = 0; i < kNamesMax; ++i) {
        uint32_t random = 0;
        const ssize_t size = ::getrandom(&random, sizeof(random), 0);
        AFD_ASSERT(size == sizeof(random), "getrandom gave %zd bytes", size);
        written_ = fmt::format("{}.{:08x}.tmp", path_, random);
        const int flags = O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL | O_NOFOLLOW;
        fd_ = ::open(written_.c_str(), flags, 0666);
        if (fd_ >= 0 || errno != EEXIST) return;
    }
}

Result<> WholeFile::write(std::span<const std::byte> bytes) {
    return write_all(fd_, bytes) ? Result<>() : failure("writing");
}

Result<> WholeFile::commit() {
    if (is_beside()) {
        if (::fsync(fd_) != 0) return failure("flushing");
        if (::rename(written_.c_str(), path_.c_str()) != 0) return failure("replacing");
        flush_folder(path_);
    }
    // What network file systems say last.
    if (::close(std::exchange(fd_, -1)) != 0) return failure("closing");
    return {};
}

Result<> write_whole_file(const std::string& path, std::span<const std::byte> bytes) {
    AFD_ASSIGN(WholeFile file, WholeFile::create(path));
    AFD_TRY(file.write(bytes));
    return file.commit();
}

}  // namespace afd::model

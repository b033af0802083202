// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/cluster_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>

#include "proto/write_all.h"

namespace afd::client {
namespace {

afd::Error refused(const std::string& path, const char* what, int error) {
    return {Code::kPermissionDenied, fmt::format("{}: {}: {}", path, what, std::strerror(error))};
}

// Its names are on the disk, too.
bool sync_directory(const std::string& path) {
    const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return false;
    const bool is_synced = ::fsync(directory) == 0;
    ::close(directory);
    return is_synced;
}

}  // namespace

Result<std::optional<std::string>> read_cluster_file(const std::string& path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) {
        if (errno == ENOENT) return std::optional<std::string>();
        return refused(path, "cannot be read", errno);
    }
    if (!S_ISREG(about.st_mode)) return refused(path, "is no file", EINVAL);
    std::ifstream file(path, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    if (!file) return refused(path, "cannot be read", errno);
    return std::optional(std::move(bytes).str());
}

Result<> write_cluster_file(const std::string& path, std::string_view bytes, mode_t mode) {
    const size_t slash = path.rfind('/');
    const std::string directory = path.substr(0, slash);
    std::string draft = directory + "/." + path.substr(slash + 1) + ".XXXXXX";
    const int file = ::mkostemp(draft.data(), O_CLOEXEC);
    if (file < 0) return refused(path, "cannot be written", errno);
    const bool is_written = ::fchmod(file, mode) == 0 &&
                            write_all(file, std::as_bytes(std::span(bytes))) && ::fsync(file) == 0;
    // A link, unlike a rename, replaces nothing.
    const bool is_there = is_written && ::link(draft.c_str(), path.c_str()) == 0;
    const int error = errno;
    ::close(file);
    ::unlink(draft.c_str());
    if (is_there) {
        return sync_directory(directory) ? Result<>() : refused(path, "cannot be synced", errno);
    }
    if (error != EEXIST) return refused(path, "cannot be written", error);
    return afd::Error{Code::kAlreadyExists,
                      fmt::format("{}: another process made it meanwhile; run this again", path)};
}

}  // namespace afd::client

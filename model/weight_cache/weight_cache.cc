// SPDX-License-Identifier: Apache-2.0
#include "model/weight_cache/weight_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "model/safetensors/file_error.h"

namespace afd::model {
namespace {

Error directory_failure(const std::string& path, const char* what, int error = errno) {
    const Code code = error == ENOTDIR ? Code::kInvalidArgument : file_error_code(error);
    return Error{code,
                 path + ": " + what + ": " + std::strerror(error) +
                     "; set weight_cache to a directory of yours, or to off"};
}

Result<> create_with_parents(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        const std::string parent = path.substr(0, at);
        const int error = ::mkdir(parent.c_str(), 0700) == 0 ? 0 : errno;
        // A parent that is there may be refused for other reasons than that, as on a disk that is
        // read-only.
        if (error != 0 && error != EEXIST && ::access(parent.c_str(), F_OK) != 0) {
            return directory_failure(parent, "creating", error);
        }
    }
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return directory_failure(path, "creating");
    return {};
}

Result<> check_private(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return directory_failure(path, "looking");
    if (!S_ISDIR(status.st_mode)) {
        return Error{Code::kInvalidArgument,
                     path + ": not a directory; set weight_cache to one, or to off"};
    }
    // Files are mapped and used as they are for hours. Who can write here decides what the model
    // says.
    if (status.st_uid == ::geteuid() && (status.st_mode & 022) == 0) return {};
    return Error{Code::kPermissionDenied,
                 path +
                     ": belongs to another user or is writable for others, who could then change "
                     "weights that are in use; chmod 700 it, or set weight_cache to a directory of "
                     "yours or to off"};
}

}  // namespace

Result<WeightCache> WeightCache::open(const std::string& directory) {
    WeightCache cache;
    if (directory.empty()) return cache;
    AFD_TRY(create_with_parents(directory));
    AFD_TRY(check_private(directory));
    cache.directory_ = directory;
    return cache;
}

bool WeightCache::is_usable(const std::string& directory) {
    std::error_code error;
    std::filesystem::path made_in(directory);
    if (directory.empty()) return false;
    if (std::filesystem::exists(made_in, error)) return check_private(directory).ok();
    while (made_in.has_relative_path() && !std::filesystem::exists(made_in, error)) {
        made_in = made_in.parent_path();
    }
    if (made_in.empty()) made_in = ".";
    // A program, too, may be written and executed.
    return std::filesystem::is_directory(made_in, error) &&
           ::access(made_in.c_str(), W_OK | X_OK) == 0;
}

Result<std::string> WeightCache::folder(const std::string& name) const {
    const std::string path = directory_ + "/" + name;
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return directory_failure(path, "creating");
    AFD_TRY(check_private(path));
    return path;
}

std::string default_weight_cache_directory() {
    const char* cache_home = std::getenv("XDG_CACHE_HOME");
    // A relative path is to be ignored, says the XDG specification.
    if (cache_home != nullptr && cache_home[0] == '/') return std::string(cache_home) + "/afd";
    const char* home = std::getenv("HOME");
    if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/afd";
    return {};
}

}  // namespace afd::model

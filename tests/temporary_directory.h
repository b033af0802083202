// SPDX-License-Identifier: Apache-2.0
#pragma once

// TemporaryDirectory: a private directory, removed with everything in it at the end of the object.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "proto/check.h"

namespace afd::test {

class TemporaryDirectory {
  public:
    TemporaryDirectory()
        : path_((std::filesystem::temp_directory_path() / "afd-test-XXXXXX").string()) {
        AFD_ASSERT(::mkdtemp(path_.data()) != nullptr, "no directory %s", path_.c_str());
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::string& path() const { return path_; }
    std::string path(const std::string& name) const { return path_ + "/" + name; }

    // Writes a file and returns its path.
    std::string write(const std::string& name, std::string_view bytes) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        // Whatever the umask: afdd refuses files that others can write.
        std::filesystem::permissions(
            path(name),
            std::filesystem::perms::group_write | std::filesystem::perms::others_write,
            std::filesystem::perm_options::remove);
        return path(name);
    }

    // "afd" in it, as its owner's runtime directory has one for sockets; returns its path.
    std::string make_socket_directory() const {
        std::filesystem::create_directory(path("afd"));
        std::filesystem::permissions(path("afd"), std::filesystem::perms::owner_all);
        return path("afd");
    }

  private:
    std::string path_;
};

}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

// TemporaryDirectory: a directory of one test, removed with its contents at the end.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace afd::model {

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "afd-model-XXXXXX").string();
        EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
        path_ = pattern;
    }
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::string& path() const { return path_; }

    // Writes a file and returns its path.
    std::string write(const std::string& name, std::string_view bytes) const {
        std::ofstream stream(path_ + "/" + name, std::ios::binary);
        stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return path_ + "/" + name;
    }

  private:
    std::string path_;
};

}  // namespace afd::model

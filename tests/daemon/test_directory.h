// SPDX-License-Identifier: Apache-2.0
#pragma once

// A private directory that goes away with everything in it.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace afd::daemon {

class TestDirectory {
  public:
    TestDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "afd-test-XXXXXX").string();
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~TestDirectory() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    TestDirectory(const TestDirectory&) = delete;
    TestDirectory& operator=(const TestDirectory&) = delete;

    std::string path(const std::string& name) const { return path_ + "/" + name; }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name)) << text;
        return path(name);
    }

  private:
    std::string path_;
};

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/footprint.h"

#include <filesystem>
#include <fstream>

namespace afd::test {
namespace {

namespace fs = std::filesystem;

}  // namespace

Footprint footprint_of(pid_t pid) {
    const std::string self = "/proc/" + std::to_string(pid);
    Footprint found;
    found.num_descriptors = std::distance(fs::directory_iterator(self + "/fd"), {});
    std::ifstream status(self + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("RssAnon:", 0) == 0) found.kib = std::stoll(line.substr(8));
    }
    return found;
}

std::string descriptors_of(pid_t pid) {
    std::string text;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        text += "  " + fs::read_symlink(entry.path(), ignored).string() + "\n";
    }
    return text;
}

}  // namespace afd::test

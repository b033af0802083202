// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "clients/afdctl/command.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

// The afdd that is installed beside this program; else the one along PATH.
std::string find_afdd() {
    std::array<char, 4096> path{};
    const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
    if (size <= 0) return "afdd";
    const std::string own(path.data(), static_cast<size_t>(size));
    const std::string beside = own.substr(0, own.rfind('/')) + "/afdd";
    return ::access(beside.c_str(), X_OK) == 0 ? beside : "afdd";
}

}  // namespace

// afdd itself knows what it needs, and which kernels it would take: it is asked, by its own
// configuration and the arguments that are given.
int run_doctor(const CommonOptions& common, const DoctorOptions& options) {
    std::vector<std::string> arguments = {find_afdd(), "--doctor"};
    if (common.json) arguments.emplace_back("--json");
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    const std::string why = std::strerror(errno);
    return report_failure(common,
                          {Code::kNotFound,
                           "doctor: " + arguments[0] + " cannot be started: " + why +
                               "; install it beside afdctl, or put it into PATH"},
                          true);
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/ucx/child_output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "proto/check.h"

namespace afd::schedule {

ChildOutput::ChildOutput() : fd_(::memfd_create("child output", MFD_CLOEXEC)) {
    AFD_ASSERT(fd_ >= 0, "no memory for the output of children");
}

ChildOutput::~ChildOutput() {
    const std::string all = text();
    std::fwrite(all.data(), 1, all.size(), stderr);
    ::close(fd_);
}

void ChildOutput::take_over() const {
    // One offset for all of them, since they inherit the descriptor.
    ::dup2(fd_, STDOUT_FILENO);
    ::dup2(fd_, STDERR_FILENO);
}

bool ChildOutput::has_abort_of_ucx(pid_t pid) const {
    std::istringstream lines(text());
    // "[host:process:", the process filled with blanks to five characters.
    const std::string process = ":" + std::to_string(pid);
    for (std::string line; std::getline(lines, line);) {
        const size_t begin = line.find(process);
        if (begin == std::string::npos || line.find("Assertion `") == std::string::npos) continue;
        const char behind = line[begin + process.size()];
        if (behind == ':' || behind == ' ') return true;
    }
    return false;
}

std::string ChildOutput::text() const {
    std::string all;
    std::array<char, 4096> piece;
    ssize_t size = 0;
    while ((size = ::pread(fd_, piece.data(), piece.size(), static_cast<off_t>(all.size()))) > 0) {
        all.append(piece.data(), static_cast<size_t>(size));
    }
    return all;
}

}  // namespace afd::schedule

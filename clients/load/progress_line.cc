// SPDX-License-Identifier: Apache-2.0
#include "clients/load/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace afd::client {
namespace {

bool is_capable_terminal() {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

// A longer line would wrap, and the next one could not write over it.
size_t columns() {
    winsize size = {};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
    return size_t{size.ws_col} - 1;
}

}  // namespace

ProgressLine::ProgressLine() : is_terminal_(is_capable_terminal()) {}

void ProgressLine::show(const std::string& text) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\033[K%s", text.substr(0, columns()).c_str());
    std::fflush(stderr);
    is_shown_ = true;
}

void ProgressLine::clear() {
    if (!is_shown_) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    is_shown_ = false;
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/terminal_screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace afd::client {
namespace {

// The other screen, no cursor, no wrapping of lines; and back.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[?7l";
constexpr std::string_view kLeave = "\033[?7h\033[?25h\033[?1049l";

termios saved;
bool has_saved = false;
// Whoever sets it back restores, once: the object, exit() or a signal.
std::atomic<bool> is_entered{false};
std::atomic<bool> was_resized{false};

void put(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t size = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
        if (size <= 0) return;
        bytes.remove_prefix(static_cast<size_t>(size));
    }
}

// Only what a signal handler may call, here and below.
void enter() {
    if (has_saved) {
        termios raw = saved;
        // Keys come at once and are not shown; Ctrl-C is still a signal.
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    is_entered = true;
    put(kEnter);
}

void restore() {
    if (!is_entered.exchange(false)) return;
    put(kLeave);
    if (has_saved) ::tcsetattr(STDIN_FILENO, TCSANOW, &saved);
}

void on_fatal(int number) {
    restore();
    ::signal(number, SIG_DFL);
    ::raise(number);
}

void on_resize(int /*number*/) {
    was_resized = true;
}

// Without SA_RESTART: it wakes poll().
void handle_signal(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    ::sigaction(number, &action, nullptr);
}

// Ctrl-Z: stops here, with the terminal as the shell expects it, until the shell lets it go on. The
// default action does it, because the kernel spares a process that nobody could continue.
void on_stop(int number) {
    const int saved_errno = errno;
    restore();
    handle_signal(number, SIG_DFL);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
    handle_signal(number, on_stop);
    enter();
    was_resized = true;
    errno = saved_errno;
}

}  // namespace

TerminalScreen::TerminalScreen() {
    has_saved = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &saved) == 0;
    std::atexit(restore);
    for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, on_fatal);
    enter();
    handle_signal(SIGWINCH, on_resize);
    handle_signal(SIGTSTP, on_stop);
}

TerminalScreen::~TerminalScreen() {
    handle_signal(SIGTSTP, SIG_DFL);
    restore();
}

ScreenSize TerminalScreen::size() {
    winsize window{};
    const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    if (!is_known) return {};
    return {window.ws_col, window.ws_row};
}

void TerminalScreen::draw(const std::vector<std::string>& lines) {
    // In one write, each line over the old one, so that nothing flickers.
    std::string bytes = "\033[H";
    for (size_t i = 0; i < lines.size(); ++i) {
        bytes += lines[i] + "\033[K";
        if (i + 1 < lines.size()) bytes += "\r\n";
    }
    put(bytes + "\033[J");
}

TerminalScreen::Wake TerminalScreen::wait(int timeout_ms, const Cancellation& cancellation) {
    pollfd items[] = {{cancellation.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    const nfds_t num_items = has_saved ? 2 : 1;
    const int found = ::poll(items, num_items, timeout_ms);
    if (cancellation.requested()) return Wake::kQuit;
    if (found > 0 && num_items == 2 && items[1].revents != 0) {
        char key = 'q';
        // A terminal that is gone quits, too.
        if (::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return Wake::kQuit;
        return Wake::kResized;
    }
    if (was_resized.exchange(false)) {
        return Wake::kResized;
    }
    return Wake::kTime;
}

}  // namespace afd::client

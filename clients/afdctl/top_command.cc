// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <iostream>

#include "clients/afdctl/command.h"
#include "clients/afdctl/terminal_screen.h"
#include "clients/afdctl/top_screen.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

constexpr int kIntervalMs = 1000;

void print(const CommonOptions& common, const Status& before, const Status& now) {
    if (common.json) {
        std::cout << top_json(before, now) << std::endl;
        return;
    }
    // For a file or a pipe there is no window whose end could cut something off.
    ScreenSize size;
    size.rows = 10'000;
    for (const std::string& line : top_lines(before, now, size)) std::cout << line << "\n";
    std::cout << std::endl;
}

// Until q, Ctrl-C or an error.
Result<> run_screen(Client& client, Status before, std::chrono::milliseconds timeout) {
    const Cancellation& cancellation = interrupt_cancellation();
    Status now = before;
    TerminalScreen screen;
    while (true) {
        screen.draw(top_lines(before, now, TerminalScreen::size()));
        switch (screen.wait(kIntervalMs, cancellation)) {
            case TerminalScreen::Wake::kQuit:
                return {};
            case TerminalScreen::Wake::kResized:
                continue;
            case TerminalScreen::Wake::kTime:
                break;
        }
        before = std::move(now);
        AFD_ASSIGN(now, client.status(timeout, &cancellation));
    }
}

}  // namespace

int run_top(const CommonOptions& common, const TopOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& cancellation = interrupt_cancellation();
    const auto timeout = to_milliseconds(options.timeout_s);
    Result<Status> before = client->status(timeout, &cancellation);
    if (!before.ok()) return report_failure(common, before.error(), false);
    if (!common.json && !options.once && ::isatty(STDOUT_FILENO) == 1) {
        const Result<> shown = run_screen(*client, std::move(before).value(), timeout);
        if (shown.ok()) return cancellation.requested() ? kExitInterrupted : kExitOk;
        if (shown.error().code == Code::kCancelled) return kExitInterrupted;
        return report_failure(common, shown.error(), false);
    }
    while (wait_interval(cancellation)) {
        Result<Status> now = client->status(timeout, &cancellation);
        if (!now.ok()) return report_failure(common, now.error(), false);
        print(common, before.value(), now.value());
        if (options.once) return kExitOk;
        before = std::move(now);
    }
    return kExitInterrupted;
}

}  // namespace afd::client

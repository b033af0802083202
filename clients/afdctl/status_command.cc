// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <iostream>

#include "clients/afdctl/command.h"
#include "clients/afdctl/status_json.h"
#include "clients/afdctl/status_text.h"
#include "clients/exit_code.h"

namespace afd::client {
int run_status(const CommonOptions& common, const StatusOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;

    const Cancellation& cancellation = interrupt_cancellation();
    const bool clears_screen = options.watch && !common.json && isatty(STDOUT_FILENO) == 1;
    do {
        const Result<Status> status =
            client->status(to_milliseconds(options.timeout_s), &cancellation);
        // An afdd that leaves or stays silent is out of reach, however far the connection came.
        if (!status.ok()) return report_failure(common, status.error(), false);
        if (clears_screen) std::cout << "\033[H\033[J";
        std::cout << (common.json ? status_json(status.value()) + "\n"
                                  : status_text(status.value()));
        if (options.watch && !common.json && !clears_screen) std::cout << "\n";
        std::cout << std::flush;
    } while (options.watch && wait_interval(cancellation));
    return options.watch ? kExitInterrupted : kExitOk;
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_program.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "daemon/config/worker_name.h"
#include "daemon/control/worker_options.h"
#include "daemon/program/logging.h"

namespace afd::daemon {

int run_worker(int argc, char** argv, control::Role role, ServeWorker serve) {
    const std::string name = role_name(role);
    int exit_code = EXIT_SUCCESS;
    const auto options = parse_worker_options(argc, argv, name, &exit_code);
    if (!options) return exit_code;
    // A group of its own, but afdd's session: a Ctrl-C is afdd's to pass on as a drain, while the
    // scheduler's autogroup stays one, so that a yield reaches the peer.
    if (options->own_process_group) ::setpgid(0, 0);
    // Whoever takes a worker over gains nothing by a program with more rights. An old kernel that
    // knows no such thing is no reason not to serve.
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    set_up_logging(
        name + "-" + std::to_string(options->index), options->log_level, options->log_format);
    auto control = WorkerControl::connect(
        {.role = role, .index = options->index, .control_socket = options->control_socket});
    if (!control.ok()) {
        log::error("{}", control.error().message);
        return kExitWorkerFailed;
    }
    control.value()->start();
    if (const auto served = serve(*control.value(), options->index); !served.ok()) {
        control.value()->fail(served.error());
    }
    control.value()->finish();
    if (control.value()->welcome().has_ucx()) {
        // Threads of UCX 1.13 still read what the destructors of its libraries take away.
        std::fflush(nullptr);
        std::_Exit(EXIT_SUCCESS);
    }
    return EXIT_SUCCESS;
}

}  // namespace afd::daemon

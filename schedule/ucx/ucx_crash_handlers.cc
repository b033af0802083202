// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_crash_handlers.h"

#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <csignal>
#include <initializer_list>

namespace afd::schedule {

// UCX would print a trace, for which it allocates: a thread that crashed while it held the
// allocator's lock would stay in there for ever, and the others would go on.
void remove_ucx_crash_handlers() {
    ucs_global_opts_set_value("HANDLE_ERRORS", "none");
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ucs_debug_disable_signal(signal);
}

}  // namespace afd::schedule

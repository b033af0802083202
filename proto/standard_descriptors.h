// SPDX-License-Identifier: Apache-2.0
#pragma once

// Standard descriptors: who starts a program may have closed 0, 1 or 2 ("afdctl stop 2>&-"). The
// first socket or file that is opened would then get that number, and what is printed would go into
// it.

#include <fcntl.h>
#include <unistd.h>

namespace afd {

// Gives what is closed of 0, 1 and 2 to /dev/null. Writing to such a standard output still fails,
// so that lost results are reported; what goes to such a standard error is gone.
// REQUIRES: called first in main(); there are no threads.
inline void open_standard_descriptors() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        // The lowest number that is free, which is `fd`.
        if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

}  // namespace afd

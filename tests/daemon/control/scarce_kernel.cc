// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/control/scarce_kernel.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace afd::daemon {
namespace {

std::atomic<int> num_failing{0};
std::atomic<int> failing_with{0};

}  // namespace

void ScarceKernel::fail_sends(int count, int error) {
    failing_with = error;
    num_failing = count;
}

int ScarceKernel::num_left() {
    return num_failing;
}

}  // namespace afd::daemon

// Found instead of the library's.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    using afd::daemon::num_failing;
    for (int left = num_failing; left > 0;) {
        if (!num_failing.compare_exchange_weak(left, left - 1)) continue;
        errno = afd::daemon::failing_with;
        return -1;
    }
    return ::syscall(SYS_sendmsg, fd, message, flags);
}

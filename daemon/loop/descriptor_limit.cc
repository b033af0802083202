// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/descriptor_limit.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "daemon/loop/unique_fd.h"
#include "proto/failure.h"

namespace afd::daemon {

Result<> require_descriptors(size_t num_min) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    std::vector<UniqueFd> opened;
    opened.reserve(num_min);
    while (opened.size() < num_min) {
        UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
        if (!fd.valid()) {
            return resource_exhausted(
                "only {} more files can be opened (limit {}: {}); at least {} are needed: raise "
                "the limit of open files (ulimit -n)",
                with(opened.size(), limit.rlim_max, std::strerror(errno), num_min));
        }
        opened.push_back(std::move(fd));
    }
    return {};
}

size_t num_free_descriptors() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    // The kernel gives the lowest number that is free: all below are taken.
    const UniqueFd lowest(::eventfd(0, EFD_CLOEXEC));
    if (!lowest.valid() || limit.rlim_cur <= static_cast<rlim_t>(lowest.get())) return 0;
    return limit.rlim_cur - static_cast<rlim_t>(lowest.get());
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/descriptor_limit.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
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

// Counted: the numbers have holes, where a file was closed before others.
std::optional<size_t> num_open_descriptors() {
    std::error_code failed;
    size_t count = 0;
    for (std::filesystem::directory_iterator it("/proc/self/fd", failed), end; !failed && it != end;
         it.increment(failed)) {
        ++count;
    }
    if (failed || count == 0) return std::nullopt;
    // Without that of the look itself.
    return count - 1;
}

size_t num_free_descriptors() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    const std::optional<size_t> num_open = num_open_descriptors();
    return num_open && *num_open < limit.rlim_cur ? limit.rlim_cur - *num_open : 0;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileSizeLimit: no file of this process grows beyond so many bytes while it lives: a disk that is
// full, also for root. Writing then fails with EFBIG.

#include <signal.h>
#include <sys/resource.h>

namespace afd::test {

class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::signal(SIGXFSZ, handler_);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    rlimit before_{};
    sighandler_t handler_;
};

}  // namespace afd::test

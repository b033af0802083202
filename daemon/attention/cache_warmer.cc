// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/cache_warmer.h"

#include <sys/resource.h>

namespace afd::daemon {
namespace {

// What requests do comes first.
constexpr int kWarmerNice = 10;

}  // namespace

CacheWarmer::CacheWarmer(const model::KvCache& cache) : cache_(cache), thread_([this] { run(); }) {}

CacheWarmer::~CacheWarmer() {
    // Relaxed: nothing but the flag; partner: the load in run().
    is_ending_.store(true, std::memory_order_relaxed);
    if (!has_begun_) begins_.count_down();
    thread_.join();
}

void CacheWarmer::begin() {
    has_begun_ = true;
    begins_.count_down();
}

void CacheWarmer::run() const {
    // This lowers the priority of this thread alone. It is refused once system calls are confined;
    // the thread then goes on with the priority that it has.
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, kWarmerNice));
    begins_.wait();
    size_t part = 0;
    // Relaxed: partner: the store in the destructor.
    while (!is_ending_.load(std::memory_order_relaxed) && cache_.populate(part)) ++part;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// CacheWarmer: a thread that makes the KV cache of a successor resident while that serves already.
//
// A new instance has its memory before it says that it is ready. A process that takes a dead one's
// place is waited for: there requests come first, and the pages that they do not use yet come
// beside them. How long the kernel takes for them is nobody's promise: in a virtual machine memory
// that it has not touched for a while costs a hundred times as much as what was just freed.

#include <atomic>
#include <latch>
#include <thread>

#include "model/attention/kv_cache.h"

namespace afd::daemon {

class CacheWarmer {
  public:
    // The thread is made now, and waits. REQUIRES: the cache outlives the object.
    explicit CacheWarmer(const model::KvCache& cache);
    // Ends between two parts.
    ~CacheWarmer();
    CacheWarmer(const CacheWarmer&) = delete;
    CacheWarmer& operator=(const CacheWarmer&) = delete;

    // Once.
    void begin();

  private:
    void run() const;

    const model::KvCache& cache_;
    std::atomic<bool> is_ending_{false};
    std::latch begins_{1};
    bool has_begun_ = false;
    std::thread thread_;
};

}  // namespace afd::daemon

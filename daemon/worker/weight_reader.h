// SPDX-License-Identifier: Apache-2.0
#pragma once

// WeightReader: a thread that reads and checks a worker's mapped experts in the order of layers
// while the worker serves, so that a first use finds most of them in memory. It is no data thread:
// it gives way to those, and nobody waits for it. Unless there is little to read it begins with the
// first use, or ten seconds after the load, so that other workers, which are not ready before they
// have read their weights, have the disk until then.

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <span>
#include <thread>

#include "daemon/metrics/metrics.h"
#include "model/decoder/mapped_experts.h"

namespace afd::daemon {

class WeightReader {
  public:
    // Gets the error of a damaged expert, on the thread of the reader, and must not return.
    using OnDamage = void (*)(const Error& error);

    // `cpus`: where it may run; empty: anywhere. `metrics` gets kWeightBytesLeft of it alone.
    // `experts` outlives the object. Returns when the thread has made all system calls that a
    // confined worker may not make (system_calls.h): it reads by madvise().
    WeightReader(model::MappedExperts& experts,
                 Metrics metrics,
                 std::span<const uint32_t> cpus,
                 OnDamage on_damage);
    // Ends behind the expert that it reads.
    ~WeightReader();

  private:
    void run(std::span<const uint32_t> cpus);
    void let_others_begin();
    bool is_stopping() const {
        // Relaxed: partner is the destructor, where a late look costs an expert more.
        return is_stopping_.load(std::memory_order_relaxed);
    }

    model::MappedExperts* experts_;
    Metrics metrics_;
    const OnDamage on_damage_;
    std::atomic<bool> is_stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::latch has_begun_{1};
    std::thread thread_;
};

}  // namespace afd::daemon

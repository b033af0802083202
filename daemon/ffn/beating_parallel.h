// SPDX-License-Identifier: Apache-2.0
#pragma once

// BeatingParallel: the threads of an FFN worker, with a beat of its heart before each task that its
// data thread takes. One pass over experts that the kernel has evicted reads gigabytes from a disk,
// which may take longer than a worker may be silent.
//
// What another thread is stuck in still shows: the data thread waits for it, without a beat.

#include "ops/tensor/parallel.h"
#include "schedule/context/heartbeat.h"

namespace afd::daemon {

class BeatingParallel final : public ops::Parallel {
  public:
    // `threads` outlives the object. Its thread 0 is the one that calls run(), the data thread.
    BeatingParallel(ops::Parallel& threads, schedule::Heartbeat heartbeat)
        : threads_(threads), heartbeat_(heartbeat) {}

    unsigned num_threads() const override { return threads_.num_threads(); }
    void run(size_t num_tasks, ops::FunctionRef<void(size_t task, unsigned thread)> body) override {
        threads_.run(num_tasks, [&](size_t task, unsigned thread) {
            if (thread == 0) heartbeat_.beat();
            body(task, thread);
        });
    }

  private:
    ops::Parallel& threads_;
    schedule::Heartbeat heartbeat_;
};

}  // namespace afd::daemon

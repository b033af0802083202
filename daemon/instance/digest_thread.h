// SPDX-License-Identifier: Apache-2.0
#pragma once

// DigestThread: computes the digest of the opened model beside the loop, for an instance with more
// than one host, and says in the log how far it is where that takes long.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "daemon/instance/instance_setup.h"
#include "daemon/loop/background_thread.h"
#include "daemon/loop/event_loop.h"
#include "model/weight_cache/model_digest.h"
#include "proto/status.h"

namespace afd::daemon {

class DigestThread {
  public:
    using Done = std::function<void(const Result<std::string>& digest)>;

    // Begins. `done` is called once, on the loop, and may not destroy this.
    // REQUIRES: `loop` and `setup` outlive it; the steps of `setup` up to its kernels were taken.
    DigestThread(EventLoop& loop, const InstanceSetup& setup, Done done);
    // Waits for the end of what is being read.
    ~DigestThread();
    DigestThread(const DigestThread&) = delete;
    DigestThread& operator=(const DigestThread&) = delete;

  private:
    void say_progress();
    void finish(const Done& done);
    double taken_s() const;

    // The loop's own time stands still until it turns.
    const std::chrono::steady_clock::time_point begun_;
    model::ModelDigest digest_;
    Result<std::string> outcome_;  // Of the thread until the job is done.
    Timer progress_timer_;
    BackgroundThread thread_;  // Before its job, behind what it uses.
    std::unique_ptr<BackgroundThread::Job> job_;
};

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// BackgroundThread: one thread for work that takes longer than a turn of an EventLoop may: it does
// one job after the other, in the order in which they were asked for, and what is to follow runs on
// the loop. It sleeps while there is none.
//
// Everything but the work itself happens on the loop's thread. Work owns what it reads and writes,
// since who asked for it may be gone before it is done. With End::kWait it may also use what
// outlives the thread: members of the thread's owner that stand before it.

#include <functional>
#include <memory>
#include <thread>

#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class BackgroundThread {
    struct Entry;
    struct Shared;

  public:
    // A job as who asked for it holds it. Once it is destroyed `done` is not called, and work that
    // has not begun does not begin: what it owns is gone with the job.
    class Job {
      public:
        ~Job();
        Job(const Job&) = delete;
        Job& operator=(const Job&) = delete;

      private:
        friend class BackgroundThread;
        Job(std::shared_ptr<Shared> shared, std::shared_ptr<Entry> entry);

        std::shared_ptr<Shared> shared_;
        std::shared_ptr<Entry> entry_;
    };

    // What the end does with work that is being done.
    enum class End {
        kWait,
        kLeave,  // For work that may take long and touches nothing but what it owns.
    };

    // REQUIRES: `loop` outlives the object; an eventfd can be opened.
    explicit BackgroundThread(EventLoop& loop, End end = End::kWait);
    // Nothing else begins, and no `done` is called.
    ~BackgroundThread();
    BackgroundThread(const BackgroundThread&) = delete;
    BackgroundThread& operator=(const BackgroundThread&) = delete;

    // `work` on the thread, then `done` on the loop, never within this call.
    [[nodiscard]] std::unique_ptr<Job> run(std::function<void()> work, std::function<void()> done);

  private:
    void on_finished();

    const End end_;
    std::shared_ptr<Shared> shared_;
    FdWatcher watcher_;
    std::thread thread_;
};

}  // namespace afd::daemon

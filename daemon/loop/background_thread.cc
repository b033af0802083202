// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/background_thread.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/check.h"

namespace afd::daemon {

struct BackgroundThread::Entry {
    std::function<void()> work;
    std::function<void()> done;  // Of the loop's thread alone.
    bool is_wanted = true;
};

// Jobs may outlive the thread; all but the descriptor is guarded by the mutex.
struct BackgroundThread::Shared {
    Shared() : finished_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        AFD_ASSERT(finished_fd.valid(), "eventfd: %s", std::strerror(errno));
    }
    void serve();

    const UniqueFd finished_fd;
    std::mutex mutex;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Entry>> waiting;
    std::vector<std::shared_ptr<Entry>> finished;
    bool is_ending = false;
};

void BackgroundThread::Shared::serve() {
    std::unique_lock lock(mutex);
    while (true) {
        wake_.wait(lock, [this] { return is_ending || !waiting.empty(); });
        if (is_ending) return;
        const std::shared_ptr<Entry> entry = std::move(waiting.front());
        waiting.pop_front();
        lock.unlock();
        entry->work();
        // What it holds may be large.
        entry->work = nullptr;
        lock.lock();
        finished.push_back(entry);
        // It cannot fail: the loop empties it long before the sum overflows.
        (void)::eventfd_write(finished_fd.get(), 1);
    }
}

BackgroundThread::Job::Job(std::shared_ptr<Shared> shared, std::shared_ptr<Entry> entry)
    : shared_(std::move(shared)), entry_(std::move(entry)) {}

BackgroundThread::Job::~Job() {
    // What they own may be much: it is let go of outside of the lock.
    std::function<void()> work;
    const std::function<void()> done = std::move(entry_->done);
    const std::lock_guard lock(shared_->mutex);
    entry_->is_wanted = false;
    // Else the thread has it, and lets go of it when it is done.
    if (std::erase(shared_->waiting, entry_) > 0) work = std::move(entry_->work);
}

BackgroundThread::BackgroundThread(EventLoop& loop, End end)
    : end_(end),
      shared_(std::make_shared<Shared>()),
      watcher_(loop, shared_->finished_fd.get(), [this](int /*events*/) { on_finished(); }) {
    watcher_.watch(UV_READABLE);
    thread_ = std::thread([shared = shared_] { shared->serve(); });
}

BackgroundThread::~BackgroundThread() {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->is_ending = true;
    }
    shared_->wake_.notify_one();
    if (end_ == End::kWait) {
        thread_.join();
    } else {
        thread_.detach();
    }
}

std::unique_ptr<BackgroundThread::Job> BackgroundThread::run(std::function<void()> work,
                                                             std::function<void()> done) {
    auto entry = std::make_shared<Entry>(Entry{std::move(work), std::move(done)});
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->waiting.push_back(entry);
    }
    shared_->wake_.notify_one();
    return std::unique_ptr<Job>(new Job(shared_, std::move(entry)));
}

void BackgroundThread::on_finished() {
    eventfd_t count = 0;
    // Nothing to read is no news: the list tells what there is.
    (void)::eventfd_read(shared_->finished_fd.get(), &count);
    std::vector<std::shared_ptr<Entry>> finished;
    {
        const std::lock_guard lock(shared_->mutex);
        finished.swap(shared_->finished);
    }
    for (const std::shared_ptr<Entry>& entry : finished) {
        // Each at its turn: one may drop others. Only this thread changes it.
        if (entry->is_wanted) std::exchange(entry->done, nullptr)();
    }
}

}  // namespace afd::daemon

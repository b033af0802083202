// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_worker.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/ucx/ucx_path.h"
#include "schedule/ucx/ucx_paths.h"
#include "schedule/wait/adaptive_wait.h"
#include "schedule/wait/doorbell.h"

namespace afd::schedule {
namespace {

// Turns under one lock, so that a sender gets its turn while much arrives.
constexpr int kTurnsAtOnce = 32;
// Of the own thread beside one who takes: that one waits meanwhile.
constexpr int kTurnsBesideTaker = 2;
// The process was stopped for so long, or had no core: all peers seem silent until they are heard.
constexpr uint64_t kAwayUs = 100'000;
// Whoever finds the lock taken so often gives its core away: the one that has it may want that.
constexpr uint32_t kMissesPerYield = 32;

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(const UcxConfig& config,
                                                   bool listens,
                                                   size_t num_peers) {
    AFD_ASSIGN(std::unique_ptr<UcxPaths> paths,
               UcxPaths::make(config, listens, std::max(num_peers, kStrangersMin)));
    std::unique_ptr<UcxWorker> made(new UcxWorker(config, std::move(paths)));
    if (made->wake_fd_ < 0) return unavailable("no eventfd for the thread that receives");
    return made;
}

UcxWorker::UcxWorker(const UcxConfig& config, std::unique_ptr<UcxPaths> paths)
    : paths_(std::move(paths)),
      stuck_us_(config.stuck_us),
      end_stuck_(config.end_stuck),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

UcxWorker::~UcxWorker() {
    stop();
    {
        const Lock held = lock();
        UcxPaths::retire(std::move(paths_));
    }
    if (wake_fd_ >= 0) ::close(wake_fd_);
}

const std::vector<std::byte>& UcxWorker::address() const {
    return paths_->address();
}

void UcxWorker::start(UcxReceiver& receiver) {
    AFD_ASSERT(!thread_.joinable(), "a worker of UCX has one receiver");
    receiver_ = &receiver;
    {
        const Lock held = lock();
        paths_->start(receiver);
    }
    thread_ = std::thread([this] { run(); });
}

void UcxWorker::stop() {
    // Relaxed: the wake-up that follows is what the thread acts on, and join() orders the rest.
    is_over_.store(true, std::memory_order_relaxed);
    if (!thread_.joinable()) return;
    wake();
    thread_.join();
}

void UcxWorker::wake() {
    // Release; partner: run().
    wants_tick_.store(true, std::memory_order_release);
    ring(wake_fd_);
}

// In slices: a process that was stopped has not waited, and whoever sets the time makes one of them
// longer or shorter. By the wall clock, because the thread sanitizer knows no mutex that waits by
// another.
UcxWorker::Lock UcxWorker::lock() const {
    constexpr uint64_t kSliceUs = 100'000;
    Lock held(mutex_, std::try_to_lock);
    for (uint64_t waited_us = 0; !held.owns_lock(); waited_us += kSliceUs) {
        if (waited_us >= stuck_us_) end_stuck("UCX has not given the lock back");
        const auto end = std::chrono::system_clock::now() + std::chrono::microseconds(kSliceUs);
        static_cast<void>(held.try_lock_until(end));
    }
    return held;
}

void UcxWorker::end_stuck(const std::string& what) const {
    const std::string why = what + " for " + std::to_string(stuck_us_ / 1'000) + " ms";
    if (end_stuck_ != nullptr) end_stuck_(why);
    AFD_ASSERT(false, "%s", why.c_str());
    std::abort();
}

Result<std::shared_ptr<UcxPath>> UcxWorker::connect(std::span<const std::byte> address,
                                                    bool may_be_near) {
    return paths_->connect(address, may_be_near);
}

void UcxWorker::adopt(Path& path) {
    path.stranger_us = 0;
}

void UcxWorker::close(Path& path) {
    paths_->close(path);
}

void UcxWorker::send(Path& path, UcxMessage& message) {
    paths_->send(path, message);
}

bool UcxWorker::has_failed(const Path& path) {
    return path.is_over();
}

bool UcxWorker::is_near(const Path& path) {
    return path.near != nullptr;
}

void UcxWorker::fail(Path& path) {
    path.has_failed = true;
}

bool UcxWorker::progress() {
    return paths_->progress();
}

void UcxWorker::try_progress() {
    taker_.on_take();
    const Lock held(mutex_, std::try_to_lock);
    if (!held.owns_lock()) {
        if (++num_misses_ % kMissesPerYield == 0) ::sched_yield();
        return;
    }
    // Who spins need not be woken.
    paths_->disarm();
    std::exchange(takes_all_, false) ? take_turns(kTurnsAtOnce) : paths_->spin(steady_now_us());
}

void UcxWorker::take_turns(int num_max) {
    for (int turn = 0; turn < num_max && progress();) ++turn;
}

// What the own thread takes before it ticks, or because it was awake.
int UcxWorker::num_own_turns(Taker taker, bool was_awake, bool was_away) const {
    if (taker == Taker::kOwnThread || was_away) return kTurnsAtOnce;
    // Asked once more: it may sleep by now, and not be woken by what came before.
    return was_awake || taker_.sleeps() ? kTurnsBesideTaker : 0;
}

void UcxWorker::run() {
    uint64_t tick_us = 0;
    uint64_t ticked_us = 0;
    bool was_awake = true;
    // Relaxed: see stop().
    while (!is_over_.load(std::memory_order_relaxed)) {
        // Relaxed: see num_turns().
        num_turns_.fetch_add(1, std::memory_order_relaxed);
        // Acquire; partner: wake().
        if (wants_tick_.exchange(false, std::memory_order_acquire)) tick_us = 0;
        const Taker taker = taker_.look();
        const bool is_spared = taker != Taker::kOwnThread;
        // What woke this thread may have been for a taker that went to sleep meanwhile.
        if (!is_spared || was_awake || steady_now_us() >= tick_us) {
            const Lock held = lock();
            const bool was_away = steady_now_us() - ticked_us > kAwayUs;
            take_turns(num_own_turns(taker, was_awake, was_away));
            // Read behind what arrived: nobody was heard later than now.
            const uint64_t now_us = steady_now_us();
            if (now_us >= tick_us) {
                paths_->take_requests(now_us);
                receiver_->on_tick(now_us);
                ticked_us = now_us;
                tick_us = now_us + kTickUs;
            }
            keep_armed();
        }
        was_awake = !is_spared;
        is_spared ? rest(tick_us) : look_and_sleep(tick_us);
    }
}

// For the taker that sleeps: turns disarm.
void UcxWorker::keep_armed() {
    for (int turn = 0; turn < kTurnsAtOnce && taker_.sleeps(); ++turn) {
        if (paths_->arm(paths_->has_ucx_to_take())) return;
        progress();
    }
}

// Until wake(), for kRestUs at most, or until the tick where nothing goes on. What arrives does not
// end it.
void UcxWorker::rest(uint64_t tick_us) {
    constexpr uint64_t kQuiet = 10;
    const uint64_t now_us = steady_now_us();
    const uint64_t left_us = tick_us > now_us ? tick_us - now_us : 0;
    const bool is_quiet = taker_.sleeps() && taker_.num_quiet() > kQuiet;
    const timespec time = timespec_of(is_quiet ? left_us : std::min(left_us, kRestUs));
    pollfd event{wake_fd_, POLLIN, 0};
    if (::ppoll(&event, 1, &time, nullptr) > 0) take_ring();
}

void UcxWorker::sleep(int eventfd, uint64_t timeout_us) {
    if (turns_.is_stuck(num_turns(), steady_now_us())) {
        end_stuck("UCX has not come back to the thread that receives");
    }
    takes_all_ = true;
    bool with_ucx = true;
    {
        const Lock held(mutex_, std::try_to_lock);
        if (!held.owns_lock()) {
            // The caller comes back at once, and waits for whoever has it.
            ::sched_yield();
            return;
        }
        with_ucx = paths_->has_ucx_to_take();
        if (!paths_->arm(with_ucx)) return paths_->disarm();
        taker_.begin_sleep();
    }
    pollfd events[3] = {{eventfd, POLLIN, 0},
                        {with_ucx ? paths_->ucx_descriptor() : -1, POLLIN, 0},
                        {paths_->near_descriptor(), POLLIN, 0}};
    const timespec timeout = timespec_of(timeout_us);
    ::ppoll(events, 3, &timeout, nullptr);
    taker_.end_sleep();
    end_sleep((events[2].revents & POLLIN) != 0);
}

// Until something happens or the next tick.
void UcxWorker::look_and_sleep(uint64_t tick_us) {
    {
        const Lock held = lock();
        if (!paths_->arm(true)) return;
    }
    pollfd events[3] = {{paths_->ucx_descriptor(), POLLIN, 0},
                        {wake_fd_, POLLIN, 0},
                        {paths_->near_descriptor(), POLLIN, 0}};
    const uint64_t before_us = steady_now_us();
    const timespec timeout = timespec_of(tick_us > before_us ? tick_us - before_us : 0);
    ::ppoll(events, 3, &timeout, nullptr);
    if ((events[1].revents & POLLIN) != 0) take_ring();
    end_sleep((events[2].revents & POLLIN) != 0);
}

void UcxWorker::end_sleep(bool have_neighbours_news) {
    // Another one at it: the news are still there.
    const Lock held(mutex_, std::try_to_lock);
    if (!held.owns_lock()) return;
    if (!taker_.sleeps()) paths_->disarm();
    if (have_neighbours_news) paths_->look_at_neighbours(steady_now_us());
}

void UcxWorker::take_ring() const {
    uint64_t count = 0;
    // Nothing to read: nobody rang.
    static_cast<void>(::read(wake_fd_, &count, sizeof(count)));
}

}  // namespace afd::schedule

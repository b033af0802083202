// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-link/link_emulator.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace afd::tools {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// Counts, read by whoever wants to know, and a number that says all by itself: relaxed in all of
// this file.
constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr size_t kFrameBytesMax = 1 << 16;
constexpr size_t kQueuedMax = 1000;  // As much as netem holds by default.
// Read at once, so that what is due meanwhile is delivered.
constexpr int kFramesAtOnce = 64;

int open_tap(const std::string& name) {
    const int fd = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, name.c_str(), sizeof(request.ifr_name) - 1);
    if (::ioctl(fd, TUNSETIFF, &request) == 0) return fd;
    ::close(fd);
    return -1;
}

// Frames on their way in one direction.
class Direction {
  public:
    Direction(const LinkConditions& conditions, uint64_t seed)
        : conditions_(conditions), random_(seed) {}

    // False: the frame is lost.
    bool take(std::span<const std::byte> frame, TimePoint now) {
        if (queue_.size() >= kQueuedMax) return false;
        if (conditions_.mbit_per_second > 0) {
            const double us = static_cast<double>(frame.size()) * 8 / conditions_.mbit_per_second;
            is_free_ = std::max(is_free_, now) + std::chrono::nanoseconds(std::llround(us * 1e3));
            now = is_free_;
        }
        if (std::bernoulli_distribution(conditions_.loss)(random_)) return false;
        std::uniform_int_distribution<int64_t> jitter_us(0, conditions_.jitter.count());
        const TimePoint due =
            now + conditions_.delay + std::chrono::microseconds(jitter_us(random_));
        queue_.emplace(due, Frame{++num_taken_, {frame.begin(), frame.end()}});
        return true;
    }

    TimePoint next_due() const { return queue_.empty() ? TimePoint::max() : queue_.begin()->first; }

    // Writes what is due to the device. Returns how many of them a later frame has overtaken.
    uint64_t deliver(int device, TimePoint now) {
        uint64_t num_overtaken = 0;
        for (; next_due() <= now; queue_.erase(queue_.begin())) {
            const Frame& frame = queue_.begin()->second;
            // A device that is down, or full, takes none: lost, too.
            static_cast<void>(::write(device, frame.bytes.data(), frame.bytes.size()));
            num_overtaken += frame.number < last_delivered_ ? 1 : 0;
            last_delivered_ = std::max(last_delivered_, frame.number);
        }
        return num_overtaken;
    }

  private:
    struct Frame {
        uint64_t number;
        std::vector<std::byte> bytes;
    };

    const LinkConditions& conditions_;
    std::mt19937_64 random_;
    TimePoint is_free_;  // When all frames so far have left.
    uint64_t num_taken_ = 0;
    uint64_t last_delivered_ = 0;
    std::multimap<TimePoint, Frame> queue_;  // By when they are due.
};

// Waits for a frame, for the stop, or until then; to the microsecond or so.
void wait_until(TimePoint when, std::array<pollfd, 3>& fds) {
    using std::chrono::nanoseconds;
    timespec left{1, 0};
    if (when != TimePoint::max()) {
        const int64_t ns = std::max<int64_t>(nanoseconds(when - Clock::now()).count(), 0);
        left = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    ::ppoll(fds.data(), fds.size(), &left, nullptr);
}

void raise_event(int event) {
    const uint64_t one = 1;
    static_cast<void>(::write(event, &one, sizeof(one)));
}

}  // namespace

LinkEmulator::LinkEmulator(const std::array<std::string, 2>& devices,
                           const LinkConditions& conditions,
                           uint64_t seed)
    : conditions_(conditions) {
    for (size_t end = 0; end < devices.size(); ++end) devices_[end] = open_tap(devices[end]);
    stop_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ended_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (devices_[0] < 0 || devices_[1] < 0 || stop_ < 0 || ended_ < 0) return;
    thread_ = std::thread([this, seed] { run(seed); });
}

LinkEmulator::~LinkEmulator() {
    if (thread_.joinable()) {
        raise_event(stop_);
        thread_.join();
    }
    for (const int fd : {devices_[0], devices_[1], stop_, ended_}) {
        if (fd >= 0) ::close(fd);
    }
}

uint64_t LinkEmulator::num_frames() const {
    return num_frames_.load(kRelaxed);
}

uint64_t LinkEmulator::num_lost() const {
    return num_lost_.load(kRelaxed);
}

uint64_t LinkEmulator::num_overtaken() const {
    return num_overtaken_.load(kRelaxed);
}

std::optional<size_t> LinkEmulator::gone_device() const {
    const int device = gone_device_.load(kRelaxed);
    if (device < 0) return {};
    return static_cast<size_t>(device);
}

void LinkEmulator::end_without(size_t device) {
    gone_device_.store(static_cast<int>(device), kRelaxed);
    raise_event(ended_);
}

void LinkEmulator::run(uint64_t seed) {
    // A wait may end 50 us late otherwise.
    ::prctl(PR_SET_TIMERSLACK, 1);
    std::array<Direction, 2> from{Direction(conditions_, seed), Direction(conditions_, seed + 1)};
    std::array<pollfd, 3> fds{
        pollfd{devices_[0], POLLIN, 0}, pollfd{devices_[1], POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    std::vector<std::byte> frame(kFrameBytesMax);
    while ((fds[2].revents & POLLIN) == 0) {
        wait_until(std::min(from[0].next_due(), from[1].next_due()), fds);
        for (const size_t end : {0, 1}) {
            for (int i = 0; i < kFramesAtOnce; ++i) {
                const ssize_t bytes = ::read(devices_[end], frame.data(), frame.size());
                // poll() would call for it again and again.
                if (bytes < 0 && errno != EAGAIN && errno != EINTR) return end_without(end);
                if (bytes <= 0) break;
                const std::span read(frame.data(), static_cast<size_t>(bytes));
                const bool is_taken = from[end].take(read, Clock::now());
                num_frames_.fetch_add(1, kRelaxed);
                if (!is_taken) num_lost_.fetch_add(1, kRelaxed);
            }
            num_overtaken_.fetch_add(from[end].deliver(devices_[1 - end], Clock::now()), kRelaxed);
        }
    }
}

}  // namespace afd::tools

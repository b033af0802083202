// SPDX-License-Identifier: Apache-2.0
//
// A clock that jumps, for programs that load this first (LD_PRELOAD): what the wall clock shows is
// off by as many seconds as CLOCK_JUMP_FILE holds, an int64 that may change at any time. It is
// mapped at the start, since a confined worker opens nothing later. Other clocks are left alone, as
// setting the time of a machine leaves them.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

const std::atomic<int64_t>* map_offset() {
    const char* name = std::getenv("CLOCK_JUMP_FILE");
    const int fd = name == nullptr ? -1 : ::open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) std::abort();
    void* const memory = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<const std::atomic<int64_t>*>(memory);
}

static_assert(std::atomic<int64_t>::is_always_lock_free);
const std::atomic<int64_t>* const kOffset = map_offset();

}  // namespace

// The names and types of the C library's own.
extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
    const long failed = ::syscall(SYS_clock_gettime, clock, now);
    const bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    // Before this library is set up nobody has been told of a jump.
    if (failed == 0 && is_wall && kOffset != nullptr)
        now->tv_sec += kOffset->load(std::memory_order_relaxed);
    return static_cast<int>(failed);
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
    timespec precise{};
    const int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t* seconds) noexcept {
    timespec precise{};
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds != nullptr) *seconds = precise.tv_sec;
    return precise.tv_sec;
}
}

// SPDX-License-Identifier: Apache-2.0
//
// A slow disk, for programs that load this first (LD_PRELOAD): what is read from a file comes with
// as many bytes a second as SLOW_DISK_FILE holds, an int64 that may change at any time; 0: as fast
// as ever. Weights and configurations are read in this way (pread, read); files that are mapped are
// not slowed.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

const std::atomic<int64_t>* map_rate() {
    const char* name = std::getenv("SLOW_DISK_FILE");
    const int fd = name == nullptr ? -1 : ::open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) std::abort();
    void* const memory = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<const std::atomic<int64_t>*>(memory);
}

static_assert(std::atomic<int64_t>::is_always_lock_free);
const std::atomic<int64_t>* const kRate = map_rate();

bool is_file(int fd) {
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

// In short pieces, since the rate may change.
void wait_for_disk(int fd, ssize_t bytes) {
    if (bytes <= 0 || kRate == nullptr || !is_file(fd)) return;
    const int saved = errno;
    constexpr int64_t kPieceNs = 10'000'000;
    for (int64_t left = bytes; left > 0;) {
        const int64_t rate = kRate->load(std::memory_order_relaxed);
        if (rate == 0) break;
        const int64_t in_piece = rate * kPieceNs / 1'000'000'000 + 1;
        const int64_t part = left < in_piece ? left : in_piece;
        const timespec pause{0, static_cast<long>(part * 1'000'000'000 / rate % 1'000'000'000)};
        ::nanosleep(&pause, nullptr);
        left -= part;
    }
    errno = saved;
}

}  // namespace

// The names and types of the C library's own.
extern "C" {

ssize_t read(int fd, void* memory, size_t bytes) {
    const ssize_t got = ::syscall(SYS_read, fd, memory, bytes);
    wait_for_disk(fd, got);
    return got;
}

ssize_t pread64(int fd, void* memory, size_t bytes, off64_t offset) {
    const ssize_t got = ::syscall(SYS_pread64, fd, memory, bytes, offset);
    wait_for_disk(fd, got);
    return got;
}

ssize_t pread(int fd, void* memory, size_t bytes, off_t offset) {
    return pread64(fd, memory, bytes, offset);
}
}

// SPDX-License-Identifier: Apache-2.0
#include "proto/crash_point.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "proto/check.h"

namespace afd {
namespace {

CrashEntry* map_table() {
    const char* path = std::getenv("AFD_CRASH_POINTS");
    if (path == nullptr) return nullptr;
    const int fd = ::open(path, O_RDWR | O_CLOEXEC);
    AFD_ASSERT(fd >= 0, "AFD_CRASH_POINTS names '%s', which cannot be opened", path);
    AFD_ASSERT(::lseek(fd, 0, SEEK_END) >= static_cast<off_t>(kCrashTableBytes),
               "AFD_CRASH_POINTS names '%s', which has not %zu bytes",
               path,
               kCrashTableBytes);
    void* mapped = ::mmap(nullptr, kCrashTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    AFD_ASSERT(mapped != MAP_FAILED, "cannot map '%s'", path);
    ::close(fd);
    return static_cast<CrashEntry*>(mapped);
}

CrashEntry* find(CrashEntry* table, const char* name) {
    for (size_t i = 0; i < kCrashEntriesMax && table[i].name[0] != '\0'; ++i) {
        if (std::strncmp(table[i].name, name, CrashEntry::kNameMax) == 0) return &table[i];
    }
    std::fprintf(stderr, "the file of AFD_CRASH_POINTS has no point '%s'\n", name);
    std::abort();
}

}  // namespace

// Here and not at the first hit: a worker that serves may open no file any more.
CrashEntry* const CrashPoint::table = map_table();

void CrashPoint::die_if_armed(uint64_t value) {
    CrashEntry* entry = entry_;
    if (entry == nullptr) entry_ = entry = find(table, name_);
    // In sequence, as by default: nothing here is in a hurry, and a test reads what it counts.
    ++entry->hits;
    entry->pid = ::getpid();
    if (entry->only != 0 && entry->only != value + 1) return;
    if (entry->left <= 0 || --entry->left != 0) return;
    ++entry->deaths;
    if (entry->again > 0) {
        --entry->again;
        entry->left = 1;
    }
    // Not raise(): nothing of this process may run any more, also none of its other threads.
    const int signal = entry->signal;
    ::kill(::getpid(), signal == 0 ? SIGKILL : signal);
    // Again: a worker that serves may not pause, and another thread may have the signal.
    while (true) ::pause();
}

}  // namespace afd

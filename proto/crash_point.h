// SPDX-License-Identifier: Apache-2.0
#pragma once

// AFD_CRASH_POINT("pass.computed"): a place where a test can let the process die, as by kill -9.
//
// Only in builds with tests (AFD_BUILD_TESTS and AFD_CRASH_POINTS); elsewhere the macro is empty.
// There it costs a load and a branch, unless the environment variable AFD_CRASH_POINTS names a
// file: then all processes that inherit the variable map it, and find in it by name how often each
// point was reached, and when to die there. tests/faults/crash_table.h makes the file and arms
// points.
//
// AFD_CRASH_POINT_OF("embed.token_done", token): the same of a value, where a test can let those
// die alone that have this one, and by another signal, as if they crashed of it.
//
// The name says where the process is: what has happened just before. A name stands once in the
// tree; tests/faults finds all of them there, and fails for one that no test reaches.
//
// The file, mapped by all: kCrashEntriesMax entries, those with a name first.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace afd {

struct CrashEntry {
    static constexpr size_t kNameMax = 64;

    char name[kNameMax];           // With a 0 behind it. Written before any process maps the file.
    std::atomic<uint64_t> hits;    // Of all processes since the file was made.
    std::atomic<int64_t> left;     // Dies when a hit brings it from 1 to 0; below that: not armed.
    std::atomic<uint64_t> again;   // How many more times to die: each time at the next hit.
    std::atomic<uint64_t> deaths;  // Since the file was made.
    std::atomic<int32_t> pid;      // Of the last hit.
    std::atomic<int32_t> signal;   // To die by; 0: SIGKILL.
    std::atomic<uint64_t> only;    // Dies of this value alone, which is one less; 0: of any.
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr size_t kCrashEntriesMax = 256;
inline constexpr size_t kCrashTableBytes = kCrashEntriesMax * sizeof(CrashEntry);

// One place in the code; static, so that the name is looked up once.
class CrashPoint {
  public:
    constexpr explicit CrashPoint(const char* name) : name_(name) {}

    void reach(uint64_t value = 0) {
        if (table != nullptr) [[unlikely]]
            die_if_armed(value);
    }

    // What the environment names, mapped before main(); nullptr: nothing.
    static CrashEntry* const table;

  private:
    void die_if_armed(uint64_t value);

    const char* name_;
    std::atomic<CrashEntry*> entry_ = nullptr;
};

}  // namespace afd

#ifdef AFD_CRASH_POINTS
#define AFD_CRASH_POINT_OF(name, value)               \
    do {                                              \
        static constinit ::afd::CrashPoint at_{name}; \
        at_.reach(value);                             \
    } while (false)
#else
#define AFD_CRASH_POINT_OF(name, value) \
    do {                                \
        static_cast<void>(value);       \
    } while (false)
#endif
#define AFD_CRASH_POINT(name) AFD_CRASH_POINT_OF(name, 0)

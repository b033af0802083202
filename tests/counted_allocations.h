// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts what a test program allocates (promise 5): replaces the global allocation functions, so
// exactly one source of a program of its own includes it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace afd::test {

inline std::atomic<uint64_t> allocation_count{0};
inline std::atomic<uint64_t> allocation_bytes{0};

// Calls of operator new so far, by any thread. Relaxed: counters that order nothing.
inline uint64_t num_allocations() {
    return allocation_count.load(std::memory_order_relaxed);
}

// Bytes asked for in these calls.
inline uint64_t num_allocated_bytes() {
    return allocation_bytes.load(std::memory_order_relaxed);
}

inline void* counted_allocate(size_t size, size_t alignment) {
    allocation_count.fetch_add(1, std::memory_order_relaxed);
    allocation_bytes.fetch_add(size, std::memory_order_relaxed);
    // A multiple of the alignment, and not nothing.
    const size_t rounded = (size == 0 ? alignment : size + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) std::abort();
    return memory;
}

}  // namespace afd::test

// The array forms call these. The forms that return nullptr are here too: a library's call the
// throwing ones, a sanitizer's have memory of their own, which is not std::free's.
void* operator new(size_t size) {
    return afd::test::counted_allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
    return afd::test::counted_allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
    return afd::test::counted_allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return afd::test::counted_allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
    std::free(memory);
}

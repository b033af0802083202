// SPDX-License-Identifier: Apache-2.0
#pragma once

// GuardAllocator: memory that ends at a page nobody may touch, so that a kernel which reads or
// writes beyond a tensor crashes in every build, not only under ASan.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace afd::ops::test {

template <typename T>
struct GuardAllocator {
    using value_type = T;

    GuardAllocator() = default;
    template <typename U>
    GuardAllocator(const GuardAllocator<U>&) {}

    // The last element ends at the guard page; the first is aligned for every element size that
    // divides the bytes.
    T* allocate(size_t count) {
        const size_t bytes = count * sizeof(T);
        const size_t mapped = mapped_bytes(bytes);
        void* base =
            mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) std::abort();
        std::byte* first = static_cast<std::byte*>(base) + page();
        if (mprotect(first, mapped - 2 * page(), PROT_READ | PROT_WRITE) != 0) std::abort();
        return reinterpret_cast<T*>(first + mapped - 2 * page() - bytes);
    }
    void deallocate(T* data, size_t count) {
        const size_t bytes = count * sizeof(T);
        std::byte* end = reinterpret_cast<std::byte*>(data) + bytes + page();
        munmap(end - mapped_bytes(bytes), mapped_bytes(bytes));
    }

    friend bool operator==(const GuardAllocator&, const GuardAllocator&) { return true; }

  private:
    static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
    static size_t mapped_bytes(size_t bytes) {
        return (bytes + page() - 1) / page() * page() + 2 * page();
    }
};

template <typename T>
using GuardedVector = std::vector<T, GuardAllocator<T>>;

}  // namespace afd::ops::test

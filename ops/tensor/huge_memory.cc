// SPDX-License-Identifier: Apache-2.0

#include "ops/tensor/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>

#include "proto/check.h"

#if defined(__has_feature)
#define AFD_HAS_FEATURE(name) __has_feature(name)
#else
#define AFD_HAS_FEATURE(name) 0
#endif

namespace afd::ops {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// Slabs start at multiples of this, so that a block finds its slab. A larger block has a longer
// slab of its own, and starts in its first part like any other.
constexpr size_t kSlabBytes = size_t{32} << 20;

#if defined(__SANITIZE_ADDRESS__) || AFD_HAS_FEATURE(address_sanitizer)
// The address sanitizer sees overruns only between blocks that it has handed out itself.
constexpr size_t kSmallestInSlab = SIZE_MAX;
#else
constexpr size_t kSmallestInSlab = size_t{16} << 10;
#endif

size_t round_up(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

// At the start of its memory.
struct Slab {
    size_t bytes;
    size_t used;
    size_t num_blocks;
};
static_assert(sizeof(Slab) <= kLine);

struct Arena {
    std::mutex mutex;
    Slab* current = nullptr;
};

// Never destroyed: blocks may outlive the end of main().
Arena& arena() {
    static Arena* const instance = new Arena;
    return *instance;
}

Slab* map_slab(size_t bytes) {
    const size_t mapped = bytes + kSlabBytes;
    void* memory =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no memory for %zu bytes", mapped);
    auto* begin = static_cast<std::byte*>(memory);
    const size_t before = round_up(reinterpret_cast<uintptr_t>(begin), kSlabBytes) -
                          reinterpret_cast<uintptr_t>(begin);
    std::byte* slab = begin + before;
    if (before > 0) ::munmap(begin, before);
    ::munmap(slab + bytes, mapped - before - bytes);
    // A refusal costs speed only.
    static_cast<void>(::madvise(slab, bytes, MADV_HUGEPAGE));
    // Entered into the page tables at set-up, so that no first request waits for zeroed pages. A
    // longer slab is one block, whose worst case may never come.
    if (bytes == kSlabBytes) static_cast<void>(::madvise(slab, bytes, MADV_POPULATE_WRITE));
    return new (slab) Slab{bytes, kLine, 0};
}

Slab* slab_of(void* block) {
    const auto address = reinterpret_cast<uintptr_t>(block);
    return reinterpret_cast<Slab*>(address / kSlabBytes * kSlabBytes);
}

}  // namespace

void* allocate_huge(size_t bytes) {
    if (bytes < kSmallestInSlab) return ::operator new (bytes, std::align_val_t{kLine});
    const size_t wanted = round_up(bytes, kLine);
    const std::lock_guard lock(arena().mutex);
    Slab*& current = arena().current;
    Slab* slab = current;
    if (slab == nullptr || slab->used >= kSlabBytes || slab->bytes - slab->used < wanted) {
        slab = map_slab(std::max(kSlabBytes, round_up(kLine + wanted, kHugePage)));
        // What a full slab has left is given up.
        if (current != nullptr && current->num_blocks == 0) ::munmap(current, current->bytes);
        current = slab;
    }
    auto* block = reinterpret_cast<std::byte*>(slab) + slab->used;
    slab->used += wanted;
    ++slab->num_blocks;
    return block;
}

void free_huge(void* block, size_t bytes) {
    if (bytes < kSmallestInSlab) {
        ::operator delete (block, std::align_val_t{kLine});
        return;
    }
    const std::lock_guard lock(arena().mutex);
    Slab* slab = slab_of(block);
    if (--slab->num_blocks > 0) return;
    slab->used = kLine;
    if (slab != arena().current) ::munmap(slab, slab->bytes);
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/tensor/huge_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "ops/tensor/round_up.h"
#include "proto/check.h"
#include "proto/sanitizers.h"

namespace afd::ops {
namespace {

constexpr size_t kLine = 64;
// No ordinary page is larger.
constexpr size_t kPage = size_t{64} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlabBytes = size_t{32} << 20;
// So a slab that has no room for the next block is at least three quarters full.
constexpr size_t kLargestInSlab = kSlabBytes / 4;
constexpr size_t kPopulatedMost = size_t{32} << 20;

#if AFD_ASAN
// The address sanitizer sees overruns only between blocks that it has handed out itself.
constexpr size_t kSmallestMapped = SIZE_MAX;
#else
constexpr size_t kSmallestMapped = size_t{16} << 10;
#endif

// `bytes`, whole pages, from a multiple of a huge page on; nothing is resident yet. Null if the
// kernel refuses.
std::byte* map(size_t bytes) {
    const size_t mapped = bytes + kHugePage;
    void* memory =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* first = static_cast<std::byte*>(memory);
    const auto address = reinterpret_cast<uintptr_t>(first);
    const size_t before = round_up(address, kHugePage) - address;
    std::byte* begin = first + before;
    if (before > 0) ::munmap(first, before);
    if (before < kHugePage) ::munmap(begin + bytes, kHugePage - before);
    // A refusal costs speed only.
    static_cast<void>(::madvise(begin, bytes, MADV_HUGEPAGE));
    return begin;
}

// A refusal costs time later only.
void populate(std::byte* begin, size_t bytes) {
    static_cast<void>(::madvise(begin, bytes, MADV_POPULATE_WRITE));
}

// Of a block with a mapping of its own. What it leaves of its last huge page is given up, unless
// that is half of one or more: then its end is in ordinary pages.
size_t mapped_bytes(size_t bytes) {
    const size_t whole = round_up(bytes, kHugePage);
    return whole - bytes < kHugePage / 2 ? whole : round_up(bytes, kPage);
}

struct Slab {
    std::byte* begin = nullptr;
    size_t used = 0;
    size_t populated = 0;
    size_t num_blocks = 0;

    size_t left() const { return kSlabBytes - used; }
};

struct Arena {
    std::mutex mutex;
    // By their first address. Beside their memory, so that blocks that fill a slab do fit.
    std::map<std::byte*, Slab> slabs;
    Slab* current = nullptr;
};

// Never destroyed: blocks may outlive the end of main().
Arena& arena() {
    static Arena* const instance = new Arena;
    return *instance;
}

// Under the arena's lock. Null: there is no memory, for it or for where it is noted.
Slab* add_slab() {
    std::byte* const begin = map(kSlabBytes);
    if (begin == nullptr) return nullptr;
    try {
        return &arena().slabs.emplace(begin, Slab{.begin = begin}).first->second;
    } catch (const std::bad_alloc&) {
        ::munmap(begin, kSlabBytes);
        return nullptr;
    }
}

void* allocate_in_slab(size_t bytes) {
    std::byte* block = nullptr;
    std::byte* populate_from = nullptr;
    size_t num_populated = 0;
    {
        const std::lock_guard lock(arena().mutex);
        Slab*& current = arena().current;
        // What a slab has left for no more blocks costs addresses; it was never resident.
        if (current == nullptr || current->left() < bytes) {
            Slab* const added = add_slab();
            if (added == nullptr) return nullptr;
            current = added;
        }
        block = current->begin + current->used;
        current->used += bytes;
        ++current->num_blocks;
        const size_t wanted = round_up(current->used, kHugePage);
        populate_from = current->begin + current->populated;
        num_populated = wanted - current->populated;
        current->populated = wanted;
    }
    // Without the lock: the kernel zeroes for milliseconds, and threads that load weights ask for
    // memory at the same time.
    if (num_populated > 0) populate(populate_from, num_populated);
    return block;
}

void free_in_slab(std::byte* block) {
    const std::lock_guard lock(arena().mutex);
    auto& slabs = arena().slabs;
    const auto found = slabs.upper_bound(block);
    AFD_ASSERT(found != slabs.begin(), "no slab has block %p", static_cast<void*>(block));
    const auto slab = std::prev(found);
    if (--slab->second.num_blocks > 0) return;
    if (arena().current == &slab->second) arena().current = nullptr;
    ::munmap(slab->first, kSlabBytes);
    slabs.erase(slab);
}

}  // namespace

void* allocate_huge(size_t bytes) {
    if (bytes < kSmallestMapped) {
        return ::operator new (bytes, std::align_val_t{kLine}, std::nothrow);
    }
    if (bytes <= kLargestInSlab) return allocate_in_slab(round_up(bytes, kLine));
    if (bytes > SIZE_MAX / 2) return nullptr;  // Rounded up it would be little.
    std::byte* block = map(mapped_bytes(bytes));
    if (block != nullptr && bytes <= kPopulatedMost) populate(block, mapped_bytes(bytes));
    return block;
}

void free_huge(void* block, size_t bytes) {
    if (bytes < kSmallestMapped) {
        ::operator delete (block, std::align_val_t{kLine});
    } else if (bytes <= kLargestInSlab) {
        free_in_slab(static_cast<std::byte*>(block));
    } else {
        ::munmap(block, mapped_bytes(bytes));
    }
}

}  // namespace afd::ops

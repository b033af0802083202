// SPDX-License-Identifier: Apache-2.0
#include "model/attention/kv_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "proto/failure.h"

namespace afd::model {
namespace {

// Block numbers travel as int32 in block tables.
constexpr size_t kBlocksMax = size_t{1} << 30;

}  // namespace

BlockAllocator::BlockAllocator(uint32_t num_blocks) : in_use_(num_blocks, false) {
    free_.reserve(num_blocks);
    for (uint32_t block = num_blocks; block > 0; --block) {
        free_.push_back(static_cast<int32_t>(block - 1));
    }
}

bool BlockAllocator::reserve(uint64_t num_tokens, std::vector<int32_t>& blocks) {
    AFD_ASSERT(blocks.empty(), "the sequence holds %zu blocks already", blocks.size());
    const uint64_t wanted = blocks_for(num_tokens);
    if (wanted > free_.size()) return false;
    blocks.reserve(wanted);
    for (uint64_t i = 0; i < wanted; ++i) {
        const int32_t block = free_.back();
        free_.pop_back();
        in_use_[static_cast<size_t>(block)] = true;
        blocks.push_back(block);
    }
    return true;
}

void BlockAllocator::release(std::vector<int32_t>& blocks) {
    for (; !blocks.empty(); blocks.pop_back()) {
        const auto block = static_cast<size_t>(blocks.back());
        // Given back twice, a block would be handed to two sequences, which then read each other's
        // keys.
        AFD_ASSERT(block < in_use_.size() && in_use_[block],
                   "block %zu of %zu is not in use",
                   block,
                   in_use_.size());
        in_use_[block] = false;
        free_.push_back(blocks.back());
    }
}

Result<KvCache> KvCache::create(const KvShape& shape,
                                uint64_t num_tokens,
                                const WindowedLayers& windowed,
                                Memory memory_use) {
    KvCache cache;
    const uint64_t num_blocks = BlockAllocator::blocks_for(num_tokens);
    const uint64_t num_windowed = BlockAllocator::blocks_for(windowed.num_tokens);
    cache.num_blocks_ = static_cast<uint32_t>(num_blocks);
    cache.num_windowed_blocks_ =
        windowed.is_windowed.empty() ? 0 : static_cast<uint32_t>(num_windowed);
    cache.is_windowed_ = windowed.is_windowed;
    bool is_too_large = num_blocks > kBlocksMax || num_windowed > kBlocksMax;
    for (uint32_t layer = 0; layer < shape.num_layers && !is_too_large; ++layer) {
        const size_t slots =
            (cache.is_windowed(layer) ? num_windowed : num_blocks) * size_t{kKvBlockTokens};
        size_t bytes = 0;
        is_too_large = __builtin_mul_overflow(slots, shape.layer_bytes_per_token, &bytes) ||
                       __builtin_add_overflow(cache.bytes_, bytes, &cache.bytes_);
        cache.layers_.push_back(
            {.bytes_per_token = shape.layer_bytes_per_token, .num_slots = slots});
    }
    void* memory = is_too_large || cache.bytes_ == 0 ? MAP_FAILED
                                                     : ::mmap(nullptr,
                                                              cache.bytes_,
                                                              PROT_READ | PROT_WRITE,
                                                              MAP_PRIVATE | MAP_ANONYMOUS,
                                                              -1,
                                                              0);
    if (memory == MAP_FAILED) {
        return resource_exhausted(
            "no memory for a KV cache of {} tokens, {} bytes each; configure fewer tokens",
            with(num_tokens, shape.bytes_per_token()));
    }
    // A refusal costs speed only.
    static_cast<void>(::madvise(memory, cache.bytes_, MADV_HUGEPAGE));
    if (memory_use == Memory::kNow) {
        // The pages are zeroed now, not while the first requests wait for them.
        static_cast<void>(::madvise(memory, cache.bytes_, MADV_POPULATE_WRITE));
    }
    cache.memory_ = memory;
    auto* next = static_cast<std::byte*>(memory);
    for (KvLayer& layer : cache.layers_) {
        layer.data = next;
        next += layer.num_slots * layer.bytes_per_token;
    }
    return cache;
}

bool KvCache::populate(size_t part) const {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const size_t first = part * kPartBytes;
    bool has_more = false;
    for (const KvLayer& layer : layers_) {
        const size_t bytes = layer.num_slots * layer.bytes_per_token;
        if (first >= bytes) continue;
        const size_t last = std::min(bytes, first + kPartBytes);
        has_more |= last < bytes;
        // Whole pages: those at its edges are parts of the neighbours, too.
        const auto begin = reinterpret_cast<uintptr_t>(layer.data + first) / page * page;
        const auto end = reinterpret_cast<uintptr_t>(layer.data + last);
        static_cast<void>(
            ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE));
    }
    return has_more;
}

KvCache::KvCache(KvCache&& other) noexcept {
    *this = std::move(other);
}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(num_blocks_, other.num_blocks_);
    std::swap(num_windowed_blocks_, other.num_windowed_blocks_);
    is_windowed_.swap(other.is_windowed_);
    layers_.swap(other.layers_);
    return *this;
}

KvCache::~KvCache() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

KvLayer KvCache::layer(uint32_t layer) const {
    AFD_DASSERT(layer < layers_.size(), "layer %u", layer);
    return layers_[layer];
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "schedule/near/near_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "schedule/wait/flag.h"

namespace afd::schedule {
namespace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free, "address-free, across mappings");

uint64_t look(uint64_t& count, bool is_last_look) {
    const std::atomic_ref<uint64_t> shared(count);
    // Seq_cst: behind the store of arm(); partner: set().
    if (is_last_look) return shared.load(std::memory_order_seq_cst);
    // Acquire; partner: set(): the bytes below the count are there, or are done with.
    return shared.load(std::memory_order_acquire);
}

// Returns whether the other side sleeps.
bool set(uint64_t& count, uint64_t value, const int32_t& other_sleeps) {
    // Seq_cst; partner: look(), and the look below, which comes after it.
    std::atomic_ref<uint64_t>(count).store(value, std::memory_order_seq_cst);
    return observe(other_sleeps, Order::kSeqCst) != 0;
}

// Calls copy(offset in the ring, offset in the span, bytes) for the one or two runs of them.
template <typename Copy>
void for_runs(uint64_t position, size_t bytes, size_t ring_bytes, Copy&& copy) {
    const size_t first = position & (ring_bytes - 1);
    const size_t until_end = std::min(bytes, ring_bytes - first);
    copy(first, size_t{0}, until_end);
    if (until_end < bytes) copy(size_t{0}, until_end, bytes - until_end);
}

}  // namespace

std::optional<uint64_t> NearWriter::room(bool is_last_look) {
    const uint64_t in_ring = written_ - look(words_->read, is_last_look);
    if (in_ring > bytes_.size()) return std::nullopt;
    return bytes_.size() - in_ring;
}

std::optional<size_t> NearWriter::write(std::span<const std::byte> from) {
    if (room_ < from.size()) {
        const std::optional<uint64_t> now = room(false);
        if (!now) return std::nullopt;
        room_ = *now;
    }
    const size_t bytes = std::min<size_t>(from.size(), room_);
    for_runs(written_, bytes, bytes_.size(), [&](size_t in_ring, size_t in_span, size_t count) {
        std::memcpy(bytes_.data() + in_ring, from.data() + in_span, count);
    });
    written_ += bytes;
    room_ -= bytes;
    return bytes;
}

bool NearWriter::publish() {
    return set(words_->written, written_, words_->reader_sleeps);
}

bool NearWriter::arm() {
    publish_seq_cst(words_->writer_sleeps, 1);
    // One that cannot be is found by the next write().
    return room(true).value_or(1) > 0;
}

void NearWriter::disarm() {
    publish_release(words_->writer_sleeps, 0);
}

std::optional<uint64_t> NearReader::available(bool is_last_look) {
    const uint64_t in_ring = look(words_->written, is_last_look) - read_;
    if (in_ring > bytes_.size()) return std::nullopt;
    return in_ring;
}

std::optional<size_t> NearReader::read(std::span<std::byte> to) {
    if (seen_ < to.size()) {
        const std::optional<uint64_t> now = available(false);
        if (!now) return std::nullopt;
        seen_ = *now;
    }
    const size_t bytes = std::min<size_t>(to.size(), seen_);
    for_runs(read_, bytes, bytes_.size(), [&](size_t in_ring, size_t in_span, size_t count) {
        std::memcpy(to.data() + in_span, bytes_.data() + in_ring, count);
    });
    read_ += bytes;
    seen_ -= bytes;
    return bytes;
}

bool NearReader::release() {
    return set(words_->read, read_, words_->writer_sleeps);
}

bool NearReader::arm() {
    publish_seq_cst(words_->reader_sleeps, 1);
    return available(true).value_or(1) > 0;
}

void NearReader::disarm() {
    publish_release(words_->reader_sleeps, 0);
}

}  // namespace afd::schedule

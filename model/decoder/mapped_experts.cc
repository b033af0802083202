// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/mapped_experts.h"

#include <utility>

#include "ops/experts/grouped_ffn.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::model {
void MappedExperts::add(SealedFile file, std::span<const Place> places) {
    for (const Place& place : places) {
        AFD_ASSERT(place.key < entry_of_key_.size() && entry_of_key_[place.key] == kNobody,
                   "key %zu of %zu",
                   place.key,
                   entry_of_key_.size());
        Entry entry{.file = files_.size(), .blocks = place.blocks, .num_bytes = 0};
        for (const size_t block : place.blocks) entry.num_bytes += file.block(block).size();
        entry_of_key_[place.key] = static_cast<uint32_t>(entries_.size());
        num_bytes_ += entry.num_bytes;
        entries_.push_back(entry);
    }
    files_.push_back(std::move(file));
    is_checked_.resize(entries_.size());
    pending_.reserve(entries_.size());
    // Relaxed: no other thread knows this object yet.
    bytes_left_.store(num_bytes_, std::memory_order_relaxed);
}

void MappedExperts::before(std::span<const ops::ExpertGroup> groups, ops::Parallel& parallel) {
    if (bytes_left() == 0) return;
    // Relaxed: partner is is_in_use().
    is_in_use_.store(true, std::memory_order_relaxed);
    pending_.clear();
    for (const ops::ExpertGroup& group : groups) {
        const uint32_t entry = entry_of_key_[static_cast<size_t>(group.key)];
        if (group.count == 0 || entry == kNobody || is_checked(entry)) continue;
        pending_.push_back(entry);
    }
    parallel.run(pending_.size() * kBlocks, [this](size_t task, unsigned thread) {
        const Result<> checked = check_block(pending_[task / kBlocks], task % kBlocks);
        if (!checked.ok() && tell_) tell_(checked.error());
        AFD_ASSERT(checked.ok(), "%s", checked.error().message.c_str());
        if (thread == 0 && beat_) beat_();
    });
    for (const uint32_t entry : pending_) set_checked(entry);
}

Result<bool> MappedExperts::check_next() {
    while (next_ < entries_.size() && is_checked(next_)) ++next_;
    if (next_ == entries_.size()) return false;
    for (size_t block = 0; block < kBlocks; ++block) AFD_TRY(check_block(next_, block));
    set_checked(next_);
    return true;
}

bool MappedExperts::is_checked(size_t entry) const {
    // Acquire: partner is the release in set_checked().
    return std::atomic_ref(const_cast<uint8_t&>(is_checked_[entry]))
               .load(std::memory_order_acquire) != 0;
}

Result<> MappedExperts::check_block(size_t entry, size_t block) const {
    const SealedFile& file = files_[entries_[entry].file];
    const Result<> verified = file.verify(entries_[entry].blocks[block]);
    if (verified.ok()) return {};
    file.condemn();
    return data_loss("{}; the layer has to be packed again", with(verified.error().message));
}

void MappedExperts::set_checked(size_t entry) {
    // Release and acquire: partner are is_checked() and, for the sum, bytes_left(). The exchange
    // lets one of two threads that checked the same expert count it.
    if (std::atomic_ref(is_checked_[entry]).exchange(1, std::memory_order_acq_rel) != 0) return;
    bytes_left_.fetch_sub(entries_[entry].num_bytes, std::memory_order_acq_rel);
}

}  // namespace afd::model

// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_outbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/check.h"
#include "schedule/layout/geometry.h"

namespace afd::schedule {

Result<std::unique_ptr<UcxOutbox>> UcxOutbox::make(size_t row_bytes,
                                                   size_t num_rows_max,
                                                   size_t tail_bytes) {
    std::unique_ptr<UcxOutbox> made(new UcxOutbox(row_bytes, num_rows_max, tail_bytes));
    AFD_ASSIGN(made->place_, made->make_place());
    return made;
}

UcxOutbox::UcxOutbox(size_t row_bytes, size_t num_rows_max, size_t tail_bytes)
    : row_bytes_(row_bytes), num_rows_max_(num_rows_max), tail_bytes_(tail_bytes) {}

// Zeroed: the bytes of a row that are not meant travel too, and are nobody's secret.
auto UcxOutbox::make_place() const -> Result<std::unique_ptr<Place>> {
    auto place = std::make_unique<Place>();
    AFD_ASSIGN(place->bytes, make_ucx_memory(bytes_max(row_bytes_, num_rows_max_, tail_bytes_)));
    place->message.borrowed = place->bytes.get();
    return place;
}

void UcxOutbox::add(uint32_t slot, std::span<const std::byte> row) {
    // Relaxed: it only counts; whoever publishes comes after all rows by other means.
    const size_t index = num_rows_.fetch_add(1, std::memory_order_relaxed);
    AFD_ASSERT(index < num_rows_max_ && row.size() <= row_bytes_,
               "row %zu of %zu, %zu bytes of %zu",
               index,
               num_rows_max_,
               row.size(),
               row_bytes_);
    const UcxRecord record{slot, static_cast<uint32_t>(row.size()), 0};
    std::byte* to = place_->bytes.get() + index * record_bytes();
    std::memcpy(to, &record, sizeof(record));
    if (!row.empty()) std::memcpy(to + sizeof(record), row.data(), row.size());
}

void UcxOutbox::add_refusal(uint32_t slot) {
    // Relaxed: it only counts; whoever publishes comes after all rows by other means.
    const size_t index = num_rows_.fetch_add(1, std::memory_order_relaxed);
    AFD_ASSERT(index < num_rows_max_, "row %zu of %zu", index, num_rows_max_);
    const UcxRecord record{slot, UcxRecord::kRefused, 0};
    std::memcpy(place_->bytes.get() + index * record_bytes(), &record, sizeof(record));
}

UcxMessage& UcxOutbox::seal(const UcxHeader& header, std::span<const std::byte> tail) {
    UcxMessage& message = place_->message;
    AFD_ASSERT(tail.size() <= tail_bytes_, "%zu bytes of %zu", tail.size(), tail_bytes_);
    AFD_ASSERT(!is_kept_,
               "round %d while the peer is not done with round %d",
               header.round,
               message.header.round);
    is_kept_ = true;
    message.header = header;
    // Relaxed: see add().
    message.header.num_rows = num_rows_.exchange(0, std::memory_order_relaxed);
    const size_t rows_bytes = message.header.num_rows * record_bytes();
    if (!tail.empty()) std::memcpy(place_->bytes.get() + rows_bytes, tail.data(), tail.size());
    message.payload_bytes = rows_bytes + tail.size();
    return message;
}

UcxMessage* UcxOutbox::kept_for_another_send() {
    if (!is_kept_) return nullptr;
    if (place_->message.num_in_flight != 0) {
        replace_place();
        const Place& sent = *buried_.back();
        place_->message.header = sent.message.header;
        place_->message.payload_bytes = sent.message.payload_bytes;
        std::memcpy(place_->bytes.get(), sent.bytes.get(), sent.message.payload_bytes);
    }
    return &place_->message;
}

std::span<const std::byte> UcxOutbox::kept_tail() const {
    const UcxMessage& message = place_->message;
    const size_t rows_bytes = message.header.num_rows * record_bytes();
    return {message.data() + rows_bytes, message.payload_bytes - rows_bytes};
}

size_t UcxOutbox::num_unsent() const {
    const auto is_unsent = [](const auto& place) { return place->message.num_in_flight != 0; };
    return static_cast<size_t>(std::ranges::count_if(buried_, is_unsent)) +
           (is_unsent(place_) ? 1 : 0);
}

void UcxOutbox::release() {
    is_kept_ = false;
    if (place_->message.num_in_flight != 0) replace_place();
}

// By one that UCX has let go of meanwhile, or a new one; others that it has let go of are freed.
// What is replaced lies last.
void UcxOutbox::replace_place() {
    const auto is_free = [](const auto& buried) { return buried->message.num_in_flight == 0; };
    const auto spare = std::ranges::find_if(buried_, is_free);
    std::unique_ptr<Place> next;
    if (spare != buried_.end()) {
        next = std::move(*spare);
        buried_.erase(spare);
    } else {
        auto made = make_place();
        AFD_ASSERT(made.ok(), "%s", made.error().message.c_str());
        next = std::move(made).value();
    }
    std::erase_if(buried_, is_free);
    buried_.push_back(std::exchange(place_, std::move(next)));
}

void unpack_ids(std::span<const std::byte> tail, std::span<int32_t> ids) {
    const size_t num_meant = tail.size() / sizeof(int32_t);
    if (num_meant > 0) std::memcpy(ids.data(), tail.data(), num_meant * sizeof(int32_t));
    std::fill(ids.begin() + static_cast<ptrdiff_t>(num_meant), ids.end(), kMaskedId);
}

UcxRecords::UcxRecords(const UcxHeader& header,
                       std::span<const std::byte> bytes,
                       size_t row_bytes,
                       size_t num_slots)
    : bytes_(bytes),
      stride_(sizeof(UcxRecord) + row_bytes),
      num_rows_(header.num_rows),
      is_valid_(num_rows_ <= num_slots && bytes.size() >= num_rows_ * stride_) {
    for (uint32_t i = 0; is_valid_ && i < num_rows_; ++i) {
        const UcxRecord found = record(i);
        is_valid_ = found.slot < num_slots &&
                    (found.bytes <= row_bytes || found.bytes == UcxRecord::kRefused);
    }
}

UcxRecord UcxRecords::record(uint32_t index) const {
    UcxRecord copy;
    std::memcpy(&copy, bytes_.data() + index * stride_, sizeof(copy));
    return copy;
}

const std::byte* UcxRecords::row(uint32_t index) const {
    return bytes_.data() + index * stride_ + sizeof(UcxRecord);
}

}  // namespace afd::schedule

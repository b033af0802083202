// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_outbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/check.h"
#include "schedule/layout/geometry.h"

namespace afd::schedule {

UcxOutbox::UcxOutbox(size_t row_bytes, size_t num_rows_max, size_t tail_bytes)
    : row_bytes_(row_bytes),
      num_rows_max_(num_rows_max),
      tail_bytes_(tail_bytes),
      staged_(make_message()),
      kept_(make_message()) {}

std::unique_ptr<UcxMessage> UcxOutbox::make_message() const {
    auto message = std::make_unique<UcxMessage>();
    // Zeroed: the bytes of a row that are not meant travel too, and are nobody's secret.
    message->payload = std::make_unique<std::byte[]>(num_rows_max_ * record_bytes() + tail_bytes_);
    return message;
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
    std::byte* to = staged_->payload.get() + index * record_bytes();
    std::memcpy(to, &record, sizeof(record));
    if (!row.empty()) std::memcpy(to + sizeof(record), row.data(), row.size());
}

void UcxOutbox::add_refusal(uint32_t slot) {
    // Relaxed: it only counts; whoever publishes comes after all rows by other means.
    const size_t index = num_rows_.fetch_add(1, std::memory_order_relaxed);
    AFD_ASSERT(index < num_rows_max_, "row %zu of %zu", index, num_rows_max_);
    const UcxRecord record{slot, UcxRecord::kRefused, 0};
    std::memcpy(staged_->payload.get() + index * record_bytes(), &record, sizeof(record));
}

UcxMessage& UcxOutbox::seal(const UcxHeader& header, std::span<const std::byte> tail) {
    AFD_ASSERT(tail.size() <= tail_bytes_, "%zu bytes of %zu", tail.size(), tail_bytes_);
    std::swap(staged_, kept_);
    kept_->header = header;
    // Relaxed: see add().
    kept_->header.num_rows = num_rows_.exchange(0, std::memory_order_relaxed);
    const size_t rows_bytes = kept_->header.num_rows * record_bytes();
    if (!tail.empty()) std::memcpy(kept_->payload.get() + rows_bytes, tail.data(), tail.size());
    kept_->payload_bytes = rows_bytes + tail.size();
    if (staged_->num_in_flight != 0) bury(std::exchange(staged_, make_message()));
    return *kept_;
}

UcxMessage* UcxOutbox::kept_for_another_send() {
    if (kept_->header.round == 0) return nullptr;
    if (kept_->num_in_flight != 0) {
        auto copy = make_message();
        copy->header = kept_->header;
        copy->payload_bytes = kept_->payload_bytes;
        std::memcpy(copy->payload.get(), kept_->payload.get(), copy->payload_bytes);
        bury(std::exchange(kept_, std::move(copy)));
    }
    return kept_.get();
}

std::span<const std::byte> UcxOutbox::kept_tail() const {
    const size_t rows_bytes = kept_->header.num_rows * record_bytes();
    return {kept_->payload.get() + rows_bytes, kept_->payload_bytes - rows_bytes};
}

void UcxOutbox::bury(std::unique_ptr<UcxMessage> message) {
    std::erase_if(buried_, [](const auto& buried) { return buried->num_in_flight == 0; });
    buried_.push_back(std::move(message));
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxOutbox: the rows of one lane in one direction on their way: those of the round that is being
// put, and what was published last, which is kept until the next one (R15). A publication is one
// message, so that it arrives as a whole or not at all.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/ucx/ucx_message.h"

namespace afd::schedule {

class UcxOutbox {
  public:
    // A publication is at most `num_rows_max` rows of `row_bytes`, and `tail_bytes` behind them.
    UcxOutbox(size_t row_bytes, size_t num_rows_max, size_t tail_bytes);

    // Adds a row to what will be published. Different rows on different threads at once.
    // REQUIRES: at most num_rows_max rows of at most row_bytes.
    void add(uint32_t slot, std::span<const std::byte> row);
    void add_refusal(uint32_t slot);

    // Under the lock of the UcxWorker:
    // What was added becomes what is kept, with these words of the header and this tail.
    // REQUIRES: at most tail_bytes.
    UcxMessage& seal(const UcxHeader& header, std::span<const std::byte> tail = {});
    // What was published last, for another connection; null if nothing was. Allocates if the last
    // one's bytes are still with UCX.
    UcxMessage* kept_for_another_send();
    // The tail of what was published last.
    std::span<const std::byte> kept_tail() const;

  private:
    std::unique_ptr<UcxMessage> make_message() const;
    void bury(std::unique_ptr<UcxMessage> message);

    size_t record_bytes() const { return sizeof(UcxRecord) + row_bytes_; }

    size_t row_bytes_;
    size_t num_rows_max_;
    size_t tail_bytes_;
    // Relaxed: rows get their places from it; publishing comes after all of them.
    std::atomic<uint32_t> num_rows_{0};
    std::unique_ptr<UcxMessage> staged_;
    std::unique_ptr<UcxMessage> kept_;
    // Of paths that failed and that UCX could not close.
    std::vector<std::unique_ptr<UcxMessage>> buried_;
};

// The ids of a descriptor from its tail: what was left out is masked. REQUIRES: as many whole ids
// as fit.
void unpack_ids(std::span<const std::byte> tail, std::span<int32_t> ids);

// The records of a message.
class UcxRecords {
  public:
    // Bytes behind them are left: tail(). Errors by is_valid(): too few bytes, more rows than
    // slots, a slot or a length out of range.
    UcxRecords(const UcxHeader& header,
               std::span<const std::byte> bytes,
               size_t row_bytes,
               size_t num_slots);

    bool is_valid() const { return is_valid_; }
    uint32_t size() const { return num_rows_; }
    UcxRecord record(uint32_t index) const;
    // Its first record(index).bytes are meant.
    const std::byte* row(uint32_t index) const;
    // What comes behind the records. REQUIRES: is_valid().
    std::span<const std::byte> tail() const { return bytes_.subspan(num_rows_ * stride_); }

  private:
    std::span<const std::byte> bytes_;
    size_t stride_;
    uint32_t num_rows_;
    bool is_valid_;
};

}  // namespace afd::schedule

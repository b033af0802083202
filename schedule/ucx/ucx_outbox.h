// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxOutbox: the rows of one lane in one direction on their way. A publication is one message, so
// that it arrives as a whole or not at all, and is kept until the peer is done with it (R15). Only
// then is the next one put (R4), in the same place:
//
//     add(...)... -> seal() -> kept_for_another_send()... -> release() -> add(...)...

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/status.h"
#include "schedule/ucx/ucx_memory.h"
#include "schedule/ucx/ucx_message.h"

namespace afd::schedule {

class UcxOutbox {
  public:
    // Messages of one outbox that UCX may have while the peer answers them: more than one that was
    // sent again, and some whose end UCX tells late (rc). A peer that answers further ones, or has
    // them sent again, reads nothing, and loses its connection (UcxReturn, UcxDispatch): each would
    // cost another place.
    static constexpr size_t kUnsentMax = 4;

    // A publication is at most `num_rows_max` rows of `row_bytes`, and `tail_bytes` behind them.
    // Errors: kResourceExhausted, as make_ucx_memory().
    static Result<std::unique_ptr<UcxOutbox>> make(size_t row_bytes,
                                                   size_t num_rows_max,
                                                   size_t tail_bytes);

    // Bytes of the largest publication.
    static constexpr uint64_t bytes_max(uint64_t row_bytes,
                                        uint64_t num_rows_max,
                                        uint64_t tail_bytes) {
        return num_rows_max * (sizeof(UcxRecord) + row_bytes) + tail_bytes;
    }

    // Adds a row to what will be published. Different rows on different threads at once.
    // REQUIRES: at most num_rows_max rows of at most row_bytes; nothing is kept.
    void add(uint32_t slot, std::span<const std::byte> row);
    void add_refusal(uint32_t slot);

    // Under the lock of the UcxWorker:
    // What was added is kept from here on, with these words of the header and this tail.
    // REQUIRES: at most tail_bytes; nothing is kept.
    UcxMessage& seal(const UcxHeader& header, std::span<const std::byte> tail = {});
    // What is kept, for another connection; null if nothing is. Where its bytes are still with UCX,
    // it is a copy in another place: see release().
    UcxMessage* kept_for_another_send();
    // The tail of what is kept. REQUIRES: something is.
    std::span<const std::byte> kept_tail() const;
    // Whether UCX has so many messages that no other is to be put beside them.
    bool is_clogged() const { return num_unsent() > kUnsentMax; }
    // The peer is done with what is kept, if anything is: nothing is from here on. Call it before
    // whoever puts the next rows can know that. The next rows get another place if the bytes are
    // still with UCX: where they went by a connection that broke, or where UCX tells of a send
    // later than the peer's answer comes (rc). It is one that UCX has let go of, and only where
    // there is none it is allocated; without memory for it, the process aborts.
    void release();

  private:
    // A message, and the bytes that it borrows.
    struct Place {
        UcxMessage message;
        UcxMemory bytes;
    };

    UcxOutbox(size_t row_bytes, size_t num_rows_max, size_t tail_bytes);
    Result<std::unique_ptr<Place>> make_place() const;
    void replace_place();
    size_t num_unsent() const;

    size_t record_bytes() const { return sizeof(UcxRecord) + row_bytes_; }

    size_t row_bytes_;
    size_t num_rows_max_;
    size_t tail_bytes_;
    // Relaxed: rows get their places from it; publishing comes after all of them.
    std::atomic<uint32_t> num_rows_{0};
    std::unique_ptr<Place> place_;
    bool is_kept_ = false;
    // What UCX had not let go of when it was replaced; for ever only without
    // UcxConfig::tells_failures.
    std::vector<std::unique_ptr<Place>> buried_;
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

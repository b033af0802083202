// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupList: which rows belong to which expert, read from any of the three forms of a group list.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// The rows of one expert.
struct GroupRows {
    size_t expert = 0;
    size_t first_row = 0;
    size_t count = 0;
};

class GroupList {
  public:
    // type 0: [E] inclusive prefix sums; 1: [E] counts; 2: [G, 2] pairs of expert and count.
    // REQUIRES: int64, contiguous.
    GroupList(int64_t type, const ConstTensorView& view)
        : type_(type), values_(static_cast<const int64_t*>(view.data)), size_(view.shape[0]) {}

    size_t size() const { return size_; }
    // What entry `index` says; nothing is judged yet. A prefix sum below the one before counts -1.
    int64_t expert(size_t index) const {
        return type_ == 2 ? values_[2 * index] : static_cast<int64_t>(index);
    }
    int64_t count(size_t index) const {
        if (type_ == 2) return values_[2 * index + 1];
        if (type_ == 1 || index == 0) return values_[index];
        return values_[index] < values_[index - 1] ? -1 : values_[index] - values_[index - 1];
    }

    // Calls body(GroupRows) for every entry with rows. REQUIRES: a list that was checked.
    template <typename Body>
    void for_each(const Body& body) const {
        size_t first_row = 0;
        for (size_t i = 0; i < size_; ++i) {
            const auto count_of_entry = static_cast<size_t>(count(i));
            if (count_of_entry == 0) continue;
            body(GroupRows{static_cast<size_t>(expert(i)), first_row, count_of_entry});
            first_row += count_of_entry;
        }
    }

  private:
    int64_t type_;
    const int64_t* values_;
    size_t size_;
};

}  // namespace afd::ops

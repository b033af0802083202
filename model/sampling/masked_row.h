// SPDX-License-Identifier: Apache-2.0
#pragma once

// MaskedRow: the logits of the tokens that a mask allows, side by side, so that what follows costs
// as little as there are few of them. A mask has bit id % 64 of word id / 64 for token id.
//
// Allocates at construction only. One thread at a time per object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace afd::model {

class MaskedRow {
  public:
    explicit MaskedRow(size_t vocab_size);

    // Ids ascending; valid until the next call. REQUIRES: row.size() == vocab_size, no bit of
    // `allowed` behind it.
    std::span<const float> gather(std::span<const float> row, std::span<const uint64_t> allowed);

    // The token at `index` of what gather() gives. REQUIRES: there is one.
    static uint32_t token_at(std::span<const uint64_t> allowed, size_t index);

  private:
    size_t vocab_size_;
    std::vector<float> gathered_;  // And room behind it.
};

}  // namespace afd::model

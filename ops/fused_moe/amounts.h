// SPDX-License-Identifier: Apache-2.0
#pragma once

// Capacity and Count: how many fit and how many there are, as two types that do not mix, both with
// arithmetic that notices overflow instead of wrapping.
//
// What one rank may send is a third type, so the product with the number of dispatchers is taken
// once: of() gives a Capacity, which has no such product any more.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {

template <typename Tag>
class Amount {
  public:
    constexpr Amount() = default;
    constexpr explicit Amount(uint64_t value) : value_(value < kBeyond ? value : kBeyond) {}

    // Whether a sum or product on the way here was too large; it stays so.
    constexpr bool overflowed() const { return value_ == kBeyond; }

    // REQUIRES: !overflowed().
    constexpr size_t value() const {
        AFD_ASSERT(!overflowed(), "an amount beyond 2^63 was used");
        return value_;
    }
    std::string text() const { return overflowed() ? "more than 2^63" : std::to_string(value_); }

    friend constexpr Amount operator+(Amount a, Amount b) {
        return Amount(a.value_ > kBeyond - b.value_ ? kBeyond : a.value_ + b.value_);
    }
    friend constexpr Amount operator*(Amount a, uint64_t factor) {
        return Amount(factor != 0 && a.value_ > (kBeyond - 1) / factor ? kBeyond
                                                                       : a.value_ * factor);
    }
    friend constexpr auto operator<=>(Amount, Amount) = default;

  private:
    static constexpr uint64_t kBeyond = uint64_t{1} << 63;

    uint64_t value_ = 0;
};

using Capacity = Amount<struct CapacityTag>;
using Count = Amount<struct CountTag>;

// The one comparison between the two.
constexpr bool fits(Count count, Capacity capacity) {
    return !count.overflowed() && !capacity.overflowed() && count.value() <= capacity.value();
}

// Tokens that one rank sends in one call, at most; 0: no limit.
class RankCapacity {
  public:
    constexpr RankCapacity() = default;
    constexpr explicit RankCapacity(uint64_t num_tokens) : num_tokens_(num_tokens) {}

    constexpr bool is_limited() const { return num_tokens_ != 0; }
    constexpr uint64_t num_tokens() const { return num_tokens_; }

    // What all dispatchers together send, at most.
    constexpr Capacity of(uint64_t num_dispatchers) const {
        return Capacity(num_tokens_) * num_dispatchers;
    }

    friend constexpr bool operator==(RankCapacity, RankCapacity) = default;

  private:
    uint64_t num_tokens_ = 0;
};

// Bytes of `count` elements in whole lines, as WorkspaceCursor takes them.
template <typename T>
Capacity bytes_of(Capacity count) {
    const Capacity bytes = count * sizeof(T);
    return bytes.overflowed() ? bytes : Capacity(workspace_round_up(bytes.value()));
}

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// LineFetches: lines that are fetched in so many equal parts. A part should be of few lines: of ten
// at once a Zen 4 seems to drop some. What is needed at once, as a block that nobody has fetched,
// is one part all the same. Included by kernels_*.cc only.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/caches.h"
#include "ops/cpu/weight_fetch.h"

namespace afd::ops::cpu {
namespace {

// kFirst: what is read so soon that it stays there. From the second-level cache it would come a
// second time, and a core waits for few lines at once: on a Zen 5 that costs 3 to 18 %. Where a
// core waits for more of them at its second level (Caches), they go there all the same: a block of
// four heads of keys from memory takes an Emerald Rapids 2.5 instead of 2.8 µs, of eight 2.9
// instead of 3.1.
enum class CacheLevel { kFirst, kSecond };

class LineFetches {
  public:
    // REQUIRES: num_parts > 0.
    LineFetches(CacheLevel level, const void* from, size_t bytes, size_t num_parts)
        : level_(processor_caches().is_filled_by_second_level ? CacheLevel::kSecond : level),
          at_(reinterpret_cast<uintptr_t>(from)),
          end_(at_ + bytes) {
        const size_t num_lines = (bytes + kLineBytes - 1) / kLineBytes;
        part_bytes_ = (num_lines + num_parts - 1) / num_parts * kLineBytes;
    }

    [[gnu::always_inline]] void next() {
        const uintptr_t end = std::min(at_ + part_bytes_, end_);
        if (level_ == CacheLevel::kFirst) {
            for (; at_ < end; at_ += kLineBytes) fetch_to_first_level(at_);
        } else {
            for (; at_ < end; at_ += kLineBytes) fetch_to_second_level(at_);
        }
    }

  private:
    CacheLevel level_;
    uintptr_t at_;
    uintptr_t end_;
    size_t part_bytes_;
};

}  // namespace
}  // namespace afd::ops::cpu

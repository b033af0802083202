// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checksum of bulk bytes, as fast as memory delivers them: FNV-1a's step (xor, multiply) over
// 64-bit words in eight independent lanes, each product with its upper half folded into the lower
// one, and the lanes into each other at the end. Finds what disks, file systems and other programs
// do to a file; no defence against someone who wants a collision.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace afd::model {

class Checksum {
  public:
    static uint64_t of(std::span<const std::byte> bytes) {
        std::array<uint64_t, kLanes> lanes;
        lanes.fill(kBasis);
        size_t at = 0;
        for (; at + kBlock <= bytes.size(); at += kBlock) {
            std::array<uint64_t, kLanes> words;
            std::memcpy(words.data(), bytes.data() + at, kBlock);
            for (size_t i = 0; i < kLanes; ++i) lanes[i] = mixed(lanes[i], words[i]);
        }
        uint64_t state = kBasis ^ bytes.size();
        for (const uint64_t lane : lanes) state = mixed(state, lane);
        for (; at < bytes.size(); ++at) {
            state = mixed(state, std::to_integer<uint64_t>(bytes[at]));
        }
        return state;
    }

  private:
    static constexpr size_t kLanes = 8;
    static constexpr size_t kBlock = kLanes * sizeof(uint64_t);
    static constexpr uint64_t kBasis = 0xcbf29ce484222325u;
    static constexpr uint64_t kPrime = 0x9e3779b97f4a7c15u;  // Odd, with many bits set.

    // A bijection of `state` for every `word`, and of `word` for every `state`. A product carries
    // upwards only: without the fold the highest bit of a word would stay alone in the state, and
    // the same flip in a later word would take it out again.
    static uint64_t mixed(uint64_t state, uint64_t word) {
        state = (state ^ word) * kPrime;
        return state ^ (state >> 32);
    }
};

}  // namespace afd::model

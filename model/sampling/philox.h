// SPDX-License-Identifier: Apache-2.0
#pragma once

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11):
// a counter-based generator. The value depends on key and counter alone, so a sampled token does
// not depend on what was sampled before or beside it.

#include <array>
#include <cstdint>

namespace afd::model {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Ten rounds of the paper's bijection of `counter` under `key`.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
    // Multipliers and Weyl increments: the paper's table 2 and section 3.3.
    constexpr uint64_t kMultiplier0 = 0xD2511F53;
    constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
    constexpr uint32_t kWeyl0 = 0x9E3779B9;
    constexpr uint32_t kWeyl1 = 0xBB67AE85;
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = kMultiplier0 * counter[0];
        const uint64_t product1 = kMultiplier1 * counter[2];
        counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<uint32_t>(product1),
                   static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<uint32_t>(product0)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

// A number in [0, 1), a multiple of 2^-53, for (seed, choice index, absolute position).
constexpr double philox_uniform(uint64_t seed, uint32_t choice, uint64_t position) {
    const PhiloxCounter bits = philox4x32(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, 0},
        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t word = (uint64_t{bits[1]} << 32) | bits[0];
    return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace afd::model

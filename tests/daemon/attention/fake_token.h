// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the fake worker samples: a letter that depends on seed and position only.

#include <cstdint>
#include <string>

namespace afd::daemon {

inline uint32_t fake_token(uint64_t seed, uint32_t position) {
    return static_cast<uint32_t>('a' + (seed + uint64_t{position} * position) % 26);
}

inline std::string fake_text(uint64_t seed, uint32_t num_prompt_tokens, uint32_t count) {
    std::string text;
    for (uint32_t i = 0; i < count; ++i) {
        text += static_cast<char>(fake_token(seed, num_prompt_tokens + i));
    }
    return text;
}

}  // namespace afd::daemon

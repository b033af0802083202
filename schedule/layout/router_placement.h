// SPDX-License-Identifier: Apache-2.0
#pragma once

// RouterPlacement: which side chooses a token's experts. The same for all processes of an instance;
// it stands in every segment header, because it decides what the windows hold (docs/wire.md).

#include <cstdint>
#include <string_view>

namespace afd::schedule {

enum class RouterPlacement : uint32_t {
    kAttention = 0,  // Each chosen expert's rank gets the token's row and the expert's id.
    kFfn = 1,        // Every rank gets the row once and routes it; result rows carry their weights.
};

// "attention" or "ffn".
std::string_view name_of(RouterPlacement placement);

}  // namespace afd::schedule

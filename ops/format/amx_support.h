// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether this process may use the tile instructions of AMX: the processor has them, the operating
// system saves their registers, and it has let this process use them.

#include <string_view>

namespace afd::ops {

struct AmxSupport {
    bool is_offered = false;
    std::string_view reason;  // Why not; empty where it is offered.
};

// The first call asks the kernel for permission, which holds for all threads of the process.
const AmxSupport& amx_support();

}  // namespace afd::ops

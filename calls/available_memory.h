// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much more memory this process can get: what a call by name may need, unless it is told.

#include <cstdint>

namespace afd::calls {

// schedule::available_memory_bytes(); of a need that any machine meets nothing is looked up.
// Where nothing is known: no limit.
uint64_t available_memory(uint64_t needed);

}  // namespace afd::calls

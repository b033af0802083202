// SPDX-License-Identifier: Apache-2.0
#pragma once

// A thread that spins, on a word of its own process or of another one, says so between two looks.

namespace afd {

// Tells the core that this thread spins.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm("yield");
#endif
}

}  // namespace afd

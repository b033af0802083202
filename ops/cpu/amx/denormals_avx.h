// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the processor treats denormals, for the class amx. Included by kernels_amx_*.cc only.

#include <immintrin.h>

namespace afd::ops::cpu {
namespace {

// While one lives, this thread's vector arithmetic takes denormal operands and results as zeros and
// rounds to nearest even. What is computed meanwhile stands in a function that is not inlined:
// compilers do not know that arithmetic depends on the mode.
class VectorDenormalsAreZero {
  public:
    VectorDenormalsAreZero() : before_(_mm_getcsr()) {
        constexpr unsigned kFlushResults = 0x8000;
        constexpr unsigned kZeroOperands = 0x0040;
        constexpr unsigned kNoTraps = 0x1f80;
        _mm_setcsr(kFlushResults | kZeroOperands | kNoTraps);
    }
    ~VectorDenormalsAreZero() { _mm_setcsr(before_); }
    VectorDenormalsAreZero(const VectorDenormalsAreZero&) = delete;
    VectorDenormalsAreZero& operator=(const VectorDenormalsAreZero&) = delete;

  private:
    unsigned before_;
};

}  // namespace
}  // namespace afd::ops::cpu

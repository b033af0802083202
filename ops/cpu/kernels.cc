// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/kernels.h"

#include "proto/check.h"

namespace afd::ops::cpu {

const Kernels& kernels(NumericClass numeric_class) {
    switch (numeric_class) {
#ifdef AFD_OPS_X86
        case NumericClass::kAvx2:
            // The one place that picks a table. A class that this processor lacks never comes here:
            // PackedLinear refuses to hold its weights.
            return avx2_kernels();
        case NumericClass::kAvx512:
            return avx512_kernels();
        case NumericClass::kAvx512Bf16:
            return avx512_bf16_kernels();
#endif
        default:
            break;
    }
    AFD_ASSERT(numeric_class == NumericClass::kPortable,
               "numeric class %d is not part of this build",
               static_cast<int>(numeric_class));
    return portable_kernels();
}

}  // namespace afd::ops::cpu

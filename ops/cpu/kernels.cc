// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/kernels.h"

#include <utility>

#include "proto/check.h"

namespace afd::ops::cpu {
namespace {

#ifdef AFD_OPS_X86
const Kernels& fastest_avx512_kernels() {
    if (!__builtin_cpu_supports("avx512vnni")) return avx512_kernels();
    return __builtin_cpu_supports("avx512vbmi") ? avx512_vbmi_kernels() : avx512_vnni_kernels();
}
#endif

const Kernels& fastest_amx_kernels() {
#ifdef AFD_OPS_X86
    if (is_native(NumericClass::kAmx)) return amx_kernels();
    if (supported(NumericClass::kAvx512)) return amx_avx512_kernels();
    if (supported(NumericClass::kAvx2)) return amx_avx2_kernels();
#endif
    return amx_portable_kernels();
}

const Kernels*& current_amx_kernels() {
    static const Kernels* current = &fastest_amx_kernels();
    return current;
}

}  // namespace

const Kernels& kernels(NumericClass numeric_class) {
    switch (numeric_class) {
#ifdef AFD_OPS_X86
        case NumericClass::kAvx2:
            // The one place that picks a table. A class that this processor lacks never comes here:
            // PackedLinear refuses to hold its weights.
            return avx2_kernels();
        case NumericClass::kAvx512: {
            static const Kernels& fastest = fastest_avx512_kernels();
            return fastest;
        }
        case NumericClass::kAvx512Bf16:
            return avx512_bf16_kernels();
#endif
        case NumericClass::kAmx:
            return *current_amx_kernels();
        default:
            break;
    }
    AFD_ASSERT(numeric_class == NumericClass::kPortable,
               "numeric class %d is not part of this build",
               static_cast<int>(numeric_class));
    return portable_kernels();
}

const Kernels& best_kernels() {
    return kernels(newest_numeric_class());
}

const Kernels& exchange_amx_kernels(const Kernels& kernels) {
    return *std::exchange(current_amx_kernels(), &kernels);
}

}  // namespace afd::ops::cpu

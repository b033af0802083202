// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512 where the processor has VBMI beside VNNI, as Intel's do since Ice Lake:
// values of fp8 weights are looked up. Compiled with -mavx512f ... -mavx512vnni -mavx512vbmi.

#include <immintrin.h>

#include "ops/cpu/avx512/fp8_vbmi.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {

const Kernels& avx512_vbmi_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_vnni_kernels();
        table.shape.fp8_rows = kFp8VbmiRows;
        table.shape.fp8_product_rows = kFp8VbmiRows;
        table.fp8_tile = fp8_tile_vbmi;
        table.unpack_fp8 = unpack_fp8_vbmi;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu

// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512 where the processor has VNNI, as Intel's do since Cascade Lake: vpdpbusd for
// int8 rows, whose products are exact in every class. Compiled with -mavx512f ... -mavx512vnni.

#include <immintrin.h>

#include "ops/cpu/avx512/int8_vnni.h"
#include "ops/cpu/avx512/w4a8_vnni.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {

const Kernels& avx512_vnni_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_kernels();
        table.sum_int8 = sum_int8;
        table.int8_tile = int8_tile;
        table.shape.w4a8_rows = kW4a8TileRows;
        table.w4a8_tile = w4a8_vnni_tile;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu

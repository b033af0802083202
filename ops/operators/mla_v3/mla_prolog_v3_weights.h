// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3Weights: the matrices of mla_prolog_v3, packed.

#include <cstdint>
#include <vector>

#include "ops/attention/mla_prolog.h"
#include "ops/linear/packed_linear.h"
#include "ops/operators/mla_v3/mla_prolog_v3_request.h"
#include "proto/status.h"

namespace afd::ops {

// The four matrices in the layout of one numeric class, packed once at load.
struct MlaPrologV3Weights {
    MlaShape shape;  // v_head_dim is not used.
    int64_t weight_quant_mode = 0;
    // int8 with their dequant_scale_w_*: weight_uq_qr with mode 1, all three with mode 2; else
    // bf16.
    PackedLinear weight_dq;
    PackedLinear weight_uq_qr;
    PackedLinear weight_dkv_kr;
    std::vector<PackedLinear> weight_uk;  // N matrices [Hckv, D]
};

// Packs the matrices of a request and the scales of those in int8. Errors: those of mla_prolog_v3.
Result<MlaPrologV3Weights> pack_mla_prolog_v3(const MlaPrologV3Request& request,
                                              NumericClass numeric_class);

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3Call: what one call of mla_prolog_v3 works on, its scratch, and its two halves.
// Internal to ops/.

#include <cstddef>
#include <cstdint>

#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "ops/operators/mla_v3/mla_prolog_v3_request.h"
#include "ops/operators/mla_v3/mla_prolog_v3_weights.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// What one call works on.
struct MlaPrologV3Call {
    const MlaPrologV3Request& request;
    const MlaPrologV3Weights& weights;
    const MlaPrologV3Plan& plan;
    Parallel& parallel;
};

// Sized for every scenario; a scenario uses a part of it.
struct MlaPrologV3Scratch {
    Rows<Bf16> cq;     // [T, Hcq]
    Rows<Bf16> n;      // [T, Hcq]
    Rows<Bf16> qq;     // [T, N·(D + Dr)]; in scenarios 2xx only the columns D are written.
    Rows<Bf16> query;  // [T, N·Hckv], before it is quantised.
    Rows<Bf16> kv;     // [T, Hckv + Dr]
    Rows<float> cq32;  // [T, Hcq], then n
    Rows<float> qq32;  // [T, N·(D + Dr)]
    Rows<float> kv32;  // [T, Hckv + Dr]
    Rows<int8_t> n8;   // [T, Hcq]
    float* n_scale;    // [T]
    float* ckv;        // [Hckv]
    float* kr;         // [Dr]
    float* smooth;     // [Hcq]
    float* rotated;    // [N, Dr], a row for the task of each head.
    std::byte* row;    // One cache row.
};

// query, query_rope and their scales; query_norm and its scale.
void mla_prolog_v3_query(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch);

// kv_cache and kr_cache.
void mla_prolog_v3_kv(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch);

}  // namespace afd::ops

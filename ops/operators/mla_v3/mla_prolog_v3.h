// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3, the whole operator on tensor views: from normalised hidden rows to absorbed queries,
// and the latent and rotated key into a cache of any mode, unquantised or quantised.
//
//   cq = x·Wdq;  n = rms(cq)·γ·qc_qr_scale;  qq = n·Wuq_qr as [N, D + Dr]
//   query = qq_D·Wuk per head;  query_rope = rope(qq_R)
//   kv = x·Wdkv_kr as [Hckv | Dr];  ckv = rms(kv)·γ·kc_scale;  kr = rope(kv_R)
// The scenario, three digits (weight_quant_mode, kv_cache_quant_mode, query_quant_mode), says what
// is rounded and quantised where: 000; 100, 120, 130; 200, 211, 230, 231. Names, shapes, dtypes and
// constraints stand in kMlaPrologV3Spec.
// Source: seed mla_prolog_v3, docs/specification.md, section 11.
// This is the operator that stands alone; the daemon's decoder has ops/attention/mla_prolog.h,
// unquantised and over its own cache. Scenario 000 gives the same bits.

#include <cstddef>
#include <span>

#include "ops/attention/mla_prolog.h"
#include "ops/operators/mla_v3/mla_prolog_v3_request.h"
#include "ops/operators/mla_v3/mla_prolog_v3_weights.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::ops {

// The request with its outputs as contiguous views without data; one that is off has rank 0.
// Looks at attributes and inputs only. Errors: those of mla_prolog_v3.
Result<MlaPrologV3Request> with_output_shapes(const MlaPrologV3Request& request);

// Bytes for up to `num_tokens_max` tokens of any request with this shape.
size_t mla_prolog_v3_workspace_bytes(const MlaShape& shape, size_t num_tokens_max);

// A row's bits depend on the row, the weights and their numeric class only. Of equal cache indices
// the last token wins; index -1 writes nothing.
// Errors: kInvalidArgument, naming parameter, value and what is allowed, before anything is
// written: what the record refuses, a scenario outside the list, a tensor that the scenario needs
// and that is not given (or the reverse), a cache index out of range, prefix sums that fall.
// REQUIRES: `weights` is of matrices with these shapes.
Result<> mla_prolog_v3(const MlaPrologV3Request& request,
                       const MlaPrologV3Weights& weights,
                       std::span<std::byte> workspace,
                       Parallel& parallel);

}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mla_prolog_v3, which writes the cache, and mla_attention_v3, which reads it, both ask of its
// tensors, beyond their records. Internal to ops/.

#include <span>
#include <utility>

#include "ops/operators/mla_v3/cache_format.h"
#include "ops/record/operator_check.h"
#include "ops/record/operator_spec.h"
#include "proto/status.h"

namespace afd::ops {

struct CacheTensors {
    CacheMode mode;
    KvQuant kv_quant;
    TileRow tile_row;
    ConstTensorView kv_cache;
    ConstTensorView kr_cache;  // Not given per tile.
    ConstTensorView quant_scale_ckv;
};

// What a scale for each tile asks of cache_mode and tile_size; for other modes of quantisation
// nothing. Before the tensors are judged, whose Dtile follows from it.
void require_tiles_fit(OperatorCheck& check,
                       int64_t kv_cache_quant_mode,
                       std::string_view cache_mode,
                       const TileRow& row);

// Row sizes, equal leading axes and the form of the scales.
// REQUIRES: the tensors passed the record. Errors: kInvalidArgument.
Result<> check_cache_tensors(const OperatorSpec& spec, const CacheTensors& cache);

// Errors: kInvalidArgument, for a size of 0.
Result<> check_sizes_given(const OperatorSpec& spec,
                           std::span<const std::pair<const char*, size_t>> sizes);

}  // namespace afd::ops

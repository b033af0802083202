// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mla_prolog_v3, which writes the cache, and mla_attention_v3, which reads it, both ask of its
// tensors, beyond their records. Internal to ops/.

#include <span>
#include <utility>

#include "ops/operators/mla_v3/cache_format.h"
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

// That a cache with a scale for each tile is not in an NZ mode. Part of check_cache_tensors, for
// who wants to say it first. Errors: kInvalidArgument.
Result<> check_cache_mode(const OperatorSpec& spec, const CacheTensors& cache);

// Row sizes, equal leading axes, the form of the scales and what a tile allows.
// REQUIRES: the tensors passed the record. Errors: kInvalidArgument.
Result<> check_cache_tensors(const OperatorSpec& spec, const CacheTensors& cache);

// Errors: kInvalidArgument, for a size of 0.
Result<> check_sizes_given(const OperatorSpec& spec,
                           std::span<const std::pair<const char*, size_t>> sizes);

}  // namespace afd::ops

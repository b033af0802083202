// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3Plan: a validated request's sizes, scenario and cache rows. Internal to ops/: made
// once a call, by the fast path, the reference and the packing of weights.

#include <cstddef>
#include <cstdint>

#include "ops/attention/mla_prolog.h"
#include "ops/operators/mla_v3/cache_format.h"
#include "ops/operators/mla_v3/mla_prolog_v3_request.h"
#include "ops/record/operator_check.h"
#include "proto/status.h"

namespace afd::ops {

struct MlaPrologV3Plan {
    MlaShape shape;
    size_t num_tokens = 0;  // T, or B·S.
    int64_t weight_quant = 0;
    KvQuant kv_quant = KvQuant::kNone;
    bool quantised_query = false;
    CacheMode cache_mode = CacheMode::kPaBsnd;
    CacheRows kv_rows;
    CacheRows kr_rows;  // Empty per tile: the key lies in the row of kv_cache.
    TileRow tile_row;
    float k_nope_clip_alpha = 1.0f;

    bool has_low_rank() const { return shape.q_lora_rank != 0; }
    size_t query_depth() const { return has_low_rank() ? shape.q_lora_rank : shape.hidden; }
    size_t head_cols() const { return shape.qk_nope_head_dim + shape.qk_rope_head_dim; }
};

// The checks that need no elements; afterwards `check`, made with the request, knows the sizes.
Result<> check_mla_prolog_v3(const MlaPrologV3Request& request, OperatorCheck& check);

// Every check of the operator. Errors: as mla_prolog_v3.
Result<MlaPrologV3Plan> plan_mla_prolog_v3(const MlaPrologV3Request& request);

// Gives the cache row of each token, ascending; -1: not written. REQUIRES: the plan was made of
// the request.
class CacheRowOfToken {
  public:
    CacheRowOfToken(const MlaPrologV3Request& request, const MlaPrologV3Plan& plan);

    // The row of token `token_`, which then is the next one.
    int64_t next();

  private:
    CacheMode mode_;
    const int64_t* index_;
    const int32_t* ends_;  // Prefix sums of merged axes, or null.
    size_t sequence_length_;
    size_t block_size_;
    size_t token_ = 0;
    size_t sequence_ = 0;
    size_t begin_ = 0;        // The first token of the sequence.
    size_t first_block_ = 0;  // Its first entry in the index.
};

}  // namespace afd::ops

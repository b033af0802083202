// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaAttentionV3Plan: a validated request's sizes and where each position's cache row is. Internal
// to ops/: made once a call, by the fast path, the reference and the packing of weights.

#include <cstddef>
#include <cstdint>

#include "ops/attention/mla_prolog.h"
#include "ops/operators/mla_v3/cache_format.h"
#include "ops/operators/mla_v3/mla_attention_v3_request.h"
#include "ops/record/operator_check.h"
#include "proto/status.h"

namespace afd::ops {

struct MlaAttentionV3Plan {
    MlaShape shape;  // hidden is the columns of weight_o; q_lora_rank and D are not used.
    size_t num_tokens = 0;
    KvQuant kv_quant = KvQuant::kNone;
    bool quantised_query = false;
    CacheMode cache_mode = CacheMode::kPaBsnd;
    CacheRows kv_rows;
    CacheRows kr_rows;  // Empty per tile.
    TileRow tile_row;
    bool has_weight_o = false;
};

// The checks that need no elements; afterwards `check`, made with the request, knows the sizes.
Result<> check_mla_attention_v3(const MlaAttentionV3Request& request, OperatorCheck& check);

// Every check of the operator. Errors: as mla_attention_v3.
Result<MlaAttentionV3Plan> plan_mla_attention_v3(const MlaAttentionV3Request& request);

// The cache rows of one token's sequence.
class CacheRowOfPosition {
  public:
    CacheRowOfPosition(const MlaAttentionV3Request& request, CacheMode mode, size_t token);

    // REQUIRES: the plan was made of the request, and position <= positions[token].
    size_t row(size_t position) const {
        if (table_ == nullptr) return first_row_ + position;
        const auto block = static_cast<size_t>(table_[position / block_size_]);
        return block * block_size_ + position % block_size_;
    }

  private:
    const int32_t* table_ = nullptr;  // Paged modes: the sequence's blocks.
    size_t block_size_ = 1;
    size_t first_row_ = 0;
};

}  // namespace afd::ops

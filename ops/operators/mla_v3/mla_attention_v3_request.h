// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaAttentionV3Request: what mla_attention_v3 (mla_attention_v3.h) is called with, and the record
// that says what of it is allowed.

#include <cstdint>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

struct MlaAttentionV3Request;
extern const RecordOf<MlaAttentionV3Request> kMlaAttentionV3Spec;

struct MlaAttentionV3Request {
    float softmax_scale = 1.0f;
    std::string_view cache_mode = "PA_BSND";
    int64_t kv_cache_quant_mode = 0;
    int64_t query_quant_mode = 0;
    int64_t tile_size = 128;

    ConstTensorView query;
    ConstTensorView query_rope;
    ConstTensorView dequant_scale_q_nope;
    ConstTensorView kv_cache;
    ConstTensorView kr_cache;
    ConstTensorView positions;
    ConstTensorView sequence_index;
    ConstTensorView block_table;
    ConstTensorView actual_seq_len;
    ConstTensorView quant_scale_ckv;
    ConstTensorView quant_scale_ckr;
    // mla_attention_v3 reads only their shapes, the elements are in the packed form.
    ConstTensorView weight_uv;
    ConstTensorView weight_o;  // Not given: attention_out is o.

    TensorView attention_out;
};

}  // namespace afd::ops

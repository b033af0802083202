// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_decode.h"

#include <string>
#include <vector>

#include "bench/attention/decode_sequences.h"
#include "bench/attention/random_tensors.h"
#include "ops/attention/latent_rows.h"
#include "ops/attention/mla_attention.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::MlaShape;

size_t row_bytes(const MlaShape& s, ops::KvDtype dtype) {
    return ops::latent_row_bytes(dtype, s.kv_lora_rank, s.qk_rope_head_dim);
}

void fill(Bf16* values, size_t count) {
    const std::vector<Bf16> drawn = random_values(65521, 1);
    for (size_t i = 0; i < count; ++i) values[i] = drawn[i % drawn.size()];
}

// A quantised cache, in which all rows are the same.
void fill_rows(const ops::LatentCache& cache, const MlaShape& s) {
    const std::vector<Bf16> row = random_values(s.kv_lora_rank + s.qk_rope_head_dim, 1);
    std::vector<float> latent(s.kv_lora_rank);
    for (size_t i = 0; i < latent.size(); ++i) latent[i] = ops::to_float(row[i]);
    const ops::LatentRows rows(cache, s.kv_lora_rank, s.qk_rope_head_dim);
    for (size_t slot = 0; slot < cache.num_slots; ++slot) {
        if (cache.dtype == ops::KvDtype::kInt8) {
            rows.write_int8(slot, latent.data(), row.data() + s.kv_lora_rank);
        } else {
            rows.write_fp8(slot, row.data(), row.data() + s.kv_lora_rank);
        }
    }
}

class Decode {
  public:
    Decode(const MlaShape& shape,
           ops::NumericClass numeric_class,
           size_t context,
           unsigned num_tokens,
           ops::KvDtype kv_dtype)
        : shape_(shape),
          kv_dtype_(kv_dtype),
          sequences_(row_bytes(shape, kv_dtype), context, context, num_tokens),
          weights_(random_weights(shape, numeric_class)),
          cache_(make_cache(shape, sequences_.num_slots(), kv_dtype)),
          query_(random_values(num_tokens * shape.num_heads * shape.kv_lora_rank, 0.1f)),
          query_rope_(random_values(num_tokens * shape.num_heads * shape.qk_rope_head_dim, 0.1f)),
          out_(num_tokens * shape.num_heads * shape.v_head_dim),
          workspace_(ops::mla_attention_workspace_bytes(shape, num_tokens, num_tokens)) {
        const ops::LatentCache latent = latent_cache(cache_, shape_, kv_dtype);
        if (kv_dtype == ops::KvDtype::kBf16) {
            fill(latent.ckv, sequences_.num_slots() * shape.kv_lora_rank);
            fill(latent.kr, sequences_.num_slots() * shape.qk_rope_head_dim);
        } else {
            fill_rows(latent, shape);
        }
    }

    // Of one step.
    Work work() const {
        const auto num_tokens = static_cast<double>(sequences_.num_tokens());
        const double num_scores = sequences_.num_scores();
        const double products = expansion_products(shape_);
        return {.operations = score_operations(shape_, num_scores) + 2 * num_tokens * products,
                .bytes = num_scores * static_cast<double>(row_bytes(shape_, kv_dtype_)) +
                         static_cast<double>(sizeof(Bf16)) * products};
    }

    void step(ops::Parallel& parallel) {
        const auto result = ops::mla_attention({.weights = &weights_,
                                                .query = rows_of(query_),
                                                .query_rope = rows_of(query_rope_),
                                                .batch = sequences_.next(),
                                                .cache = latent_cache(cache_, shape_, kv_dtype_),
                                                .out = rows_of(out_)},
                                               workspace_.bytes(),
                                               parallel);
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }

  private:
    ops::Rows<Bf16> rows_of(std::vector<Bf16>& values) const {
        return ops::make_rows(
            values.data(), sequences_.num_tokens(), values.size() / sequences_.num_tokens());
    }

    const MlaShape shape_;
    const ops::KvDtype kv_dtype_;
    DecodeSequences sequences_;
    const ops::MlaWeights weights_;
    const model::KvCache cache_;
    std::vector<Bf16> query_;
    std::vector<Bf16> query_rope_;
    std::vector<Bf16> out_;
    const ops::Workspace workspace_;
};

}  // namespace

void run_decode(AttentionReport& report,
                const AttentionModel& model,
                size_t context,
                unsigned num_threads,
                ops::KvDtype kv_dtype) {
    const std::string name = decode_row(model.name, context, num_threads, kv_dtype);
    if (!report.wants(name)) return;
    report_decode(report,
                  name,
                  num_threads,
                  Decode(model.shape, report.numeric_class(), context, num_threads, kv_dtype));
}

}  // namespace afd::bench

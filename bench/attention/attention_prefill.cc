// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_prefill.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/attention/prefill_tokens.h"
#include "bench/attention/random_tensors.h"
#include "ops/attention/mla_attention.h"
#include "ops/attention/rms_norm.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::MlaShape;

constexpr size_t kTokens = PrefillTokens::kCount;

class Prefill {
  public:
    Prefill(const MlaShape& shape, ops::NumericClass numeric_class, unsigned num_threads)
        : shape_(shape),
          weights_(random_weights(shape, numeric_class)),
          o_proj_(random_linear(shape.hidden, shape.num_heads * shape.v_head_dim, numeric_class)),
          rope_(ops::RopeTable::make(
                    {.dim = shape.qk_rope_head_dim, .num_positions = kTokens, .yarn = {}})
                    .value()),
          gamma_(shape.hidden, ops::from_float(1.0f)),
          cache_(make_cache(shape, kTokens)),
          residual_(random_values(kTokens * shape.hidden, 1)),
          x_(kTokens * shape.hidden),
          query_(kTokens * shape.num_heads * shape.kv_lora_rank),
          query_rope_(kTokens * shape.num_heads * shape.qk_rope_head_dim),
          heads_(kTokens * shape.num_heads * shape.v_head_dim),
          workspace_(std::max(ops::mla_prolog_workspace_bytes(shape, kTokens),
                              ops::mla_attention_workspace_bytes(shape, kTokens, num_threads))) {}

    double operations() const {
        const MlaShape& s = shape_;
        const ops::MlaWeights& w = weights_;
        const double products_per_token =
            static_cast<double>(w.weight_dq.num_outputs() * s.hidden +
                                w.weight_uq_qr.num_outputs() * w.weight_uq_qr.depth() +
                                w.weight_dkv_kr.num_outputs() * s.hidden +
                                s.num_heads * (s.qk_nope_head_dim + s.v_head_dim) * s.kv_lora_rank +
                                s.hidden * s.num_heads * s.v_head_dim);
        return 2 * kTokens * products_per_token + score_operations(s, PrefillTokens::num_scores());
    }

    void run(ops::Parallel& parallel) {
        ops::rms_norm(tokens_.rows_of(residual_), gamma_.data(), 1e-6f, tokens_.rows_of(x_));
        const auto prolog = ops::mla_prolog({.weights = &weights_,
                                             .rope = &rope_,
                                             .token_x = tokens_.rows_of(x_),
                                             .batch = tokens_.batch(),
                                             .cache = latent_cache(cache_, shape_),
                                             .query = tokens_.rows_of(query_),
                                             .query_rope = tokens_.rows_of(query_rope_),
                                             .query_norm = {}},
                                            workspace_.bytes(),
                                            parallel);
        AFD_ASSERT(prolog.ok(), "%s", prolog.error().message.c_str());
        const auto attention = ops::mla_attention({.weights = &weights_,
                                                   .query = tokens_.rows_of(query_),
                                                   .query_rope = tokens_.rows_of(query_rope_),
                                                   .batch = tokens_.batch(),
                                                   .cache = latent_cache(cache_, shape_),
                                                   .out = tokens_.rows_of(heads_)},
                                                  workspace_.bytes(),
                                                  parallel);
        AFD_ASSERT(attention.ok(), "%s", attention.error().message.c_str());
        ops::linear(tokens_.rows_of(heads_), o_proj_, tokens_.rows_of(x_), parallel);
        // Not into residual_: the next call wants the same input.
        ops::residual_add(tokens_.rows_of(residual_), tokens_.rows_of(x_));
    }

  private:
    const PrefillTokens tokens_;
    const MlaShape shape_;
    const ops::MlaWeights weights_;
    const ops::PackedLinear o_proj_;
    const ops::RopeTable rope_;
    const std::vector<Bf16> gamma_;
    const model::KvCache cache_;
    std::vector<Bf16> residual_;
    std::vector<Bf16> x_;
    std::vector<Bf16> query_;
    std::vector<Bf16> query_rope_;
    std::vector<Bf16> heads_;
    const ops::Workspace workspace_;
};

}  // namespace

void run_prefill(AttentionReport& report, const AttentionModel& model, unsigned num_threads) {
    const std::string name = prefill_row(model.name, num_threads);
    if (!report.wants(name)) return;
    Prefill prefill(model.shape, report.numeric_class(), num_threads);
    report_prefill(report, name, num_threads, prefill);
}

}  // namespace afd::bench

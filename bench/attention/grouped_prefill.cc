// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/grouped_prefill.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/attention/prefill_tokens.h"
#include "bench/attention/random_tensors.h"
#include "model/attention/kv_cache.h"
#include "model/gqa/gqa_block.h"
#include "ops/attention/gqa_attention.h"
#include "ops/attention/gqa_prolog.h"
#include "ops/attention/rms_norm.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::GqaShape;

ops::GqaWeights random_grouped_weights(const GqaShape& shape, ops::NumericClass numeric_class) {
    ops::GqaWeights weights;
    weights.shape = shape;
    weights.q_proj = random_linear(shape.query_columns(), shape.hidden, numeric_class);
    weights.k_proj = random_linear(shape.kv_columns(), shape.hidden, numeric_class);
    weights.v_proj = random_linear(shape.kv_columns(), shape.hidden, numeric_class);
    return weights;
}

class GroupedPrefill {
  public:
    static constexpr size_t kTokens = PrefillTokens::kCount;

    GroupedPrefill(const GroupedModel& model, ops::NumericClass numeric_class, unsigned num_threads)
        : model_(model),
          numeric_class_(numeric_class),
          weights_(random_grouped_weights(model.shape, numeric_class)),
          o_proj_(random_linear(model.shape.hidden, model.shape.query_columns(), numeric_class)),
          rope_(ops::RopeTable::make(
                    {.dim = model.shape.head_dim, .num_positions = kTokens, .yarn = {}})
                    .value()),
          gamma_(model.shape.hidden, ops::from_float(1.0f)),
          cache_(
              model::KvCache::create(
                  {.num_layers = 1, .layer_bytes_per_token = grouped_position_bytes(model.shape)},
                  kTokens)
                  .value()),
          residual_(random_values(kTokens * model.shape.hidden, 1)),
          x_(kTokens * model.shape.hidden),
          query_(kTokens * model.shape.query_columns()),
          heads_(kTokens * model.shape.query_columns()),
          sinks_(model.has_sinks ? model.shape.num_heads : 0, 0.5f),
          workspace_(std::max(ops::gqa_prolog_workspace_bytes(model.shape, kTokens),
                              ops::gqa_attention_workspace_bytes(model.shape, num_threads))) {}

    double operations() const {
        const GqaShape& s = weights_.shape;
        const double products_per_token =
            static_cast<double>(s.hidden * (2 * s.query_columns() + 2 * s.kv_columns()));
        return 2 * kTokens * products_per_token +
               grouped_operations(s, PrefillTokens::num_scores(model_.seen(kTokens)));
    }

    void run(ops::Parallel& parallel) {
        const GqaShape& s = weights_.shape;
        const ops::GqaCache cache = model::gqa_cache(cache_.layer(0), s, numeric_class_);
        ops::rms_norm(tokens_.rows_of(residual_), gamma_.data(), 1e-6f, tokens_.rows_of(x_));
        const auto prolog = ops::gqa_prolog({.weights = &weights_,
                                             .rope = &rope_,
                                             .x = tokens_.rows_of(x_),
                                             .batch = tokens_.batch(),
                                             .cache = cache,
                                             .query = tokens_.rows_of(query_)},
                                            workspace_.bytes(),
                                            parallel);
        AFD_ASSERT(prolog.ok(), "%s", prolog.error().message.c_str());
        const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
        const auto attention = ops::gqa_attention({.shape = s,
                                                   .numeric_class = numeric_class_,
                                                   .softmax_scale = scale,
                                                   .window = model_.window,
                                                   .sinks = sinks_,
                                                   .query = tokens_.rows_of(query_),
                                                   .batch = tokens_.batch(),
                                                   .cache = cache,
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
    const GroupedModel& model_;
    const ops::NumericClass numeric_class_;
    const ops::GqaWeights weights_;
    const ops::PackedLinear o_proj_;
    const ops::RopeTable rope_;
    const std::vector<Bf16> gamma_;
    const model::KvCache cache_;
    std::vector<Bf16> residual_;
    std::vector<Bf16> x_;
    std::vector<Bf16> query_;
    std::vector<Bf16> heads_;
    const std::vector<float> sinks_;
    const ops::Workspace workspace_;
};

}  // namespace

void run_grouped_prefill(AttentionReport& report, const GroupedModel& model, unsigned num_threads) {
    const std::string name = prefill_row(model.name, num_threads);
    if (!report.wants(name)) return;
    GroupedPrefill prefill(model, report.numeric_class(), num_threads);
    report_prefill(report, name, num_threads, prefill);
}

}  // namespace afd::bench

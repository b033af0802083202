// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_prefill.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention/random_tensors.h"
#include "ops/attention/mla_attention.h"
#include "ops/attention/rms_norm.h"
#include "ops/linear/linear.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::MlaShape;

constexpr size_t kTokens = 512;

// 0, 1, ...
template <typename T>
std::vector<T> ascending(size_t count) {
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
    return values;
}

ops::Rows<Bf16> rows_of(std::vector<Bf16>& values) {
    return ops::make_rows(values.data(), kTokens, values.size() / kTokens);
}

class Prefill {
  public:
    Prefill(const MlaShape& shape, unsigned num_threads)
        : shape_(shape),
          weights_(random_weights(shape)),
          o_proj_(random_linear(shape.hidden, shape.num_heads * shape.v_head_dim)),
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
        return 2 * kTokens * products_per_token +
               score_operations(s, 0.5 * kTokens * (kTokens + 1));
    }

    void run(ops::Parallel& parallel) {
        ops::rms_norm(rows_of(residual_), gamma_.data(), 1e-6f, rows_of(x_));
        const auto prolog = ops::mla_prolog({.weights = &weights_,
                                             .rope = &rope_,
                                             .token_x = rows_of(x_),
                                             .batch = batch(),
                                             .cache = latent_cache(cache_, shape_),
                                             .query = rows_of(query_),
                                             .query_rope = rows_of(query_rope_),
                                             .query_norm = {}},
                                            workspace_.bytes(),
                                            parallel);
        AFD_ASSERT(prolog.ok(), "%s", prolog.error().message.c_str());
        const auto attention = ops::mla_attention({.weights = &weights_,
                                                   .query = rows_of(query_),
                                                   .query_rope = rows_of(query_rope_),
                                                   .batch = batch(),
                                                   .cache = latent_cache(cache_, shape_),
                                                   .out = rows_of(heads_)},
                                                  workspace_.bytes(),
                                                  parallel);
        AFD_ASSERT(attention.ok(), "%s", attention.error().message.c_str());
        ops::linear(rows_of(heads_), o_proj_, rows_of(x_), parallel);
        // Not into residual_: the next call wants the same input.
        ops::residual_add(rows_of(residual_), rows_of(x_));
    }

  private:
    ops::AttentionBatch batch() const {
        return {kTokens, positions_.data(), cache_index_.data(), tables_.data()};
    }

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
    const std::vector<int32_t> positions_ = ascending<int32_t>(kTokens);
    const std::vector<int64_t> cache_index_ = ascending<int64_t>(kTokens);
    const std::vector<int32_t> blocks_ = ascending<int32_t>(kTokens / ops::kAttentionBlock);
    const std::vector<const int32_t*> tables_{kTokens, blocks_.data()};
};

}  // namespace

void run_prefill(AttentionReport& report, const AttentionModel& model, unsigned num_threads) {
    const std::string name =
        std::string("prefill/") + model.name + "/threads:" + std::to_string(num_threads);
    if (!report.wants(name)) return;
    Prefill prefill(model.shape, num_threads);
    threads::ThreadPool pool = report.make_pool(num_threads);
    const double operations = prefill.operations();
    report.row(
        name,
        pool,
        {.operations = operations, .bytes = 0},
        [&] { prefill.run(pool); },
        [&](double seconds, const RowLimits& limits) {
            return operations / seconds / limits.peak;
        });
}

}  // namespace afd::bench

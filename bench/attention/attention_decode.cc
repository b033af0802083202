// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_decode.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention/random_tensors.h"
#include "ops/attention/mla_attention.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::MlaShape;

size_t cache_bytes() {
    const long l3_bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return 5 * static_cast<size_t>(std::max(l3_bytes, long{32} << 20));
}

size_t row_bytes(const MlaShape& s) {
    return (s.kv_lora_rank + s.qk_rope_head_dim) * sizeof(Bf16);
}

void fill(Bf16* values, size_t count) {
    const std::vector<Bf16> drawn = random_values(65521, 1);
    for (size_t i = 0; i < count; ++i) values[i] = drawn[i % drawn.size()];
}

// Sequences with full caches, of which every step takes the next ones.
class Decode {
  public:
    Decode(const MlaShape& shape, size_t context, unsigned num_tokens)
        : shape_(shape),
          context_(context),
          num_tokens_(num_tokens),
          num_sequences_(cache_bytes() / (context * row_bytes(shape)) + num_tokens),
          weights_(random_weights(shape)),
          cache_(make_cache(shape, num_sequences_ * context)),
          query_(random_values(num_tokens * shape.num_heads * shape.kv_lora_rank, 0.1f)),
          query_rope_(random_values(num_tokens * shape.num_heads * shape.qk_rope_head_dim, 0.1f)),
          out_(num_tokens * shape.num_heads * shape.v_head_dim),
          workspace_(ops::mla_attention_workspace_bytes(shape, num_tokens, num_tokens)),
          positions_(num_tokens, static_cast<int32_t>(context - 1)),
          blocks_(num_sequences_ * context / ops::kAttentionBlock),
          tables_(num_tokens) {
        const ops::LatentCache latent = latent_cache(cache_, shape_);
        fill(latent.ckv, num_sequences_ * context * shape.kv_lora_rank);
        fill(latent.kr, num_sequences_ * context * shape.qk_rope_head_dim);
        for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<int32_t>(i);
    }

    // Of one step.
    Work work() const {
        const auto num_tokens = static_cast<double>(num_tokens_);
        const auto num_scores = static_cast<double>(num_tokens_ * context_);
        const double products = expansion_products(shape_);
        return {.operations = score_operations(shape_, num_scores) + 2 * num_tokens * products,
                .bytes = num_scores * static_cast<double>(row_bytes(shape_)) +
                         static_cast<double>(sizeof(Bf16)) * products};
    }

    void step(ops::Parallel& parallel) {
        for (const int32_t*& table : tables_) {
            table = &blocks_[sequence_ * (context_ / ops::kAttentionBlock)];
            sequence_ = (sequence_ + 1) % num_sequences_;
        }
        const auto result =
            ops::mla_attention({.weights = &weights_,
                                .query = rows_of(query_),
                                .query_rope = rows_of(query_rope_),
                                .batch = {num_tokens_, positions_.data(), nullptr, tables_.data()},
                                .cache = latent_cache(cache_, shape_),
                                .out = rows_of(out_)},
                               workspace_.bytes(),
                               parallel);
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }

  private:
    ops::Rows<Bf16> rows_of(std::vector<Bf16>& values) const {
        return ops::make_rows(values.data(), num_tokens_, values.size() / num_tokens_);
    }

    const MlaShape shape_;
    const size_t context_;
    const size_t num_tokens_;
    const size_t num_sequences_;
    const ops::MlaWeights weights_;
    const model::KvCache cache_;
    std::vector<Bf16> query_;
    std::vector<Bf16> query_rope_;
    std::vector<Bf16> out_;
    const ops::Workspace workspace_;
    const std::vector<int32_t> positions_;
    std::vector<int32_t> blocks_;  // Of all sequences, one behind the other.
    std::vector<const int32_t*> tables_;
    size_t sequence_ = 0;
};

}  // namespace

void run_decode(AttentionReport& report,
                const AttentionModel& model,
                size_t context,
                unsigned num_threads) {
    const std::string name = std::string("decode/") + model.name +
                             "/context:" + std::to_string(context) +
                             "/threads:" + std::to_string(num_threads);
    if (!report.wants(name)) return;
    Decode decode(model.shape, context, num_threads);
    threads::ThreadPool pool = report.make_pool(num_threads);
    const Work work = decode.work();
    report.row(
        name,
        pool,
        work,
        [&] { decode.step(pool); },
        [&](double seconds, const RowLimits& limits) {
            return seconds / limits.least_seconds(work);
        });
}

}  // namespace afd::bench

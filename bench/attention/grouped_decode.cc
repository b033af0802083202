// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/grouped_decode.h"

#include <cmath>
#include <string>
#include <vector>

#include "bench/attention/decode_sequences.h"
#include "bench/attention/random_tensors.h"
#include "model/attention/kv_cache.h"
#include "model/gqa/gqa_block.h"
#include "ops/attention/gqa_attention.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::GqaShape;

class GroupedDecode {
  public:
    GroupedDecode(const GqaShape& shape, size_t context, unsigned num_tokens)
        : shape_(shape),
          sequences_(grouped_position_bytes(shape), context, num_tokens),
          cache_(model::KvCache::create(
                     {.num_layers = 1, .layer_bytes_per_token = grouped_position_bytes(shape)},
                     sequences_.num_slots())
                     .value()),
          query_(random_values(num_tokens * shape.query_columns(), 0.1f)),
          out_(num_tokens * shape.query_columns()),
          workspace_(ops::gqa_attention_workspace_bytes(shape, num_tokens)) {
        const ops::GqaCache heads =
            model::gqa_cache(cache_.layer(0), shape_, ops::best_numeric_class());
        const std::vector<Bf16> drawn = random_values(65521, 1);
        for (size_t i = 0; i < sequences_.num_slots() * shape.kv_columns(); ++i) {
            heads.keys[i] = heads.values[i] = drawn[i % drawn.size()];
        }
    }

    // Of one step.
    Work work() const {
        const double num_positions = sequences_.num_scores();
        return {.operations = grouped_operations(shape_, num_positions),
                .bytes = num_positions * static_cast<double>(grouped_position_bytes(shape_))};
    }

    void step(ops::Parallel& parallel) {
        const float scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
        const auto rows = [&](auto* values) {
            return ops::make_rows(values, sequences_.num_tokens(), shape_.query_columns());
        };
        const auto result = ops::gqa_attention(
            {.shape = shape_,
             .numeric_class = ops::best_numeric_class(),
             .softmax_scale = scale,
             .query = rows(static_cast<const Bf16*>(query_.data())),
             .batch = sequences_.next(),
             .cache = model::gqa_cache(cache_.layer(0), shape_, ops::best_numeric_class()),
             .out = rows(out_.data())},
            workspace_.bytes(),
            parallel);
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }

  private:
    const GqaShape shape_;
    DecodeSequences sequences_;
    const model::KvCache cache_;
    std::vector<Bf16> query_;
    std::vector<Bf16> out_;
    const ops::Workspace workspace_;
};

}  // namespace

void run_grouped_decode(AttentionReport& report,
                        const GroupedModel& model,
                        size_t context,
                        unsigned num_threads) {
    const std::string name = decode_row(model.name, context, num_threads);
    if (!report.wants(name)) return;
    report_decode(report, name, num_threads, GroupedDecode(model.shape, context, num_threads));
}

}  // namespace afd::bench

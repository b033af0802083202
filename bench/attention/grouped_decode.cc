// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/grouped_decode.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/attention/decode_sequences.h"
#include "bench/attention/random_tensors.h"
#include "model/attention/kv_cache.h"
#include "model/gqa/gqa_block.h"
#include "ops/attention/gqa_attention.h"
#include "ops/attention/kv_tiles.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::GqaShape;

class GroupedDecode {
  public:
    GroupedDecode(const GroupedModel& model,
                  ops::NumericClass numeric_class,
                  size_t context,
                  unsigned num_tokens,
                  ops::KvDtype kv_dtype)
        : model_(model),
          numeric_class_(numeric_class),
          kv_dtype_(kv_dtype),
          position_bytes_(grouped_position_bytes(model.shape, kv_dtype)),
          sequences_(position_bytes_, context, model.seen(context), num_tokens),
          cache_(model::KvCache::create({.num_layers = 1, .layer_bytes_per_token = position_bytes_},
                                        sequences_.num_slots())
                     .value()),
          query_(random_values(num_tokens * model.shape.query_columns(), 0.1f)),
          out_(num_tokens * model.shape.query_columns()),
          sinks_(model.has_sinks ? model.shape.num_heads : 0, 0.5f),
          workspace_(ops::gqa_attention_workspace_bytes(model.shape, num_tokens)) {
        const ops::GqaCache heads = cache();
        const size_t num_values = sequences_.num_slots() * model.shape.kv_columns();
        if (kv_dtype == ops::KvDtype::kBf16) {
            fill(heads.keys, num_values);
            fill(heads.values, num_values);
        } else {
            const size_t num_rows = sequences_.num_slots() * model.shape.num_kv_heads;
            fill_rows(heads.key_rows, num_rows, heads.key_order);
            fill_rows(heads.value_rows, num_rows, ops::KeyOrder::kRows);
        }
    }

    // Of one step.
    Work work() const {
        const double num_positions = sequences_.num_scores();
        return {.operations = grouped_operations(model_.shape, num_positions),
                .bytes = num_positions * static_cast<double>(position_bytes_)};
    }

    void step(ops::Parallel& parallel) {
        const GqaShape& shape = model_.shape;
        const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
        const auto rows = [&](auto* values) {
            return ops::make_rows(values, sequences_.num_tokens(), shape.query_columns());
        };
        const auto result =
            ops::gqa_attention({.shape = shape,
                                .numeric_class = numeric_class_,
                                .softmax_scale = scale,
                                .window = model_.window,
                                .sinks = sinks_,
                                .query = rows(static_cast<const Bf16*>(query_.data())),
                                .batch = sequences_.next(),
                                .cache = cache(),
                                .out = rows(out_.data())},
                               workspace_.bytes(),
                               parallel);
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }

  private:
    ops::GqaCache cache() const {
        return model::gqa_cache(cache_.layer(0), model_.shape, numeric_class_, kv_dtype_);
    }

    static void fill(Bf16* values, size_t count) {
        const std::vector<Bf16> drawn = random_values(65521, 1);
        for (size_t i = 0; i < count; ++i) values[i] = drawn[i % drawn.size()];
    }

    // Of a quantised cache, in which all rows are the same.
    void fill_rows(std::byte* rows, size_t num_rows, ops::KeyOrder order) const {
        const size_t head_dim = model_.shape.head_dim;
        const size_t bytes = ops::gqa_row_bytes(kv_dtype_, head_dim);
        const std::vector<Bf16> values = random_values(head_dim, 1);
        for (size_t i = 0; i < num_rows; ++i) {
            if (order == ops::KeyOrder::kPairs) {
                ops::encode_key_pairs(kv_dtype_, values.data(), head_dim, i, rows);
            } else {
                ops::encode_kv_row(kv_dtype_, values.data(), head_dim, rows + i * bytes);
            }
        }
    }

    const GroupedModel& model_;
    const ops::NumericClass numeric_class_;
    const ops::KvDtype kv_dtype_;
    const size_t position_bytes_;
    DecodeSequences sequences_;
    const model::KvCache cache_;
    std::vector<Bf16> query_;
    std::vector<Bf16> out_;
    const std::vector<float> sinks_;
    const ops::Workspace workspace_;
};

}  // namespace

void run_grouped_decode(AttentionReport& report,
                        const GroupedModel& model,
                        size_t context,
                        unsigned num_threads,
                        ops::KvDtype kv_dtype) {
    const std::string name = decode_row(model.name, context, num_threads, kv_dtype);
    if (!report.wants(name)) return;
    report_decode(report,
                  name,
                  num_threads,
                  GroupedDecode(model, report.numeric_class(), context, num_threads, kv_dtype));
}

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionModel: the shapes of bench_attention, with random weights, a cache and their operations.

#include <cstddef>

#include "model/attention/kv_cache.h"
#include "ops/attention/mla_prolog.h"
#include "ops/format/latent_cache.h"
#include "ops/format/numeric_class.h"

namespace afd::bench {

struct AttentionModel {
    const char* name;
    ops::MlaShape shape;
};

// bench_decode.py's checkpoint, and the attention of a 16 B and a 671 B model of the DeepSeek
// family.
inline constexpr AttentionModel kAttentionModels[] = {
    {"medium", {1024, 384, 256, 16, 64, 32, 64}},
    {"lite", {2048, 0, 512, 16, 128, 64, 128}},
    {"large", {7168, 1536, 512, 128, 128, 64, 128}},
};

ops::MlaWeights random_weights(const ops::MlaShape& shape, ops::NumericClass numeric_class);

// Of one layer, all zero. Memory that cannot be had ends the program.
model::KvCache make_cache(const ops::MlaShape& shape,
                          size_t num_slots,
                          ops::KvDtype dtype = ops::KvDtype::kBf16);

ops::LatentCache latent_cache(const model::KvCache& cache,
                              const ops::MlaShape& shape,
                              ops::KvDtype dtype = ops::KvDtype::kBf16);

// Of `num_scores` scores of every head, and of what they weigh; two for each product.
double score_operations(const ops::MlaShape& shape, double num_scores);

// Products of weight_uv for one token, which mla_attention() applies to each head.
double expansion_products(const ops::MlaShape& shape);

}  // namespace afd::bench

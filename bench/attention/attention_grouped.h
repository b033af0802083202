// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "bench/attention/attention_report.h"
#include "ops/format/gqa_cache.h"

namespace afd::bench {

// Attention with grouped heads as released models have it.
struct GroupedModel {
    const char* name;
    ops::GqaShape shape;
};

inline constexpr std::array kGroupedModels = {
    GroupedModel{"qwen3-30b-a3b",
                 {.hidden = 2048, .num_heads = 32, .num_kv_heads = 4, .head_dim = 128}},
    GroupedModel{"mixtral-8x7b",
                 {.hidden = 4096, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128}},
    GroupedModel{"olmoe-1b-7b",
                 {.hidden = 2048, .num_heads = 16, .num_kv_heads = 16, .head_dim = 128}}};

// decode/<model>/context:<S>/threads:<T>: gqa_attention() of one token of each of T sequences, as
// run_decode() (attention_decode.h). REQUIRES: context is a multiple of ops::kAttentionBlock.
void run_grouped_decode(AttentionReport& report,
                        const GroupedModel& model,
                        size_t context,
                        unsigned num_threads);

}  // namespace afd::bench

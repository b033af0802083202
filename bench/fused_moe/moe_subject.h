// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeSubject: a fused-MoE layer of random weights and one call of it, for bench_fused_moe.

#include <cstdint>
#include <vector>

#include "model/decoder/router.h"
#include "ops/fused_moe/plan/registry.h"
#include "schedule/layout/row_dtype.h"

namespace afd::bench {

struct MoeSizes {
    uint32_t num_tokens = 128;
    uint32_t hidden = 1024;
    uint32_t intermediate = 512;
    uint32_t num_experts = 64;
    uint32_t top_k = 8;
    uint32_t chunk_tokens = 0;
    schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;
    bool row_checksums = false;
};

// Experts share a few random matrices: every packed copy has memory of its own, as in a model.
class MoeSubject {
  public:
    MoeSubject(const MoeSizes& sizes, ops::ExpertQuantisation quantisation);

    const MoeSizes& sizes() const { return sizes_; }
    ops::FusedMoeConfig config() const;
    ops::MoeInput input() const;
    // The layer's gate, for callers that route input() without its topk_ids.
    model::Router router() const;

    // The experts `first`, `first + step`, ..., as local ids 0, 1, ... of one layer.
    struct Shard {
        ops::ExpertTable table;
        std::vector<ops::reference::ExpertWeights> weights;

        ops::ExpertsSetup setup() const {
            return {&table, weights, table.num_keys(), table.hidden()};
        }
    };
    Shard shard(uint32_t first, uint32_t step) const;

  private:
    // One expert's matrices, as checkpoints store them.
    struct Weights {
        std::vector<ops::Bf16> bf16[3];
        std::vector<int8_t> int8[3];
        std::vector<uint8_t> int4[3];
        std::vector<ops::E4m3> fp8[3];
        std::vector<float> scale[3];  // Of int8 and fp8.
        std::vector<uint16_t> int4_scale[3];
    };

    ops::PackedExpert pack(const Weights& weights) const;
    ops::reference::ExpertWeights reference_of(const Weights& weights) const;
    ops::Fp8Weight fp8_weight(const Weights& weights, size_t matrix) const;
    size_t num_outputs(size_t matrix) const;
    size_t depth(size_t matrix) const;

    MoeSizes sizes_;
    ops::ExpertQuantisation quantisation_;
    std::vector<Weights> weights_;
    std::vector<ops::Bf16> x_;
    std::vector<int32_t> ids_;
    std::vector<float> topk_weights_;
};

}  // namespace afd::bench

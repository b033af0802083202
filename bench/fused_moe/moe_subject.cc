// SPDX-License-Identifier: Apache-2.0

#include "bench/fused_moe/moe_subject.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::ExpertQuantisation;

constexpr size_t kDistinctExperts = 2;
constexpr size_t kInt4Group = 32;

std::vector<Bf16> random_rows(size_t count, float deviation, std::mt19937& engine) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<Bf16> values(count);
    for (Bf16& value : values) value = ops::from_float(normal(engine));
    return values;
}

}  // namespace

MoeSubject::MoeSubject(const MoeSizes& sizes, ExpertQuantisation quantisation)
    : sizes_(sizes), quantisation_(quantisation), weights_(kDistinctExperts) {
    std::mt19937 engine(1);
    for (Weights& weights : weights_) {
        for (size_t m = 0; m < 3; ++m) {
            const size_t count = num_outputs(m) * depth(m);
            const size_t num_groups = (depth(m) + kInt4Group - 1) / kInt4Group;
            weights.bf16[m] = random_rows(count, 0.02f, engine);
            if (quantisation == ExpertQuantisation::kInt8) {
                weights.int8[m].resize(count);
                for (int8_t& q : weights.int8[m]) q = static_cast<int8_t>(engine() % 255 - 127);
                weights.scale[m].assign(num_outputs(m), 0.0003f);
            } else if (quantisation == ExpertQuantisation::kInt4) {
                weights.int4[m].resize(num_outputs(m) * ((depth(m) + 1) / 2));
                // Nibbles 0 ... 7: never the -8 that packing does not take.
                for (uint8_t& q : weights.int4[m]) q = static_cast<uint8_t>(engine() & 0x77);
                weights.int4_scale[m].assign(num_outputs(m) * num_groups,
                                             ops::from_float(0.005f).bits);
            } else if (quantisation == ExpertQuantisation::kFp8) {
                weights.fp8[m].resize(count);
                // Magnitudes of 1 to 3.8 of both signs: never the pattern that is no number.
                for (ops::E4m3& q : weights.fp8[m]) {
                    q = {static_cast<uint8_t>((engine() & 0x87) | 0x38)};
                }
                weights.scale[m].assign(ops::fp8_blocks(num_outputs(m)) * ops::fp8_blocks(depth(m)),
                                        0.01f);
            }
        }
    }
    x_ = random_rows(size_t{sizes.num_tokens} * sizes.hidden, 1.0f, engine);
    std::vector<int32_t> experts(sizes.num_experts);
    std::iota(experts.begin(), experts.end(), 0);
    for (uint32_t token = 0; token < sizes.num_tokens; ++token) {
        std::shuffle(experts.begin(), experts.end(), engine);
        for (uint32_t k = 0; k < sizes.top_k; ++k) {
            ids_.push_back(experts[k % experts.size()]);
            topk_weights_.push_back(1.0f / static_cast<float>(sizes.top_k));
        }
    }
}

size_t MoeSubject::num_outputs(size_t matrix) const {
    return matrix == 2 ? sizes_.hidden : sizes_.intermediate;
}

size_t MoeSubject::depth(size_t matrix) const {
    return matrix == 2 ? sizes_.intermediate : sizes_.hidden;
}

ops::FusedMoeConfig MoeSubject::config() const {
    return {.hidden = sizes_.hidden,
            .num_experts = sizes_.num_experts,
            .top_k = sizes_.top_k,
            .max_num_tokens = sizes_.num_tokens,
            .max_chunk_tokens = sizes_.chunk_tokens,
            .quantisation = quantisation_,
            .dispatch_dtype = sizes_.dispatch_dtype};
}

ops::MoeInput MoeSubject::input() const {
    return {.x = ops::make_rows(x_.data(), sizes_.num_tokens, size_t{sizes_.hidden}),
            .layer_id = 0,
            .num_tokens = sizes_.num_tokens,
            .top_k = sizes_.top_k,
            .num_shared = 0,
            .topk_ids = ids_.data(),
            .topk_weights = topk_weights_.data()};
}

model::Router MoeSubject::router() const {
    std::mt19937 engine(2);
    const size_t num_experts = sizes_.num_experts;
    const std::vector<Bf16> weight = random_rows(num_experts * sizes_.hidden, 0.02f, engine);
    std::vector<model::Router::Gate> gates(1);
    gates[0].weight =
        ops::PackedLinear::pack(ops::make_rows(weight.data(), num_experts, size_t{sizes_.hidden}),
                                ops::best_numeric_class());
    return model::Router::make({.num_experts = num_experts,
                                .top_k = sizes_.top_k,
                                .norm = ops::GatingNorm::kSigmoid,
                                .norm_topk_prob = true},
                               std::move(gates))
        .value();
}

ops::reference::ExpertWeights MoeSubject::reference_of(const Weights& weights) const {
    const auto weight = [&](size_t m) -> ops::reference::LinearWeight {
        if (quantisation_ == ExpertQuantisation::kFp8) return fp8_weight(weights, m);
        if (quantisation_ != ExpertQuantisation::kInt8) {
            return ops::make_rows<const Bf16>(weights.bf16[m].data(), num_outputs(m), depth(m));
        }
        return ops::Int8Weight{ops::make_rows(weights.int8[m].data(), num_outputs(m), depth(m)),
                               weights.scale[m].data()};
    };
    return {weight(0), weight(1), weight(2)};
}

ops::Fp8Weight MoeSubject::fp8_weight(const Weights& weights, size_t matrix) const {
    const size_t outputs = num_outputs(matrix);
    const size_t inputs = depth(matrix);
    return {ops::make_rows(weights.fp8[matrix].data(), outputs, inputs),
            ops::make_rows(
                weights.scale[matrix].data(), ops::fp8_blocks(outputs), ops::fp8_blocks(inputs))};
}

ops::PackedExpert MoeSubject::pack(const Weights& weights) const {
    const ops::NumericClass best = ops::best_numeric_class();
    const ops::reference::ExpertWeights plain = reference_of(weights);
    if (quantisation_ == ExpertQuantisation::kInt8) {
        return ops::pack_expert(plain.gate.int8, plain.up.int8, plain.down.int8, best);
    }
    if (quantisation_ == ExpertQuantisation::kInt4) {
        const auto weight = [&](size_t m) {
            const size_t num_groups = (depth(m) + kInt4Group - 1) / kInt4Group;
            return ops::Int4Weight{
                ops::make_rows(weights.int4[m].data(), num_outputs(m), (depth(m) + 1) / 2),
                ops::make_rows(weights.int4_scale[m].data(), num_outputs(m), num_groups),
                depth(m),
                ops::WeightFormat::kInt4Group32};
        };
        return ops::pack_expert(weight(0), weight(1), weight(2), best);
    }
    if (quantisation_ == ExpertQuantisation::kFp8) {
        return ops::pack_expert(
            fp8_weight(weights, 0), fp8_weight(weights, 1), fp8_weight(weights, 2), best);
    }
    return ops::pack_expert(plain.gate.bf16, plain.up.bf16, plain.down.bf16, best);
}

MoeSubject::Shard MoeSubject::shard(uint32_t first, uint32_t step) const {
    const size_t num_local = (sizes_.num_experts - first + step - 1) / step;
    Shard shard{ops::ExpertTable(num_local, sizes_.hidden), {}};
    for (size_t local = 0; local < num_local; ++local) {
        const Weights& weights = weights_[(first + local * step) % kDistinctExperts];
        shard.table.set(local, pack(weights));
        shard.weights.push_back(reference_of(weights));
    }
    return shard;
}

}  // namespace afd::bench

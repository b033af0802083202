// SPDX-License-Identifier: Apache-2.0
#pragma once

// Model, cases and oracles of the fused-MoE test matrix (fused_moe_matrix_test.cc within one
// process, tests/daemon/lanes/window_matrix_test.cc over windows).

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ops/fused_moe/plan/feature_matrix.h"
#include "ops/linear/fp8_rows.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

inline constexpr size_t kMatrixHidden = 40;
inline constexpr size_t kMatrixExperts = 12;  // Routed; the shared one is logical expert 12.
inline constexpr size_t kMatrixPerLayer = kMatrixExperts + 1;
inline constexpr size_t kMatrixTokens = 257;
inline constexpr size_t kMatrixTopK = 8;
inline constexpr size_t kMatrixChunk = 16;
inline constexpr uint32_t kMatrixLayers = 2;
inline constexpr uint32_t kMatrixLayer = 1;  // The one that is run.

// What the experts of a model are.
struct MatrixKind {
    ExpertQuantisation quantisation = ExpertQuantisation::kNone;
    ExpertActivation activation = ExpertActivation::kSilu;
    bool has_bias = false;
    size_t hidden = kMatrixHidden;
    size_t intermediate = 20;
};

// One expert's weights as every part wants them.
struct MatrixExpert {
    MatrixKind kind;
    RandomMatrix bf16[3];  // gate, up, down; dequantised ones with int4; up also where it is unused
    std::vector<RandomInt8> int8;
    std::vector<RandomInt4> int4;
    std::vector<RandomFp8> fp8;
    RandomMatrix bias[3];  // One row each.

    MatrixExpert(const MatrixKind& of, uint32_t seed) : kind(of) {
        for (uint32_t i = 0; i < 3; ++i) {
            const size_t outputs = i == 2 ? kind.hidden : kind.intermediate;
            const size_t depth = i == 2 ? kind.intermediate : kind.hidden;
            bf16[i] = RandomMatrix(outputs, depth, seed + i, 0.3f);
            bias[i] = RandomMatrix(1, outputs, seed + 7919 + i, 0.7f);
            if (kind.quantisation == ExpertQuantisation::kInt8) {
                int8.emplace_back(outputs, depth, seed + i);
            }
            if (kind.quantisation == ExpertQuantisation::kFp8) {
                fp8.emplace_back(outputs, depth, seed + i);
            }
            if (kind.quantisation != ExpertQuantisation::kInt4) continue;
            int4.emplace_back(outputs, depth, WeightFormat::kInt4Group32, seed + i);
            bf16[i].values = int4.back().dequantised();
        }
    }

    PackedExpert pack(NumericClass numeric_class = best_numeric_class()) const {
        PackedExpert packed = pack_weights(numeric_class);
        if (!kind.has_bias) return packed;
        const auto values = [](const RandomMatrix& row) { return std::span(row.values); };
        return with_bias(std::move(packed),
                         {values(bias[0]),
                          is_gated(kind.activation) ? values(bias[1]) : std::span<const Bf16>(),
                          values(bias[2])});
    }
    reference::ExpertWeights reference_weights() const {
        reference::ExpertWeights weights{bf16[0].rows(), bf16[1].rows(), bf16[2].rows()};
        if (kind.quantisation == ExpertQuantisation::kInt8) {
            weights = {int8[0].weight(), int8[1].weight(), int8[2].weight()};
        }
        if (kind.quantisation == ExpertQuantisation::kFp8) {
            weights = {fp8[0].weight(), fp8[1].weight(), fp8[2].weight()};
        }
        weights.activation = kind.activation;
        if (!is_gated(kind.activation)) weights.up = {};
        if (!kind.has_bias) return weights;
        weights.gate_bias = bias[0].values;
        weights.up_bias = bias[1].values;
        weights.down_bias = bias[2].values;
        return weights;
    }

  private:
    PackedExpert pack_weights(NumericClass numeric_class) const {
        const auto pack = [&](const auto& gate, const auto& up, const auto& down) {
            return is_gated(kind.activation) ? pack_expert(gate, up, down, numeric_class)
                                             : pack_expert(gate, down, numeric_class);
        };
        switch (kind.quantisation) {
            case ExpertQuantisation::kInt8:
                return pack(int8[0].weight(), int8[1].weight(), int8[2].weight());
            case ExpertQuantisation::kInt4:
                return pack(int4[0].weight(), int4[1].weight(), int4[2].weight());
            case ExpertQuantisation::kFp8:
                return pack(fp8[0].weight(), fp8[1].weight(), fp8[2].weight());
            case ExpertQuantisation::kNone:
                break;
        }
        return pack(bf16[0].rows(), bf16[1].rows(), bf16[2].rows());
    }
};

// The experts that one process holds, in the forms of ExpertsSetup.
struct MatrixShard {
    ExpertTable table;
    std::vector<reference::ExpertWeights> weights;
    size_t experts_per_layer;

    explicit MatrixShard(size_t per_layer, ExpertActivation activation = ExpertActivation::kSilu)
        : table(kMatrixLayers * per_layer, kMatrixHidden, activation),
          weights(kMatrixLayers * per_layer),
          experts_per_layer(per_layer) {}

    void set(uint32_t layer, size_t local_id, const MatrixExpert& expert) {
        const size_t key = layer * experts_per_layer + local_id;
        table.set(key, expert.pack());
        weights[key] = expert.reference_weights();
    }
    ExpertsSetup setup() const { return {&table, weights, experts_per_layer, kMatrixHidden}; }
};

struct MatrixModel {
    MatrixKind kind;
    std::vector<MatrixExpert> experts;  // [layer · kMatrixPerLayer + logical expert]

    explicit MatrixModel(ExpertQuantisation quantisation)
        : MatrixModel(MatrixKind{.quantisation = quantisation}) {}
    explicit MatrixModel(const MatrixKind& of) : kind(of) {
        for (uint32_t key = 0; key < kMatrixLayers * kMatrixPerLayer; ++key) {
            experts.emplace_back(kind, 10 * key + 1000);
        }
    }
    const MatrixExpert& expert(uint32_t layer, size_t logical) const {
        return experts[layer * kMatrixPerLayer + logical];
    }
    // Everything in one process, local ids as logical ones.
    MatrixShard whole() const { return with_shared(1); }
    // The same with the shared expert or without.
    MatrixShard with_shared(size_t num_shared) const {
        MatrixShard shard(kMatrixExperts + num_shared, kind.activation);
        for (uint32_t layer = 0; layer < kMatrixLayers; ++layer) {
            for (size_t e = 0; e < shard.experts_per_layer; ++e) {
                shard.set(layer, e, expert(layer, e));
            }
        }
        return shard;
    }
};

enum class Routing { kUniform, kZipf, kOneExpert, kAllMasked, kDuplicates };
inline constexpr Routing kRoutings[] = {Routing::kUniform,
                                        Routing::kZipf,
                                        Routing::kOneExpert,
                                        Routing::kAllMasked,
                                        Routing::kDuplicates};

// One call of the layer.
struct MatrixCase {
    uint32_t num_tokens;
    uint32_t top_k;
    Routing routing;
    std::vector<int32_t> ids;
    std::vector<float> weights;

    MatrixCase(uint32_t tokens, uint32_t k, Routing kind)
        : num_tokens(tokens), top_k(k), routing(kind) {
        std::mt19937 engine(tokens * 31 + k * 7 + static_cast<uint32_t>(kind));
        for (uint32_t token = 0; token < tokens; ++token) {
            std::vector<int32_t> order(kMatrixExperts);
            for (size_t e = 0; e < kMatrixExperts; ++e) order[e] = static_cast<int32_t>(e);
            std::shuffle(order.begin(), order.end(), engine);
            for (uint32_t slot = 0; slot < k; ++slot) {
                ids.push_back(id_of(order, slot, engine));
                weights.push_back(0.05f + 0.01f * static_cast<float>(engine() % 90));
            }
        }
    }

    int32_t id_of(const std::vector<int32_t>& order, uint32_t slot, std::mt19937& engine) const {
        switch (routing) {
            case Routing::kUniform:
                return order[slot];
            case Routing::kZipf: {
                // Expert e with weight 1 / (e + 1), and now and then a masked slot.
                const double u = static_cast<double>(engine() % 10000) / 10000.0;
                const auto e =
                    static_cast<int32_t>(std::exp(u * std::log(kMatrixExperts + 1.0))) - 1;
                return engine() % 11 == 0 ? -1 : std::min<int32_t>(e, kMatrixExperts - 1);
            }
            case Routing::kOneExpert:
                return 5;
            case Routing::kAllMasked:
                return -1;
            case Routing::kDuplicates:
                return order[slot / 2 % 2];
        }
        return -1;
    }

    MoeInput input(const RandomMatrix& x) const {
        return {.x = x.rows(),
                .layer_id = kMatrixLayer,
                .num_tokens = num_tokens,
                .top_k = top_k,
                .num_shared = 1,
                .topk_ids = ids.data(),
                .topk_weights = weights.data()};
    }
    std::string name() const {
        constexpr const char* kNames[] = {"uniform", "Zipf", "one expert", "all -1", "duplicates"};
        return std::to_string(num_tokens) + " tokens, top-" + std::to_string(top_k) + ", " +
               kNames[static_cast<size_t>(routing)];
    }
};

inline std::vector<MatrixCase> matrix_cases() {
    std::vector<MatrixCase> cases;
    for (const uint32_t num_tokens : {0u, 1u, 7u, 33u, 257u}) {
        for (const uint32_t top_k : {1u, 4u, 8u}) {
            for (const Routing routing : kRoutings) cases.emplace_back(num_tokens, top_k, routing);
        }
    }
    return cases;
}

inline RandomMatrix matrix_tokens() {
    return RandomMatrix(kMatrixTokens, kMatrixHidden, 4711);
}

inline FusedMoeConfig matrix_config(ExpertQuantisation quantisation) {
    return {.hidden = kMatrixHidden,
            .num_experts = kMatrixExperts,
            .top_k = kMatrixTopK,
            .num_shared = 1,
            .max_num_tokens = kMatrixTokens,
            .quantisation = quantisation};
}

// The layer's output from rows that were each computed alone: by the plain loops of ops/reference,
// or by the kernels on a batch of one. The order of the sum is the specification's, so that every
// composition has to give these bits. With fp8 dispatch over the rows that fp8 keeps; int8 dispatch
// changes no bit.
class MatrixOracle {
  public:
    MatrixOracle(const MatrixModel& model,
                 bool is_reference,
                 RowDtype dispatch_dtype = RowDtype::kBf16)
        : model_(model),
          is_reference_(is_reference),
          shard_(model.whole()),
          is_fp8_(dispatch_dtype == RowDtype::kFp8),
          x_(matrix_tokens()),
          workspace_(grouped_ffn_workspace_bytes(shard_.table, 1, 1)) {}

    std::vector<Bf16> expected(const MatrixCase& c) {
        std::vector<Bf16> out;
        for (uint32_t token = 0; token < c.num_tokens; ++token) {
            std::vector<float> sums(kMatrixHidden, 0.0f);
            for (uint32_t k = 0; k < c.top_k; ++k) {
                const int32_t id = c.ids[token * c.top_k + k];
                if (id < 0) continue;
                add(row(token, static_cast<size_t>(id)), c.weights[token * c.top_k + k], sums);
            }
            add(row(token, kMatrixExperts), 1.0f, sums);
            for (const float sum : sums) out.push_back(from_float(sum));
        }
        return out;
    }

    // The same with the weights on the experts' input (top-1): the product rounded to bf16 before
    // anything else happens to the row. `num_shared` 1: the shared expert takes the row without.
    std::vector<Bf16> expected_weight_on_input(const MatrixCase& c, uint32_t num_shared) {
        std::vector<Bf16> out;
        for (uint32_t token = 0; token < c.num_tokens; ++token) {
            std::vector<float> sums(kMatrixHidden, 0.0f);
            if (c.ids[token] >= 0) {
                const auto expert = static_cast<size_t>(c.ids[token]);
                add(weighted_row(token, expert, c.weights[token]), 1.0f, sums);
            }
            if (num_shared > 0) add(row(token, kMatrixExperts), 1.0f, sums);
            for (const float sum : sums) out.push_back(from_float(sum));
        }
        return out;
    }

    const std::vector<Bf16>& row(uint32_t token, size_t expert) {
        std::vector<Bf16>& values = rows_[{token, expert}];
        const Bf16* x = x_.rows().row(token);
        if (values.empty()) values = compute({x, x + kMatrixHidden}, expert);
        return values;
    }

  private:
    const std::vector<Bf16>& weighted_row(uint32_t token, size_t expert, float weight) {
        std::vector<Bf16>& values = weighted_rows_[{token, expert, weight}];
        if (!values.empty()) return values;
        std::vector<Bf16> x;
        for (size_t i = 0; i < kMatrixHidden; ++i) {
            x.push_back(from_float(weight * to_float(x_.rows().row(token)[i])));
        }
        values = compute(std::move(x), expert);
        return values;
    }

    static void add(const std::vector<Bf16>& row, float weight, std::vector<float>& sums) {
        for (size_t i = 0; i < sums.size(); ++i) {
            const float product = to_float(row[i]) * weight;
            sums[i] = sums[i] + product;
        }
    }

    std::vector<Bf16> compute(std::vector<Bf16> values, size_t expert) {
        if (is_fp8_) round_row_to_fp8(values.data(), kMatrixHidden, values.data());
        const Rows<const Bf16> x = make_rows<const Bf16>(values.data(), 1, kMatrixHidden);
        const MatrixExpert& weights = model_.expert(kMatrixLayer, expert);
        if (!is_reference_) {
            std::vector<Bf16> y(kMatrixHidden);
            const ExpertGroup group{
                .key = static_cast<int64_t>(kMatrixLayer * kMatrixPerLayer + expert), .count = 1};
            SerialParallel serial;
            EXPECT_TRUE(grouped_ffn({.experts = &shard_.table,
                                     .groups = {&group, 1},
                                     .x = x,
                                     .y = make_rows(y.data(), 1, kMatrixHidden)},
                                    workspace_.bytes(),
                                    serial)
                            .ok());
            return y;
        }
        return reference::narrow(reference::expert_ffn(
            reference::widen(x), weights.reference_weights(), reference::Rounding::kBf16));
    }

    const MatrixModel& model_;
    bool is_reference_;
    MatrixShard shard_;
    bool is_fp8_;
    RandomMatrix x_;
    Workspace workspace_;
    std::map<std::pair<uint32_t, size_t>, std::vector<Bf16>> rows_;
    std::map<std::tuple<uint32_t, size_t, float>, std::vector<Bf16>> weighted_rows_;
};

}  // namespace afd::ops::test

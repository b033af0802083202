// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/gqa.h"

#include <algorithm>
#include <vector>

#include "ops/reference/online_softmax.h"
#include "ops/reference/rms_norm.h"

namespace afd::ops::reference {
namespace {

// Columns in parts as wide as gamma, each normalised by itself.
void normalise_parts(std::span<const Bf16> gamma, double epsilon, Rounding rounding, Matrix& x) {
    for (size_t first = 0; !gamma.empty() && first < x.num_cols; first += gamma.size()) {
        const Matrix part = rms_norm(x.columns(first, gamma.size()), gamma, epsilon, rounding);
        for (size_t t = 0; t < x.num_rows; ++t) {
            for (size_t i = 0; i < gamma.size(); ++i) x.at(t, first + i) = part.at(t, i);
        }
    }
}

void clamp_values(const std::optional<double>& clip, Rounding rounding, Matrix& x) {
    if (!clip) return;
    for (double& value : x.values) value = round_point(std::clamp(value, -*clip, *clip), rounding);
}

// The first rope.dim() elements of every head, element i with element i + dim/2.
void rotate_heads(size_t head_dim,
                  const RopeTable& rope,
                  std::span<const int32_t> positions,
                  Rounding rounding,
                  Matrix& x) {
    const size_t half = rope.dim() / 2;
    for (size_t t = 0; t < x.num_rows; ++t) {
        const auto position = static_cast<size_t>(positions[t]);
        for (size_t first = 0; first < x.num_cols; first += head_dim) {
            for (size_t i = 0; i < half; ++i) {
                const double c = static_cast<double>(rope.cos(position)[i]);
                const double s = static_cast<double>(rope.sin(position)[i]);
                const double low = x.at(t, first + i);
                const double high = x.at(t, first + half + i);
                x.at(t, first + i) = round_point(low * c - high * s, rounding);
                x.at(t, first + half + i) = round_point(high * c + low * s, rounding);
            }
        }
    }
}

}  // namespace

GqaPrologOutput gqa_prolog(const GqaMatrices& weights,
                           const Matrix& x,
                           std::span<const int32_t> positions,
                           const RopeTable& rope,
                           Rounding rounding) {
    GqaPrologOutput out{.query = linear(x, weights.q_proj, rounding, weights.q_bias),
                        .key = linear(x, weights.k_proj, rounding, weights.k_bias),
                        .value = linear(x, weights.v_proj, rounding, weights.v_bias)};
    normalise_parts(weights.q_gamma, weights.norm_epsilon, rounding, out.query);
    normalise_parts(weights.k_gamma, weights.norm_epsilon, rounding, out.key);
    for (Matrix* rows : {&out.query, &out.key, &out.value}) {
        clamp_values(weights.clip, rounding, *rows);
    }
    rotate_heads(weights.shape.head_dim, rope, positions, rounding, out.query);
    rotate_heads(weights.shape.head_dim, rope, positions, rounding, out.key);
    return out;
}

Matrix gqa_attention(const GqaMatrices& weights,
                     const Matrix& query,
                     const Matrix& key,
                     const Matrix& value,
                     std::span<const int32_t> positions,
                     Rounding rounding) {
    const GqaShape& s = weights.shape;
    Matrix out(query.num_rows, s.query_columns());
    for (size_t head = 0; head < s.num_heads; ++head) {
        const size_t shared = head / s.group_size() * s.head_dim;
        const Matrix keys = key.columns(shared, s.head_dim);
        const Matrix values = value.columns(shared, s.head_dim);
        const size_t first = head * s.head_dim;
        for (size_t t = 0; t < query.num_rows; ++t) {
            const size_t end = static_cast<size_t>(positions[t]) + 1;
            const size_t begin =
                weights.window == 0 || end <= weights.window ? 0 : end - weights.window;
            std::vector<double> scores(end - begin);
            for (size_t i = 0; i < scores.size(); ++i) {
                double sum = 0;
                for (size_t c = 0; c < s.head_dim; ++c) {
                    sum += query.at(t, first + c) * keys.at(begin + i, c);
                }
                scores[i] = sum * weights.softmax_scale;
            }
            std::optional<double> sink;
            if (!weights.sinks.empty()) sink = static_cast<double>(weights.sinks[head]);
            const std::vector<double> o = online_softmax(scores, values, rounding, begin, sink);
            for (size_t c = 0; c < s.head_dim; ++c) {
                out.at(t, first + c) = round_point(o[c], rounding);
            }
        }
    }
    return out;
}

}  // namespace afd::ops::reference

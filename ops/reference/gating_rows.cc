// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/gating_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "proto/check.h"

namespace afd::ops::reference {
namespace {

// log(1 + e^x), a step of its own: what fp32 does not hold of it, no score has.
float softplus(double x) {
    return static_cast<float>(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
}

double score_of(GatingNorm norm, double x, double top, double sum) {
    switch (norm) {
        case GatingNorm::kSoftmax:
            return std::exp(x - top) / sum;
        case GatingNorm::kSigmoid:
            return 1.0 / (1.0 + std::exp(-x));
        case GatingNorm::kSqrtSoftplus:
            return std::sqrt(static_cast<double>(softplus(x)));
    }
    return 0;
}

std::vector<float> scores_of(GatingNorm norm, const double* logits, size_t count) {
    std::vector<float> scores(count);
    const double top = *std::max_element(logits, logits + count);
    double sum = 0;
    for (size_t e = 0; e < count; ++e) sum += std::exp(logits[e] - top);
    for (size_t e = 0; e < count; ++e) {
        scores[e] = static_cast<float>(score_of(norm, logits[e], top, sum));
    }
    return scores;
}

// Indices of `values` by (value descending, index ascending).
std::vector<size_t> ranking(const std::vector<float>& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(
        order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
    return order;
}

// Of each group; none where all groups stay.
std::vector<float> group_scores_of(const GatingAttributes& a, const std::vector<float>& choice) {
    const size_t size = a.num_experts / a.n_group;
    std::vector<float> group_scores(a.topk_group < a.n_group ? a.n_group : 0);
    for (size_t g = 0; g < group_scores.size(); ++g) {
        std::vector<float> members(choice.begin() + static_cast<ptrdiff_t>(g * size),
                                   choice.begin() + static_cast<ptrdiff_t>((g + 1) * size));
        std::sort(members.begin(), members.end(), std::greater<>());
        const bool is_sum = a.group_select_mode == GroupSelectMode::kSumOfTwoBest && size > 1;
        group_scores[g] = is_sum ? members[0] + members[1] : members[0];
    }
    return group_scores;
}

// Whether each expert's group is among the topk_group best.
std::vector<bool> allowed_experts(const GatingAttributes& a,
                                  const std::vector<float>& group_scores) {
    std::vector<bool> allowed(a.num_experts, group_scores.empty());
    if (group_scores.empty()) return allowed;
    const size_t size = a.num_experts / a.n_group;
    const std::vector<size_t> order = ranking(group_scores);
    for (size_t i = 0; i < a.topk_group; ++i) {
        for (size_t e = order[i] * size; e < (order[i] + 1) * size; ++e) allowed[e] = true;
    }
    return allowed;
}

// Row t of the weights.
void write_weights(const GatingAttributes& a,
                   const std::vector<float>& scores,
                   std::span<const int32_t> ids,
                   size_t t,
                   Matrix& weights) {
    double sum = 1e-20;
    for (const int32_t e : ids) sum += static_cast<double>(scores[static_cast<size_t>(e)]);
    for (size_t k = 0; k < a.top_k; ++k) {
        const double score = static_cast<double>(scores[static_cast<size_t>(ids[k])]);
        weights.at(t, k) =
            (a.norm_topk_prob ? score / sum : score) * static_cast<double>(a.routed_scaling_factor);
    }
}

bool any_nan(const std::vector<float>& values) {
    return std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
}

// The softmax at `best` of the experts of `order` that are near it. Who is near is decided in fp32;
// the exponentials are of the logits as they are.
double mixer_weight(const GatingAttributes& a,
                    const double* logits,
                    std::span<const size_t> order) {
    const auto top = static_cast<float>(logits[order[0]]);
    double sum = 0;
    for (const size_t e : order) {
        const auto s = static_cast<float>(logits[e]);
        if ((top - s) / std::max(std::fabs(s), top) > 2 * *a.mixer_jitter) continue;
        sum += std::exp(logits[e] - logits[order[0]]);
    }
    return static_cast<double>(a.routed_scaling_factor) / sum;
}

// Row t of a sparsemixer.
void mix_row(const GatingAttributes& a, const Matrix& logits, size_t t, GatingOutput& out) {
    const double* row = logits.row(t);
    const std::vector<float> narrow(row, row + a.num_experts);
    const std::vector<size_t> order = ranking(narrow);
    bool is_nan = any_nan(narrow);
    for (size_t k = 0; k < a.top_k; ++k) {
        out.ids.push_back(static_cast<int32_t>(is_nan ? k : order[k]));
        out.weights.at(t, k) = mixer_weight(a, row, std::span(order).subspan(k));
        is_nan = is_nan || std::isnan(out.weights.at(t, k));
    }
    for (size_t k = 0; k < a.top_k && is_nan; ++k) {
        out.ids[out.ids.size() - a.top_k + k] = static_cast<int32_t>(k);
        out.weights.at(t, k) = std::numeric_limits<double>::quiet_NaN();
    }
}

}  // namespace

GatingOutput gating_weights(const GatingAttributes& a,
                            const Matrix& logits,
                            std::span<const int32_t> ids) {
    GatingOutput out{Matrix(logits.num_rows, a.top_k), {ids.begin(), ids.end()}};
    for (size_t t = 0; t < logits.num_rows; ++t) {
        const std::vector<float> scores = scores_of(a.norm, logits.row(t), a.num_experts);
        write_weights(a, scores, ids.subspan(t * a.top_k, a.top_k), t, out.weights);
        for (size_t k = 0; any_nan(scores) && k < a.top_k; ++k) {
            out.weights.at(t, k) = std::numeric_limits<double>::quiet_NaN();
        }
    }
    return out;
}

GatingOutput gating_rows(const GatingAttributes& a,
                         const Matrix& logits,
                         std::span<const float> bias) {
    AFD_ASSERT(logits.num_cols == a.num_experts, "%zu logits", logits.num_cols);
    GatingOutput out{Matrix(logits.num_rows, a.top_k), {}};
    for (size_t t = 0; t < logits.num_rows; ++t) {
        if (a.mixer_jitter) {
            mix_row(a, logits, t, out);
            continue;
        }
        const std::vector<float> scores = scores_of(a.norm, logits.row(t), a.num_experts);
        std::vector<float> choice = scores;
        for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
        const bool is_nan = any_nan(choice);
        const std::vector<float> group_scores =
            is_nan ? std::vector<float>() : group_scores_of(a, choice);
        if (is_nan || any_nan(group_scores)) {
            for (size_t k = 0; k < a.top_k; ++k) {
                out.ids.push_back(static_cast<int32_t>(k));
                out.weights.at(t, k) = std::numeric_limits<double>::quiet_NaN();
            }
            continue;
        }
        const std::vector<bool> allowed = allowed_experts(a, group_scores);
        std::vector<int32_t> picks;
        for (const size_t e : ranking(choice)) {
            if (allowed[e] && picks.size() < a.top_k) picks.push_back(static_cast<int32_t>(e));
        }
        write_weights(a, scores, picks, t, out.weights);
        out.ids.insert(out.ids.end(), picks.begin(), picks.end());
    }
    return out;
}

}  // namespace afd::ops::reference

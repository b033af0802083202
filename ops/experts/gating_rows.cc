// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/gating_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ops/tensor/lanes.h"
#include "ops/tensor/math.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

Error out_of_range(const char* name, size_t value, const std::string& allowed) {
    return invalid_argument("{} is {}; {}", with(name, value, allowed));
}

float sum_of(const float* values, size_t count) {
    // Sixteen partial sums, added by halves: the order that vector code can keep, so that no class
    // differs.
    float lanes[kLanes] = {};
    for (size_t i = 0; i < count; ++i) lanes[i % kLanes] = lanes[i % kLanes] + values[i];
    return sum_lanes(lanes);
}

void compute_scores(GatingNorm norm, const float* logits, size_t count, float* scores) {
    if (norm == GatingNorm::kSigmoid) {
        for (size_t i = 0; i < count; ++i) scores[i] = sigmoid(logits[i]);
        return;
    }
    if (norm == GatingNorm::kSqrtSoftplus) {
        for (size_t i = 0; i < count; ++i) scores[i] = std::sqrt(softplus(logits[i]));
        return;
    }
    // Without the maximum a logit of 89 overflows. A NaN among the logits may be missed here, but
    // comes back as a NaN score.
    const float top = *std::max_element(logits, logits + count);
    for (size_t i = 0; i < count; ++i) scores[i] = exp(logits[i] - top);
    const float sum = sum_of(scores, count);
    for (size_t i = 0; i < count; ++i) scores[i] = scores[i] / sum;
}

float group_score(const float* choice, size_t size, GroupSelectMode mode) {
    float best = choice[0];
    float second = -std::numeric_limits<float>::infinity();
    for (size_t i = 1; i < size; ++i) {
        if (choice[i] > best) {
            second = best;
            best = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return mode == GroupSelectMode::kMax || size == 1 ? best : best + second;
}

// Index of the largest value whose `taken` is 0, the lowest of equal ones; marks it.
size_t take_best(const float* values, size_t count, uint8_t* taken) {
    size_t best = count;
    for (size_t i = 0; i < count; ++i) {
        // Greater, not greater or equal: ties go to the lower index.
        if (taken[i] == 0 && (best == count || values[i] > values[best])) best = i;
    }
    taken[best] = 1;
    return best;
}

struct Scratch {
    float* scores;         // [num_experts]
    float* choice;         // [num_experts]
    float* group_scores;   // [n_group]
    uint8_t* taken;        // [num_experts]: 1 taken, or in a group that is out.
    uint8_t* gone;         // [num_experts]: taken before the pick under way; of a sparsemixer.
    uint8_t* group_taken;  // [n_group]
};

// Marks the experts of all groups but the best topk_group as taken. False: a group's score is no
// number, the sum of an infinity and its opposite.
bool select_groups(const GatingAttributes& a, const Scratch& scratch) {
    const size_t size = a.num_experts / a.n_group;
    std::fill_n(scratch.taken, a.num_experts, uint8_t{0});
    // Without groups, or where all stay, nothing is out.
    if (a.topk_group == a.n_group) return true;
    bool any_nan = false;
    for (size_t g = 0; g < a.n_group; ++g) {
        const float score = group_score(scratch.choice + g * size, size, a.group_select_mode);
        any_nan = any_nan || score != score;
        scratch.group_scores[g] = score;
    }
    if (any_nan) return false;
    std::fill_n(scratch.taken, a.num_experts, uint8_t{1});
    std::fill_n(scratch.group_taken, a.n_group, uint8_t{0});
    for (size_t i = 0; i < a.topk_group; ++i) {
        const size_t g = take_best(scratch.group_scores, a.n_group, scratch.group_taken);
        std::fill_n(scratch.taken + g * size, size, uint8_t{0});
    }
    return true;
}

bool any_nan(const Scratch& scratch, size_t count) {
    bool found = false;
    for (size_t i = 0; i < count; ++i) {
        found = found || scratch.scores[i] != scratch.scores[i] ||
                scratch.choice[i] != scratch.choice[i];
    }
    return found;
}

// The weights of the experts that were picked.
void write_weights(const GatingAttributes& a,
                   const float* scores,
                   const int32_t* ids,
                   float* weights) {
    float sum = 0.0f;
    for (size_t k = 0; k < a.top_k; ++k) {
        weights[k] = scores[static_cast<size_t>(ids[k])];
        // In the order of the picks, which is part of the specification: weights of equal sets in
        // another order may differ in the last bit.
        sum = sum + weights[k];
    }
    for (size_t k = 0; k < a.top_k; ++k) {
        if (a.norm_topk_prob) weights[k] = weights[k] / (sum + 1e-20f);
        weights[k] = weights[k] * a.routed_scaling_factor;
    }
}

// Valid ids with NaN weights: rows still have a way through the experts, and the NaN reaches
// whoever can name the request.
void poison(size_t top_k, float* weights, int32_t* ids) {
    for (size_t k = 0; k < top_k; ++k) {
        ids[k] = static_cast<int32_t>(k);
        weights[k] = std::numeric_limits<float>::quiet_NaN();
    }
}

void route_mixed_row(const GatingAttributes& a,
                     const float* logits,
                     const Scratch& scratch,
                     float* weights,
                     int32_t* ids) {
    const float limit = 2.0f * *a.mixer_jitter;
    bool is_nan = std::any_of(logits, logits + a.num_experts, [](float s) { return s != s; });
    std::fill_n(scratch.taken, a.num_experts, uint8_t{0});
    for (size_t k = 0; k < a.top_k && !is_nan; ++k) {
        std::copy_n(scratch.taken, a.num_experts, scratch.gone);
        const size_t best = take_best(logits, a.num_experts, scratch.taken);
        const float top = logits[best];
        for (size_t e = 0; e < a.num_experts; ++e) {
            // 0 / 0, of rivals at 0, is not above the limit: they stay.
            const float distance = (top - logits[e]) / std::max(std::fabs(logits[e]), top);
            const bool is_out = scratch.gone[e] != 0 || distance > limit;
            scratch.scores[e] = is_out ? 0.0f : exp(logits[e] - top);
        }
        ids[k] = static_cast<int32_t>(best);
        weights[k] =
            scratch.scores[best] / sum_of(scratch.scores, a.num_experts) * a.routed_scaling_factor;
        // An infinite logit, or nothing left but such.
        is_nan = weights[k] != weights[k];
    }
    if (is_nan) poison(a.top_k, weights, ids);
}

void route_row(const GatingAttributes& a,
               const float* logits,
               std::span<const float> bias,
               const Scratch& scratch,
               float* weights,
               int32_t* ids) {
    compute_scores(a.norm, logits, a.num_experts, scratch.scores);
    for (size_t e = 0; e < a.num_experts; ++e) {
        scratch.choice[e] = bias.empty() ? scratch.scores[e] : scratch.scores[e] + bias[e];
    }
    if (any_nan(scratch, a.num_experts) || !select_groups(a, scratch)) {
        return poison(a.top_k, weights, ids);
    }
    for (size_t k = 0; k < a.top_k; ++k) {
        ids[k] = static_cast<int32_t>(take_best(scratch.choice, a.num_experts, scratch.taken));
    }
    write_weights(a, scratch.scores, ids, weights);
}

Result<> validate_mixer(const GatingAttributes& a) {
    if (!a.mixer_jitter) return {};
    if (!std::isfinite(*a.mixer_jitter) || *a.mixer_jitter < 0) {
        return invalid_argument("mixer_jitter is {:f}; it must be finite and not negative",
                                with(*a.mixer_jitter));
    }
    if (a.top_k != 2) return out_of_range("top_k", a.top_k, "with mixer_jitter it must be 2");
    if (a.n_group != 1) return out_of_range("n_group", a.n_group, "with mixer_jitter it must be 1");
    if (a.norm_topk_prob) return invalid_argument("norm_topk_prob cannot go with mixer_jitter");
    return {};
}

}  // namespace

Result<> validate(const GatingAttributes& a) {
    if (a.n_group == 0 || a.num_experts == 0 || a.num_experts % a.n_group != 0) {
        return out_of_range(
            "num_experts",
            a.num_experts,
            fmt::format("it must be a positive multiple of n_group, which is {}", a.n_group));
    }
    if (a.topk_group == 0 || a.topk_group > a.n_group) {
        return out_of_range(
            "topk_group", a.topk_group, fmt::format("allowed are 1 ... n_group, {}", a.n_group));
    }
    const size_t reachable = a.topk_group * (a.num_experts / a.n_group);
    if (a.top_k == 0 || a.top_k > reachable) {
        return out_of_range(
            "top_k",
            a.top_k,
            fmt::format("allowed are 1 ... topk_group * num_experts / n_group, {}", reachable));
    }
    return validate_mixer(a);
}

size_t gating_rows_workspace_bytes(const GatingAttributes& a) {
    return 2 * workspace_bytes_of<float>(a.num_experts) + workspace_bytes_of<float>(a.n_group) +
           2 * workspace_bytes_of<uint8_t>(a.num_experts) + workspace_bytes_of<uint8_t>(a.n_group);
}

void gating_rows(const GatingAttributes& attributes,
                 Rows<const float> logits,
                 std::span<const float> bias,
                 Rows<float> topk_weights,
                 Rows<int32_t> topk_ids,
                 std::span<std::byte> workspace) {
    const size_t num_experts = attributes.num_experts;
    AFD_ASSERT(logits.num_cols == num_experts && (bias.empty() || bias.size() == num_experts),
               "%zu logits and %zu biases for %zu experts",
               logits.num_cols,
               bias.size(),
               num_experts);
    AFD_ASSERT(topk_ids.num_rows >= logits.num_rows && topk_weights.num_rows >= logits.num_rows &&
                   topk_ids.num_cols >= attributes.top_k &&
                   topk_weights.num_cols >= attributes.top_k,
               "%zu rows, top_k %zu",
               logits.num_rows,
               attributes.top_k);
    WorkspaceCursor cursor(workspace);
    Scratch scratch{};
    scratch.scores = cursor.take<float>(num_experts);
    scratch.choice = cursor.take<float>(num_experts);
    scratch.group_scores = cursor.take<float>(attributes.n_group);
    scratch.taken = cursor.take<uint8_t>(num_experts);
    scratch.gone = cursor.take<uint8_t>(num_experts);
    scratch.group_taken = cursor.take<uint8_t>(attributes.n_group);
    AFD_ASSERT(bias.empty() || !attributes.mixer_jitter, "%zu biases of a mixer", bias.size());
    for (size_t t = 0; t < logits.num_rows; ++t) {
        if (attributes.mixer_jitter) {
            route_mixed_row(
                attributes, logits.row(t), scratch, topk_weights.row(t), topk_ids.row(t));
            continue;
        }
        route_row(attributes, logits.row(t), bias, scratch, topk_weights.row(t), topk_ids.row(t));
    }
}

void gating_weights(const GatingAttributes& attributes,
                    Rows<const float> logits,
                    Rows<const int32_t> topk_ids,
                    Rows<float> topk_weights,
                    std::span<std::byte> workspace) {
    const size_t num_experts = attributes.num_experts;
    AFD_ASSERT(
        logits.num_cols == num_experts && !attributes.mixer_jitter, "%zu logits", logits.num_cols);
    WorkspaceCursor cursor(workspace);
    auto* scores = cursor.take<float>(num_experts);
    for (size_t t = 0; t < logits.num_rows; ++t) {
        compute_scores(attributes.norm, logits.row(t), num_experts, scores);
        float* weights = topk_weights.row(t);
        if (std::any_of(scores, scores + num_experts, [](float s) { return s != s; })) {
            std::fill_n(weights, attributes.top_k, std::numeric_limits<float>::quiet_NaN());
            continue;
        }
        write_weights(attributes, scores, topk_ids.row(t), weights);
    }
}

}  // namespace afd::ops

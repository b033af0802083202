// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "ops/tensor/double_math.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

struct SinCos {
    double sin;
    double cos;
};

// Reduction to [-pi/4, pi/4] with pi/2 in two parts (the first has 33 bits, so its product with a
// quadrant below 2^20 is exact), then Taylor to the 15th and 16th order: error below 1e-15.
SinCos sin_cos(double x) {
    const double quadrant = std::nearbyint(x * (2.0 / std::numbers::pi));
    const double r = (x - quadrant * 0x1.921fb544p+0) - quadrant * 0x1.0b4611a626331p-34;
    const double z = r * r;
    double sine = 0;
    for (int k = 15; k >= 3; k -= 2) sine = (1.0 + sine) * (-z / (k * (k - 1)));
    sine = r + r * sine;
    double cosine = 0;
    for (int k = 16; k >= 2; k -= 2) cosine = (1.0 + cosine) * (-z / (k * (k - 1)));
    cosine = 1.0 + cosine;
    switch (static_cast<int64_t>(quadrant) & 3) {
        case 0:
            return {sine, cosine};
        case 1:
            return {cosine, -sine};
        case 2:
            return {-sine, -cosine};
        default:
            return {-cosine, sine};
    }
}

// The dimension (counted in pairs) whose wave turns `rotations` times in the original context.
double correction_pair(const RopeConfig& config, double rotations) {
    const double positions = config.yarn->original_max_positions;
    return static_cast<double>(config.dim) *
           double_log(positions / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * double_log(config.theta));
}

float frequency(const RopeConfig& config, size_t pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(config.dim);
    const double plain = 1.0 / double_power(config.theta, exponent);
    if (config.long_rope) return static_cast<float>(plain / config.long_rope->factors[pair]);
    if (!config.yarn) return static_cast<float>(plain);
    const double last = static_cast<double>(config.dim) - 1.0;
    const bool truncate = config.yarn->truncate;
    const double first_pair = correction_pair(config, config.yarn->beta_fast);
    const double last_pair = correction_pair(config, config.yarn->beta_slow);
    const double low = std::max(0.0, truncate ? std::floor(first_pair) : first_pair);
    double high = std::min(last, truncate ? std::ceil(last_pair) : last_pair);
    // As the models' own code does it: a ramp of no width would divide by zero.
    if (high <= low) high = low + 0.001;
    const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    return static_cast<float>(plain / config.yarn->factor * ramp + plain * (1.0 - ramp));
}

Result<> check_positive(double value, const char* name) {
    if (std::isfinite(value) && value > 0) return {};
    return invalid_argument("{} is {:f}; it must be positive", with(name, value));
}

Result<> check_long_rope(const RopeConfig& config) {
    const LongRope& scaling = *config.long_rope;
    if (config.yarn || scaling.factors.size() != config.dim / 2) {
        return invalid_argument(
            "rope_scaling has {} factors; they must be {}, one for each pair, and not with yarn",
            with(scaling.factors.size(), config.dim / 2));
    }
    for (const double factor : scaling.factors) {
        AFD_TRY(check_positive(factor, "a factor of rope_scaling"));
    }
    return check_positive(scaling.scale, "the mscale of rope_scaling");
}

// Angles of a table: 64 for each of 16 million positions, and more than any model has.
constexpr size_t kRopeAnglesMax = size_t{1} << 30;

Result<> validate(const RopeConfig& config) {
    if (config.dim == 0 || config.dim % 2 != 0) {
        return invalid_argument("rope dim is {}; it must be even, at least 2", with(config.dim));
    }
    if (config.num_positions > kRopeAnglesMax / (config.dim / 2)) {
        return invalid_argument(
            "the rope table of {} positions (max_position_embeddings) has {} angles for each; at "
            "most {} in all are supported",
            with(config.num_positions, config.dim / 2, kRopeAnglesMax));
    }
    AFD_TRY(check_positive(config.theta, "rope_theta"));
    if (config.long_rope) return check_long_rope(config);
    if (!config.yarn) return {};
    AFD_TRY(check_positive(config.yarn->factor, "rope_scaling.factor"));
    AFD_TRY(check_positive(config.yarn->original_max_positions,
                           "rope_scaling.original_max_position_embeddings"));
    AFD_TRY(check_positive(config.yarn->beta_fast, "rope_scaling.beta_fast"));
    AFD_TRY(check_positive(config.yarn->beta_slow, "rope_scaling.beta_slow"));
    return {};
}

float widen(Bf16 value) {
    return to_float(value);
}

float widen(float value) {
    return value;
}

// cos and sin of the angles of half a row.
template <typename A>
struct HalfTurn {
    const A* cos;
    const A* sin;
};

// `emit(i, value)` gets element i of the result.
template <typename T, typename A, typename Emit>
void rotate(const T* x, size_t half, HalfTurn<A> first, HalfTurn<A> second, const Emit& emit) {
    for (size_t i = 0; i < half; ++i) {
        const float even = widen(x[2 * i]);
        const float odd = widen(x[2 * i + 1]);
        emit(i, even * widen(first.cos[i]) - odd * widen(first.sin[i]));
        emit(i + half, odd * widen(second.cos[i]) + even * widen(second.sin[i]));
    }
}

template <typename T>
void rotate_full_width(const T* x, const Bf16* cos, const Bf16* sin, size_t dim, float* out) {
    const size_t half = dim / 2;
    const HalfTurn<Bf16> first{cos, sin};
    const HalfTurn<Bf16> second{cos + half, sin + half};
    rotate(x, half, first, second, [&](size_t i, float value) { out[i] = value; });
}

double table_scale(const RopeConfig& config) {
    if (config.long_rope) return config.long_rope->scale;
    if (!config.yarn) return 1.0;
    return yarn_mscale(config.yarn->factor, config.yarn->mscale) /
           yarn_mscale(config.yarn->factor, config.yarn->mscale_all_dim);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * double_log(factor) + 1.0;
}

std::vector<float> rope_frequencies(const RopeConfig& config) {
    std::vector<float> frequencies(config.dim / 2);
    for (size_t pair = 0; pair < frequencies.size(); ++pair) {
        frequencies[pair] = frequency(config, pair);
    }
    return frequencies;
}

Result<RopeTable> RopeTable::make(const RopeConfig& config) {
    AFD_TRY(validate(config));
    const size_t num_pairs = config.dim / 2;
    const double scale = table_scale(config);
    const std::vector<float> frequencies = rope_frequencies(config);
    RopeTable table;
    table.dim_ = config.dim;
    table.num_positions_ = config.num_positions;
    table.cos_.reserve(config.num_positions * num_pairs);
    table.sin_.reserve(config.num_positions * num_pairs);
    for (size_t position = 0; position < config.num_positions; ++position) {
        for (const float value : frequencies) {
            // fp32, as in the models' code: a more exact angle would be another model's at long
            // positions.
            const float angle = static_cast<float>(position) * value;
            const SinCos turn = sin_cos(static_cast<double>(angle));
            table.cos_.push_back(static_cast<float>(turn.cos * scale));
            table.sin_.push_back(static_cast<float>(turn.sin * scale));
        }
    }
    return table;
}

void rope(const Bf16* x, const RopeTable& table, size_t position, Bf16* out) {
    AFD_DASSERT(position < table.num_positions(), "position %zu", position);
    const HalfTurn<float> turn{table.cos(position), table.sin(position)};
    rotate(
        x, table.dim() / 2, turn, turn, [&](size_t i, float value) { out[i] = from_float(value); });
}

void rope(const Bf16* x, const RopeTable& table, size_t position, float* out) {
    AFD_DASSERT(position < table.num_positions(), "position %zu", position);
    const HalfTurn<float> turn{table.cos(position), table.sin(position)};
    rotate(x, table.dim() / 2, turn, turn, [&](size_t i, float value) { out[i] = value; });
}

void rope_half(const Bf16* x, const RopeTable& table, size_t position, Bf16* out) {
    AFD_DASSERT(position < table.num_positions(), "position %zu", position);
    const size_t half = table.dim() / 2;
    const float* cos = table.cos(position);
    const float* sin = table.sin(position);
    for (size_t i = 0; i < half; ++i) {
        const float first = to_float(x[i]);
        const float second = to_float(x[i + half]);
        out[i] = from_float(first * cos[i] - second * sin[i]);
        out[i + half] = from_float(second * cos[i] + first * sin[i]);
    }
}

void rope(const Bf16* x, const Bf16* cos, const Bf16* sin, size_t dim, float* out) {
    rotate_full_width(x, cos, sin, dim, out);
}

void rope(const float* x, const Bf16* cos, const Bf16* sin, size_t dim, float* out) {
    rotate_full_width(x, cos, sin, dim, out);
}

}  // namespace afd::ops

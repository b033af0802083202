// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/output_gate.h"

#include "ops/tensor/lanes.h"
#include "ops/tensor/math.h"

namespace afd::ops {
namespace {

// Σ value(i) · gate[i].
template <typename Value>
float gated_sum(size_t count, const float* gate, const Value& value) {
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) lanes[j] = lanes[j] + value(i + j) * gate[i + j];
    }
    for (size_t j = 0; i + j < count; ++j) lanes[j] = lanes[j] + value(i + j) * gate[i + j];
    return sum_lanes(lanes);
}

}  // namespace

float output_gate(const Bf16* x, const float* gate, size_t count) {
    return sigmoid(gated_sum(count, gate, [x](size_t i) { return to_float(x[i]); }));
}

float output_gate(
    const int8_t* q, float scale, const float* smooth, const float* gate, size_t count) {
    const float sum = gated_sum(count, gate, [q, smooth](size_t i) {
        const auto value = static_cast<float>(q[i]);
        return smooth == nullptr ? value : value / smooth[i];
    });
    return sigmoid(sum * scale);
}

void multiply_row(float factor, size_t count, Bf16* y) {
    for (size_t i = 0; i < count; ++i) y[i] = from_float(to_float(y[i]) * factor);
}

}  // namespace afd::ops

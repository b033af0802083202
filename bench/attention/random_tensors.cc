// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/tensor/tensor_view.h"

namespace afd::bench {
namespace {

constexpr size_t kDrawnMax = 65521;

}  // namespace

std::vector<ops::Bf16> random_values(size_t count, float scale) {
    static std::mt19937 engine(1);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> drawn(std::min(count, kDrawnMax));
    for (float& value : drawn) value = normal(engine);
    std::vector<ops::Bf16> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = ops::from_float(drawn[i % drawn.size()]);
    return values;
}

ops::PackedLinear random_linear(size_t outputs, size_t depth, ops::NumericClass numeric_class) {
    const auto values = random_values(outputs * depth, 1.0f / std::sqrt(static_cast<float>(depth)));
    return ops::PackedLinear::pack(ops::make_rows(values.data(), outputs, depth), numeric_class);
}

}  // namespace afd::bench

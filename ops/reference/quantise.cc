// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/quantise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/tensor/float_dispatch.h"

namespace afd::ops::reference {

float element(DType dtype, const void* data, size_t index) {
    return with_float_type(dtype, [&](auto zero) {
        return to_float(static_cast<const decltype(zero)*>(data)[index]);
    });
}

float float_at(const ConstTensorView& view, size_t index) {
    if (view.dtype == DType::kInt8) return data_of<int8_t>(view)[index];
    return element(view.dtype, view.data, index);
}

float rounded(float value) {
    return to_float(from_float(value));
}

void set_element(DType dtype, void* data, size_t index, float value) {
    with_float_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        static_cast<T*>(data)[index] = round_to<T>(value);
    });
}

float quantise_row(DType dtype, const void* x, const float* smooth, size_t count, int8_t* q) {
    const auto value = [&](size_t i) {
        const float v = element(dtype, x, i);
        return smooth == nullptr ? v : v * smooth[i];
    };
    bool is_finite = true;
    float largest = 0.0f;
    for (size_t i = 0; i < count; ++i) {
        is_finite = is_finite && std::isfinite(value(i));
        largest = std::max(largest, std::fabs(value(i)));
    }
    const float scale = is_finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 0; i < count; ++i) {
        q[i] = 0;
        if (!is_finite || scale == 0.0f) continue;
        const float rounded = std::nearbyint(value(i) / scale);
        q[i] = static_cast<int8_t>(std::clamp(rounded, -127.0f, 127.0f));
    }
    return scale;
}

void quantise_row_static(
    DType dtype, const void* x, float scale, float offset, size_t count, int8_t* q) {
    for (size_t i = 0; i < count; ++i) {
        const float product = element(dtype, x, i) * scale;
        const float rounded = std::nearbyint(product + offset);
        q[i] = std::isnan(rounded) ? 0 : static_cast<int8_t>(std::clamp(rounded, -128.0f, 127.0f));
    }
}

}  // namespace afd::ops::reference

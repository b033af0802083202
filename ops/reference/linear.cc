// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/linear.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/quantise.h"
#include "proto/check.h"

namespace afd::ops::reference {

Matrix linear_f32(const Matrix& x, Rows<const Bf16> weight) {
    AFD_ASSERT(x.num_cols == weight.num_cols, "depth %zu and %zu", x.num_cols, weight.num_cols);
    Matrix y(x.num_rows, weight.num_rows);
    for (size_t i = 0; i < x.num_rows; ++i) {
        for (size_t n = 0; n < weight.num_rows; ++n) {
            double sum = 0;
            for (size_t k = 0; k < x.num_cols; ++k) {
                sum += x.at(i, k) * static_cast<double>(to_float(weight.row(n)[k]));
            }
            y.at(i, n) = sum;
        }
    }
    return y;
}

namespace {

Matrix int8_exact(const Matrix& x, const Int8Weight& weight) {
    Matrix y(x.num_rows, weight.num_outputs());
    for (size_t i = 0; i < x.num_rows; ++i) {
        for (size_t n = 0; n < y.num_cols; ++n) {
            double sum = 0;
            for (size_t k = 0; k < x.num_cols; ++k) sum += x.at(i, k) * weight.values.row(n)[k];
            y.at(i, n) = sum * static_cast<double>(weight.scale[n]);
        }
    }
    return y;
}

// Of weights whose scales change along the depth; value(n, k): without its scale.
template <typename Weight, typename Value>
Matrix scaled_exact(const Matrix& x, const Weight& weight, const Value& value) {
    Matrix y(x.num_rows, weight.num_outputs());
    for (size_t i = 0; i < x.num_rows; ++i) {
        for (size_t n = 0; n < y.num_cols; ++n) {
            double sum = 0;
            for (size_t k = 0; k < x.num_cols; ++k) {
                sum += x.at(i, k) * value(n, k) * static_cast<double>(weight.scale_at(n, k));
            }
            y.at(i, n) = sum;
        }
    }
    return y;
}

Matrix int4_exact(const Matrix& x, const Int4Weight& weight) {
    return scaled_exact(
        x, weight, [&](size_t n, size_t k) { return weight.value(n, k) - weight.zero_at(n, k); });
}

Matrix fp8_exact(const Matrix& x, const Fp8Weight& weight) {
    return scaled_exact(x, weight, [&](size_t n, size_t k) {
        return static_cast<double>(to_float(weight.values.row(n)[k]));
    });
}

// y [N] of one row.
void int8_row(std::span<const int8_t> x, float x_scale, const Int8Weight& weight, double* y) {
    for (size_t n = 0; n < weight.num_outputs(); ++n) {
        int64_t sum = 0;
        for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * weight.values.row(n)[k];
        const float scaled = static_cast<float>(sum) * x_scale;
        y[n] = static_cast<double>(scaled * weight.scale[n]);
    }
}

// y [N] of one row.
void int4_row(std::span<const int8_t> x, float x_scale, const Int4Weight& weight, double* y) {
    const size_t group = int4_group_size(weight.format);
    for (size_t n = 0; n < weight.num_outputs(); ++n) {
        float sum = 0;
        for (size_t first = 0; first < x.size(); first += group) {
            int64_t products = 0;
            for (size_t k = first; k < std::min(first + group, x.size()); ++k) {
                products += int64_t{x[k]} * (weight.value(n, k) - weight.zero_at(n, k));
            }
            sum = std::fma(weight.scale_at(n, first), static_cast<float>(products), sum);
        }
        y[n] = static_cast<double>(sum * x_scale);
    }
}

// product(q, scale, y [N]) of each row of x, quantised.
template <typename Product>
Matrix quantised_rows(const Matrix& x, size_t num_outputs, const Product& product) {
    Matrix y(x.num_rows, num_outputs);
    const std::vector<Bf16> rows = narrow(x);
    std::vector<int8_t> q(x.num_cols);
    for (size_t i = 0; i < x.num_rows; ++i) {
        const float row_scale =
            quantise_row(DType::kBf16, rows.data() + i * x.num_cols, nullptr, x.num_cols, q.data());
        product(q, row_scale, &y.at(i, 0));
    }
    return y;
}

Matrix int8_served(const Matrix& x, const Int8Weight& weight) {
    return quantised_rows(
        x, weight.num_outputs(), [&](std::span<const int8_t> q, float scale, double* y) {
            int8_row(q, scale, weight, y);
        });
}

Matrix int4_served(const Matrix& x, const Int4Weight& weight) {
    return quantised_rows(
        x, weight.num_outputs(), [&](std::span<const int8_t> q, float scale, double* y) {
            int4_row(q, scale, weight, y);
        });
}

void add_bias_and_round(Matrix& y, std::span<const Bf16> bias, Rounding rounding) {
    for (size_t i = 0; i < y.values.size(); ++i) {
        double& value = y.values[i];
        if (!bias.empty()) value += static_cast<double>(to_float(bias[i % y.num_cols]));
        value = round_point(value, rounding);
    }
}

}  // namespace

Matrix linear(std::span<const int8_t> x,
              float x_scale,
              const Int8Weight& weight,
              std::span<const Bf16> bias) {
    Matrix y(1, weight.num_outputs());
    int8_row(x, x_scale, weight, y.values.data());
    add_bias_and_round(y, bias, Rounding::kBf16);
    return y;
}

Matrix linear(const Matrix& x,
              const LinearWeight& weight,
              Rounding rounding,
              std::span<const Bf16> bias) {
    const bool is_exact = rounding == Rounding::kNone;
    Matrix y =
        weight.is_fp8()    ? fp8_exact(x, weight.fp8)
        : weight.is_int4() ? (is_exact ? int4_exact(x, weight.int4) : int4_served(x, weight.int4))
        : weight.is_int8() ? (is_exact ? int8_exact(x, weight.int8) : int8_served(x, weight.int8))
                           : linear_f32(x, weight.bf16);
    add_bias_and_round(y, bias, rounding);
    return y;
}

}  // namespace afd::ops::reference

// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/combine.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;

// 17 tokens, top-3 of 5 experts and one shared slot, rows of 300 columns.
struct Case {
    static constexpr size_t kTokens = 17;
    static constexpr size_t kTopK = 3;
    static constexpr size_t kSlots = 4;
    static constexpr size_t kHidden = 300;
    RandomMatrix rows{kTokens * kSlots, kHidden, 1};
    std::vector<int32_t> ids;
    std::vector<float> weights;

    Case() {
        for (size_t i = 0; i < kTokens * kTopK; ++i) {
            // -1, 5 and 2147483647 are masked; repeated ids are ordinary.
            const int32_t choices[] = {0, 4, -1, 2, 2, 5, 1, 2147483647, 3};
            ids.push_back(choices[(i * 7) % 9]);
            weights.push_back(0.1f + 0.07f * static_cast<float>(i % 11));
        }
    }

    bool masked(size_t token, size_t k) const {
        return ids[token * kTopK + k] < 0 || ids[token * kTopK + k] >= 5;
    }

    CombineRequest request(Rows<Bf16> out) const {
        CombineRequest r;
        r.num_tokens = kTokens;
        r.top_k = kTopK;
        r.num_shared = 1;
        r.topk_ids = ids.data();
        r.num_experts = 5;
        r.topk_weights = weights.data();
        r.rows = reinterpret_cast<const std::byte*>(rows.values.data());
        r.token_stride_bytes = kSlots * kHidden * sizeof(Bf16);
        r.slot_stride_bytes = kHidden * sizeof(Bf16);
        r.out = out;
        return r;
    }

    Bf16 expected(size_t token, size_t column) const {
        float sum = 0.0f;
        for (size_t k = 0; k < kTopK; ++k) {
            if (masked(token, k)) continue;
            const float value = to_float(rows.rows().row(token * kSlots + k)[column]);
            const float product = value * weights[token * kTopK + k];
            sum = sum + product;
        }
        return from_float(sum + to_float(rows.rows().row(token * kSlots + kTopK)[column]));
    }
};

TEST(Combine, AddsSlotsInOrderThenTheSharedRowAndRoundsOnce) {
    SerialParallel serial;
    const Case c;
    RandomMatrix out(Case::kTokens, Case::kHidden, 2);
    combine(c.request(out.mutable_rows()), serial);
    for (size_t t = 0; t < Case::kTokens; ++t) {
        for (size_t i = 0; i < Case::kHidden; ++i) {
            ASSERT_EQ(out.rows().row(t)[i], c.expected(t, i)) << t << "," << i;
        }
    }
}

TEST(Combine, NeverReadsMaskedSlots) {
    SerialParallel serial;
    Case c;
    RandomMatrix clean(Case::kTokens, Case::kHidden, 3);
    combine(c.request(clean.mutable_rows()), serial);
    for (size_t t = 0; t < Case::kTokens; ++t) {
        for (size_t k = 0; k < Case::kTopK; ++k) {
            if (!c.masked(t, k)) continue;
            c.weights[t * Case::kTopK + k] = std::numeric_limits<float>::quiet_NaN();
            std::fill_n(
                c.rows.mutable_rows().row(t * Case::kSlots + k), Case::kHidden, Bf16{0x7fc0});
        }
    }
    RandomMatrix poisoned(Case::kTokens, Case::kHidden, 4);
    combine(c.request(poisoned.mutable_rows()), serial);
    EXPECT_EQ(clean.values, poisoned.values);
}

TEST(Combine, RowIndexAddressesTheSameRowsInAnyPlace) {
    SerialParallel serial;
    const Case c;
    RandomMatrix direct(Case::kTokens, Case::kHidden, 5);
    combine(c.request(direct.mutable_rows()), serial);
    const size_t num_rows = Case::kTokens * Case::kSlots;
    std::vector<size_t> reversed(num_rows);
    std::vector<int32_t> index(num_rows);
    for (size_t i = 0; i < num_rows; ++i) {
        reversed[i] = num_rows - 1 - i;
        index[i] = static_cast<int32_t>(num_rows - 1 - i);
    }
    const RandomMatrix moved = c.rows.pick(reversed);
    RandomMatrix out(Case::kTokens, Case::kHidden, 6);
    CombineRequest request = c.request(out.mutable_rows());
    request.rows = reinterpret_cast<const std::byte*>(moved.values.data());
    request.row_index = index.data();
    combine(request, serial);
    EXPECT_EQ(out.values, direct.values);
}

TEST(Combine, WithoutAnyRowTheResultIsPositiveZero) {
    SerialParallel serial;
    const int32_t id = -1;
    const float weight = -1.0f;
    RandomMatrix out(1, 8, 7);
    CombineRequest request;
    request.num_tokens = 1;
    request.top_k = 1;
    request.topk_ids = &id;
    request.num_experts = 4;
    request.topk_weights = &weight;
    request.out = out.mutable_rows();
    combine(request, serial);
    EXPECT_EQ(out.values, std::vector<Bf16>(8));
}

TEST(Combine, IsRowInvariant) {
    const Case c;
    test::expect_row_invariant(
        Case::kTokens, [&](std::span<const size_t> rows, Parallel& parallel) {
            std::vector<size_t> slots;
            std::vector<int32_t> ids;
            std::vector<float> weights;
            for (const size_t token : rows) {
                for (size_t s = 0; s < Case::kSlots; ++s) slots.push_back(token * Case::kSlots + s);
                for (size_t k = 0; k < Case::kTopK; ++k) {
                    ids.push_back(c.ids[token * Case::kTopK + k]);
                    weights.push_back(c.weights[token * Case::kTopK + k]);
                }
            }
            const RandomMatrix picked = c.rows.pick(slots);
            RandomMatrix out(rows.size(), Case::kHidden, 8);
            CombineRequest request = c.request(out.mutable_rows());
            request.num_tokens = rows.size();
            request.topk_ids = ids.data();
            request.topk_weights = weights.data();
            request.rows = reinterpret_cast<const std::byte*>(picked.values.data());
            combine(request, parallel);
            return test::bits_of(std::span<const Bf16>(out.values));
        });
}

}  // namespace
}  // namespace afd::ops

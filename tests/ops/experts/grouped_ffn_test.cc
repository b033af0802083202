// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/grouped_ffn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference/expert_ffn.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(GroupedFfn);

constexpr size_t kHidden = 75;

struct ExpertData {
    RandomMatrix gate;
    RandomMatrix up;
    RandomMatrix down;

    ExpertData(size_t intermediate, uint32_t seed)
        : gate(intermediate, kHidden, seed, 0.2f),
          up(intermediate, kHidden, seed + 1, 0.2f),
          down(kHidden, intermediate, seed + 2, 0.2f) {}

    reference::ExpertWeights weights() const { return {gate.rows(), up.rows(), down.rows()}; }
};

// Experts of different widths, one key without an expert.
struct Experts {
    std::vector<ExpertData> data;
    ExpertTable table{4, kHidden};

    explicit Experts(NumericClass numeric_class) {
        const size_t widths[] = {40, 64, 0, 33};
        for (size_t key = 0; key < 4; ++key) {
            data.emplace_back(widths[key] == 0 ? 1 : widths[key],
                              static_cast<uint32_t>(100 * key + 1));
            if (widths[key] == 0) continue;
            const ExpertData& e = data.back();
            table.set(key, pack_expert(e.gate.rows(), e.up.rows(), e.down.rows(), numeric_class));
        }
    }
};

RandomMatrix run(const Experts& experts,
                 const std::vector<ExpertGroup>& groups,
                 const RandomMatrix& x,
                 const int32_t* row_index,
                 Parallel& parallel) {
    RandomMatrix y(x.num_rows, kHidden, 1);
    std::fill(y.values.begin(), y.values.end(), Bf16{0x4321});
    const Workspace workspace(
        grouped_ffn_workspace_bytes(experts.table, x.num_rows, groups.size()));
    const Result<> result = grouped_ffn({.experts = &experts.table,
                                         .groups = groups,
                                         .x = x.rows(),
                                         .y = y.mutable_rows(),
                                         .row_index = row_index},
                                        workspace.bytes(),
                                        parallel);
    EXPECT_TRUE(result.ok());
    return y;
}

// Bound: gate and up round to bf16, so does h, then y. A sum near a rounding boundary may land on
// the other neighbour (2^-8 relative); such a flip in h moves y by at most 2^-8 · Σ|h·w|, and
// Σ|h·w| is below 16 · max|y| for these random rows. Flips are rare, so 4 · 2^-8 · max|y| is ample,
// while a wrong expert or row misses it by two orders of magnitude.
TEST_P(GroupedFfn, MatchesReferencePerExpert) {
    const Experts experts(GetParam());
    const std::vector<ExpertGroup> groups{{0, 5}, {1, 1}, {3, 20}};
    const RandomMatrix x(26, kHidden, 9);
    SerialParallel serial;
    const RandomMatrix y = run(experts, groups, x, nullptr, serial);
    size_t first = 0;
    for (const auto& [key, count] : groups) {
        const auto rows = x.rows().slice(first, static_cast<size_t>(count));
        const reference::Matrix want =
            reference::expert_ffn(reference::widen(rows),
                                  experts.data[static_cast<size_t>(key)].weights(),
                                  reference::Rounding::kBf16);
        for (size_t r = 0; r < want.num_rows; ++r) {
            double largest = 0;
            for (size_t c = 0; c < kHidden; ++c) {
                largest = std::max(largest, std::fabs(want.at(r, c)));
            }
            for (size_t c = 0; c < kHidden; ++c) {
                const double have = static_cast<double>(to_float(y.rows().row(first + r)[c]));
                ASSERT_NEAR(have, want.at(r, c), 4.0 / 256.0 * largest) << key << " " << r;
            }
        }
        first += static_cast<size_t>(count);
    }
}

TEST_P(GroupedFfn, IsRowInvariant) {
    const Experts experts(GetParam());
    const RandomMatrix x(32, kHidden, 10);
    const size_t keys[] = {0, 1, 3};
    test::expect_row_invariant(x.num_rows, [&](std::span<const size_t> rows, Parallel& parallel) {
        std::vector<size_t> sorted;
        std::vector<int32_t> places;
        std::vector<ExpertGroup> groups;
        for (const size_t key : keys) {
            const size_t before = sorted.size();
            for (size_t i = 0; i < rows.size(); ++i) {
                if (keys[rows[i] % 3] != key) continue;
                sorted.push_back(rows[i]);
                places.push_back(static_cast<int32_t>(i));
            }
            const auto count = static_cast<int64_t>(sorted.size() - before);
            if (count > 0) groups.push_back({static_cast<int64_t>(key), count});
        }
        const RandomMatrix y = run(experts, groups, x.pick(sorted), places.data(), parallel);
        return test::bits_of(std::span<const Bf16>(y.values));
    });
}

TEST_P(GroupedFfn, LeavesRowsAfterTheLastGroupAlone) {
    const Experts experts(GetParam());
    SerialParallel serial;
    const RandomMatrix y = run(experts, {{1, 2}}, RandomMatrix(5, kHidden, 11), nullptr, serial);
    for (size_t i = 2 * kHidden; i < y.values.size(); ++i) ASSERT_EQ(y.values[i].bits, 0x4321);
    EXPECT_NE(y.values[0].bits, 0x4321);
}

TEST(GroupedFfnCheck, RefusesGroupsByIndexAndReason) {
    const Experts experts(NumericClass::kPortable);
    const RandomMatrix x(4, kHidden, 12);
    RandomMatrix y(4, kHidden, 13);
    SerialParallel serial;
    const Workspace workspace(grouped_ffn_workspace_bytes(experts.table, 4, 4));
    const auto message = [&](const std::vector<ExpertGroup>& groups) {
        const Result<> result = grouped_ffn(
            {.experts = &experts.table, .groups = groups, .x = x.rows(), .y = y.mutable_rows()},
            workspace.bytes(),
            serial);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(message({{2, 1}}), "groups[0] has key 2, which has no expert here");
    EXPECT_EQ(message({{0, 1}, {4, 1}}), "groups[1] has key 4, which has no expert here");
    EXPECT_EQ(message({{-1, 1}}), "groups[0] has key -1, which has no expert here");
    EXPECT_EQ(message({{1, 1}, {0, 1}}), "groups[1] has key 0 after 1; keys must ascend");
    EXPECT_EQ(message({{0, 3}, {1, 2}}), "groups[1] has count 2; only 1 rows of x are left");
    EXPECT_EQ(message({{0, -1}}), "groups[0] has count -1; only 4 rows of x are left");
    EXPECT_EQ(message({}), "ok");
}

}  // namespace
}  // namespace afd::ops

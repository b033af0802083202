// SPDX-License-Identifier: Apache-2.0
//
// Goal: the bits of a head do not depend on which other heads go over the keys with it, though few
// heads are computed another way than many. Method: attend_positions() of 1 to 16 heads, with and
// without a rotated part, whole and partial blocks, an odd width. Oracle: the same head among
// sixteen.
#include "ops/attention/head_attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/format/numeric_class.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

AFD_FOR_EVERY_CLASS(HeadAttention);

struct HeadCase {
    size_t width;
    size_t rope;
    bool has_values;  // Apart from the keys.
    size_t begin;
    size_t end;
};

struct HeadTensors {
    std::vector<Bf16> queries;  // [cpu::kHeadsMax][width]
    std::vector<Bf16> ropes;    // [cpu::kHeadsMax][rope]
    std::vector<Bf16> keys;     // [end][width]
    std::vector<Bf16> key_ropes;
    std::vector<Bf16> values;
};

constexpr HeadCase kHeadCases[] = {{128, 0, true, 0, 192},
                                   {128, 0, true, 37, 150},
                                   {64, 0, true, 0, 1},
                                   {33, 0, true, 5, 80},
                                   {96, 16, false, 0, 129},
                                   {72, 7, false, 63, 131}};

// Outputs of `num_heads` heads from `first` on, [head][width].
std::vector<Bf16> attend_heads(const HeadCase& c,
                               const cpu::Kernels& kernels,
                               const HeadTensors& tensors,
                               size_t first,
                               size_t num_heads) {
    const Workspace workspace(heads_state_bytes(c.width, c.rope));
    WorkspaceCursor cursor(workspace.bytes());
    cpu::HeadsState state = take_heads_state(c.width, c.rope, cursor);
    state.num_heads = num_heads;
    std::vector<Bf16> out(num_heads * c.width);
    attend_positions(
        {.query = tensors.queries.data() + first * c.width,
         .query_rope = tensors.ropes.data() + first * c.rope},
        c.begin,
        c.end,
        kernels,
        state,
        [&](size_t position, size_t count) {
            return cpu::AttendBlock{
                .ckv = tensors.keys.data() + position * c.width,
                .kr = tensors.key_ropes.data() + position * c.rope,
                .values = c.has_values ? tensors.values.data() + position * c.width : nullptr,
                .num_positions = count,
                .scale = 0.2f,
                .is_cold = position == c.begin};
        },
        out.data());
    return out;
}

TEST_P(HeadAttention, AHeadHasTheSameBitsAmongFewAndMany) {
    const cpu::Kernels& kernels = cpu::kernels(GetParam());
    for (const HeadCase& c : kHeadCases) {
        SCOPED_TRACE(testing::Message() << "width " << c.width << ", rope " << c.rope);
        const HeadTensors tensors = {test::RandomMatrix(cpu::kHeadsMax, c.width, 1).values,
                                     test::RandomMatrix(cpu::kHeadsMax, c.rope, 2).values,
                                     test::RandomMatrix(c.end, c.width, 3).values,
                                     test::RandomMatrix(c.end, c.rope, 4).values,
                                     test::RandomMatrix(c.end, c.width, 5).values};
        const std::vector<Bf16> all = attend_heads(c, kernels, tensors, 0, cpu::kHeadsMax);
        for (size_t num_heads = 1; num_heads < cpu::kHeadsMax; ++num_heads) {
            const size_t first = cpu::kHeadsMax - num_heads;
            const std::vector<Bf16> some = attend_heads(c, kernels, tensors, first, num_heads);
            EXPECT_EQ(
                std::memcmp(some.data(), all.data() + first * c.width, some.size() * sizeof(Bf16)),
                0)
                << num_heads << " heads";
        }
    }
}

TEST(GroupsTogether, LeaveNoThreadWithoutWorkForTheSakeOfSharing) {
    EXPECT_EQ(groups_together(1, 1, 1, 1), 1u);
    EXPECT_EQ(groups_together(8, 8, 1, 1), 8u);
    EXPECT_EQ(groups_together(8, 8, 1, 2), 4u);
    EXPECT_EQ(groups_together(16, 8, 1, 16), 1u);
    EXPECT_EQ(groups_together(3, 3, 1, 2), 2u);
    // Three tasks of eight groups would leave the fourth thread idle.
    EXPECT_EQ(groups_together(8, 8, 3, 4), 2u);
}

}  // namespace
}  // namespace afd::ops

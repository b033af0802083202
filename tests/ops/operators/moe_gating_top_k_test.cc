// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/moe_gating_top_k.h"

#include <gtest/gtest.h>

#include "ops/reference/moe_gating_top_k.h"
#include "ops/reference/quantise.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;

// A request with memory of its own; the tests change what they are about.
struct Case {
    Tensor x, bias, y, expert_idx;
    MoeGatingTopKRequest request;

    Case(DType dtype, size_t num_tokens, size_t num_experts, int64_t k, bool has_bias)
        : x(dtype, {num_tokens, num_experts}),
          bias(DType::kFp32, {num_experts}),
          y(DType::kFp32, {num_tokens, static_cast<size_t>(k)}),
          expert_idx(DType::kInt32, {num_tokens, static_cast<size_t>(k)}) {
        x.fill(static_cast<uint32_t>(num_tokens * 31 + num_experts));
        bias.fill(5, 0.1f);
        request.k = k;
        request.x = x.view;
        if (has_bias) request.bias = bias.view;
        request.y = y.view;
        request.expert_idx = expert_idx.view;
    }

    void run() {
        ASSERT_TRUE(check_moe_gating_top_k(request).ok())
            << check_moe_gating_top_k(request).error().message;
        Workspace workspace(moe_gating_top_k_workspace_bytes(request));
        ASSERT_TRUE(moe_gating_top_k(request, workspace.bytes()).ok());
    }
    std::string message() {
        const auto refused = check_moe_gating_top_k(request);
        return refused.ok() ? "accepted" : refused.error().message;
    }
};

// Goal: every dtype, norm, group mode and shape gives what the plain loops give. Oracle: equal
// experts; weights within some fp32 roundings, since the reference takes exp in double.
// Covers: moe_gating_top_k x=fp32,bf16,fp16 bias=given,none norm_type=0,1,2
// Covers: moe_gating_top_k group_select_mode=-1,0,1 norm_topk_prob=false,true
// Covers: moe_gating_top_k k=1,4 n_group=1,4 topk_group=1,2 routed_scaling_factor=2.5
TEST(MoeGatingTopK, MatchesTheReference) {
    for (const DType dtype : {DType::kFp32, DType::kBf16, DType::kFp16}) {
        for (const size_t num_tokens : {0, 1, 7}) {
            for (int variant = 0; variant < 72; ++variant) {
                const bool is_grouped = variant % 2 == 1;
                Case fast(
                    dtype, num_tokens, 16, variant / 2 % 2 == 0 ? 1 : 4, variant / 4 % 2 == 1);
                fast.request.norm_type = variant / 8 % 3;
                fast.request.norm_topk_prob = variant / 8 % 3 != 0;
                fast.request.group_select_mode = variant / 24 - 1;
                fast.request.n_group = is_grouped ? 4 : 1;
                fast.request.topk_group = is_grouped ? 2 : 1;
                fast.request.routed_scaling_factor = 2.5f;
                Case plain = fast;
                plain.request.y = plain.y.view;
                plain.request.expert_idx = plain.expert_idx.view;
                fast.run();
                ASSERT_TRUE(reference::moe_gating_top_k(plain.request).ok());
                EXPECT_EQ(fast.expert_idx.values<int32_t>(), plain.expert_idx.values<int32_t>());
                const auto weights = fast.y.values<float>();
                const auto expected = plain.y.values<float>();
                for (size_t i = 0; i < weights.size(); ++i) {
                    EXPECT_NEAR(weights[i], expected[i], 4e-6f * std::abs(expected[i]));
                }
            }
        }
    }
}

// Covers: moe_gating_top_k case=a_narrower_dtype_is_widened_exactly
TEST(MoeGatingTopK, WidensHalvesExactly) {
    for (const DType dtype : {DType::kBf16, DType::kFp16}) {
        Case narrow(dtype, 5, 8, 2, false);
        Case wide(DType::kFp32, 5, 8, 2, false);
        for (size_t i = 0; i < 40; ++i) {
            wide.x.as<float>()[i] = reference::element(dtype, narrow.x.bytes.data(), i);
        }
        narrow.run();
        wide.run();
        EXPECT_EQ(narrow.y.values<float>(), wide.y.values<float>());
        EXPECT_EQ(narrow.expert_idx.values<int32_t>(), wide.expert_idx.values<int32_t>());
    }
}

TEST(MoeGatingTopK, RefusesWhatTheRecordDoesNotAllow) {
    Case c(DType::kFp32, 3, 16, 4, true);
    const MoeGatingTopKRequest good = c.request;
    EXPECT_EQ(c.message(), "accepted");
    c.request.k = 0;
    EXPECT_EQ(c.message(), "moe_gating_top_k: k is 0; allowed are 1 to 2147483647");
    c.request = good;
    c.request.norm_type = 3;
    EXPECT_EQ(c.message(), "moe_gating_top_k: norm_type is 3; allowed are 0, 1, 2");
    c.request = good;
    c.request.group_select_mode = 2;
    EXPECT_EQ(c.message(), "moe_gating_top_k: group_select_mode is 2; allowed are -1, 0, 1");
    c.request = good;
    c.request.x.dtype = DType::kInt8;
    EXPECT_EQ(c.message(), "moe_gating_top_k: x has dtype int8; allowed are bf16, fp16, fp32");
    c.request = good;
    c.request.bias.shape[0] = 15;
    EXPECT_EQ(c.message(), "moe_gating_top_k: bias has shape [15]; it must be [E] with E = 16 (x)");
    c.request = good;
    c.request.n_group = 3;
    EXPECT_EQ(c.message(),
              "moe_gating_top_k: num_experts is 16; it must be a positive multiple of n_group, "
              "which is 3");
    c.request = good;
    c.request.n_group = 4;
    c.request.topk_group = 5;
    EXPECT_EQ(c.message(), "moe_gating_top_k: topk_group is 5; allowed are 1 ... n_group, 4");
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/moe_finalize_routing.h"

#include <gtest/gtest.h>

#include "ops/operators/moe_init_routing.h"
#include "ops/reference/moe_finalize_routing.h"
#include "ops/reference/moe_init_routing.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;

Result<> run_fast(const MoeFinalizeRoutingRequest& request, unsigned num_threads = 1) {
    threads::ThreadPool parallel(num_threads);
    return moe_finalize_routing(request, {}, parallel);
}

// Covers: moe_finalize_routing drop_pad_mode=2 expanded_row_idx=row,-1
TEST(MoeFinalizeRouting, AddsWhatIsGivenInTheWrittenOrder) {
    Tensor rows(DType::kFp32, {3, 1});
    rows.set({1.0f, 2.0f, 4.0f});
    Tensor index(DType::kInt32, {4});
    index.set({2, 0, -1, 1});
    Tensor x1(DType::kFp32, {2, 1});
    x1.set({100.0f, 200.0f});
    Tensor x2(DType::kFp32, {2, 1});
    x2.set({1000.0f, 2000.0f});
    Tensor bias(DType::kFp32, {2, 1});
    bias.set({0.5f, 0.25f});
    Tensor scales(DType::kFp32, {2, 2});
    scales.set({2.0f, 3.0f, 5.0f, 7.0f});
    Tensor experts(DType::kInt32, {2, 2});
    experts.set({1, 0, 77, 1});  // Of a slot with -1 the expert is not read.
    MoeFinalizeRoutingRequest request{.expanded_x = rows.view, .expanded_row_idx = index.view};
    const auto expect = [&](float first, float second) {
        for (const bool is_reference : {false, true}) {
            Tensor out(DType::kFp32, {2, 1});
            request.out = out.view;
            const Result<> result =
                is_reference ? reference::moe_finalize_routing(request) : run_fast(request);
            ASSERT_TRUE(result.ok()) << result.error().message;
            EXPECT_EQ(out.values<float>(), (std::vector<float>{first, second}));
        }
    };
    expect(5, 2);
    request.scales = scales.view;
    expect(11, 14);
    request.bias = bias.view;
    request.expert_idx = experts.view;
    expect(2 * 4.25f + 3 * 1.5f, 7 * 2.25f);
    request.x1 = x1.view;
    request.x2 = x2.view;
    expect(1113, 2215.75f);
    request.x1 = {};
    expect(1013, 2015.75f);
}

// Goal: the reference's bits for every dtype and every subset of the optional inputs. Method:
// sizes 0, 1, primes and beyond one block of columns, 1 and 3 threads. Oracle: the reference.
// Covers: moe_finalize_routing expanded_x=bf16,fp16,fp32 x1=given,none x2=given,none
// Covers: moe_finalize_routing expert_idx=given,none
// Covers: moe_finalize_routing bias=given,none scales=fp32,bf16,fp16,none drop_pad_mode=2,3
TEST(MoeFinalizeRouting, EverySubsetOfInputsMatchesTheReference) {
    struct Size {
        size_t num_tokens, top_k, hidden;
    };
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
        for (const Size& s : {Size{0, 3, 4}, {1, 1, 1}, {13, 5, 37}, {67, 2, 601}}) {
            const size_t num_rows = 7 * s.top_k;
            Tensor rows(dtype, {num_rows, s.hidden});
            rows.fill(1);
            Tensor index(DType::kInt32, {s.num_tokens * s.top_k});
            index.fill_ids(2, -1, static_cast<int32_t>(num_rows) - 1);
            Tensor x1(dtype, {s.num_tokens, s.hidden});
            x1.fill(3);
            Tensor x2(dtype, {s.num_tokens, s.hidden});
            x2.fill(4);
            Tensor bias(dtype, {7, s.hidden});
            bias.fill(5);
            Tensor experts(DType::kInt32, {s.num_tokens, s.top_k});
            experts.fill_ids(6, 0, 6);
            for (unsigned given = 0; given < 16; ++given) {
                const DType scale_types[] = {DType::kFp32, DType::kBf16, DType::kFp16};
                Tensor scales(scale_types[given % 3], {s.num_tokens, s.top_k});
                scales.fill(7);
                MoeFinalizeRoutingRequest request{.expanded_x = rows.view,
                                                  .expanded_row_idx = index.view};
                if ((given & 1) != 0) request.x1 = x1.view;
                if ((given & 2) != 0) request.x2 = x2.view;
                if ((given & 4) != 0) request.bias = bias.view;
                if ((given & 4) != 0) request.expert_idx = experts.view;
                if ((given & 8) != 0) request.scales = scales.view;
                if (given % 2 == 1) {
                    request.drop_pad_mode = 3;
                    request.expanded_x =
                        make_tensor<const void>(rows.view.data, dtype, {7, s.top_k, s.hidden});
                }
                Tensor want(dtype, {s.num_tokens, s.hidden});
                request.out = want.view;
                const Result<> plain = reference::moe_finalize_routing(request);
                ASSERT_TRUE(plain.ok()) << plain.error().message;
                for (const unsigned num_threads : {1u, 3u}) {
                    Tensor out(dtype, {s.num_tokens, s.hidden});
                    request.out = out.view;
                    ASSERT_TRUE(run_fast(request, num_threads).ok());
                    EXPECT_EQ(out.bytes, want.bytes) << given << " " << name_of(dtype);
                }
            }
        }
    }
}

// Goal: rows come back to the token that they left. Method: MoeInitRoutingV3, identity experts,
// weights 1/K with K a power of two, so that every sum is exact. Oracle: x itself.
TEST(MoeFinalizeRouting, UndoesMoeInitRoutingWithWeightsThatSumToOne) {
    constexpr size_t kTokens = 53;
    constexpr size_t kHidden = 29;
    for (const size_t top_k : {1, 2, 8}) {
        for (const bool is_drop_pad : {false, true}) {
            Tensor x(DType::kBf16, {kTokens, kHidden});
            x.fill(8);
            Tensor ids(DType::kInt32, {kTokens, top_k});
            ids.fill_ids(9, 0, 10);
            MoeInitRoutingV3Request init;
            init.expert_num = 11;
            init.drop_pad_mode = is_drop_pad ? 1 : 0;
            init.expert_capacity = kTokens * 8;
            init.x = x.view;
            init.expert_idx = ids.view;
            const MoeInitRoutingV3Request shapes = with_output_shapes(init).value();
            Tensor expanded(shapes.expanded_x);
            Tensor row_idx(shapes.expanded_row_idx);
            init.expanded_x = expanded.view;
            init.expanded_row_idx = row_idx.view;
            ASSERT_TRUE(reference::moe_init_routing_v3(init).ok());
            Tensor scales(DType::kFp32, {kTokens, top_k});
            std::fill_n(scales.as<float>(), kTokens * top_k, 1.0f / static_cast<float>(top_k));
            Tensor out(DType::kBf16, {kTokens, kHidden});
            const Result<> result = run_fast({.drop_pad_mode = is_drop_pad ? 3 : 2,
                                              .expanded_x = expanded.view,
                                              .expanded_row_idx = row_idx.view,
                                              .scales = scales.view,
                                              .out = out.view});
            ASSERT_TRUE(result.ok()) << result.error().message;
            EXPECT_EQ(out.bytes, x.bytes);
        }
    }
}

TEST(MoeFinalizeRouting, RefusesWhatDoesNotFitWithAMessage) {
    Tensor rows(DType::kBf16, {6, 5});
    Tensor index(DType::kInt32, {6});
    index.fill_ids(1, -1, 5);
    Tensor bias(DType::kBf16, {4, 5});
    Tensor experts(DType::kInt32, {3, 2});
    experts.fill_ids(2, 0, 3);
    Tensor scales(DType::kFp32, {3, 2});
    Tensor out(DType::kBf16, {3, 5});
    const auto before = out.bytes;
    const MoeFinalizeRoutingRequest valid{.expanded_x = rows.view,
                                          .expanded_row_idx = index.view,
                                          .bias = bias.view,
                                          .scales = scales.view,
                                          .expert_idx = experts.view,
                                          .out = out.view};
    ASSERT_TRUE(check_moe_finalize_routing(valid).ok());
    const auto message = [&](auto&& change) {
        MoeFinalizeRoutingRequest request = valid;
        change(request);
        const Result<> fast = run_fast(request);
        EXPECT_FALSE(reference::moe_finalize_routing(request).ok());
        EXPECT_EQ(out.bytes, before);
        return fast.ok() ? "accepted" : fast.error().message;
    };
    using Request = MoeFinalizeRoutingRequest;
    EXPECT_EQ(message([](Request& r) { r.drop_pad_mode = 0; }),
              "moe_finalize_routing: drop_pad_mode is 0; allowed are 2, 3");
    EXPECT_EQ(message([](Request& r) { r.drop_pad_mode = 3; }),
              "moe_finalize_routing: expanded_x must be [E, C, H] with drop_pad_mode 3");
    EXPECT_EQ(message([](Request& r) { r.expert_idx = {}; }),
              "moe_finalize_routing: bias is given; expert_idx [N, K] is needed");
    Tensor fp32(DType::kFp32, {3, 5});
    EXPECT_EQ(message([&](Request& r) { r.x2 = fp32.view; }),
              "moe_finalize_routing: x2 has dtype fp32; it must be that of expanded_x, bf16");
    EXPECT_EQ(message([&](Request& r) { r.out = fp32.view; }),
              "moe_finalize_routing: out has dtype fp32; it must be that of expanded_x, bf16");
    Tensor short_index(DType::kInt32, {5});
    EXPECT_EQ(message([&](Request& r) { r.expanded_row_idx = short_index.view; }),
              "moe_finalize_routing: expanded_row_idx has shape [5]; it must be [N*K] with N = 3 "
              "(scales), K = 2 (scales)");
    EXPECT_EQ(message([&](Request& r) {
                  r.expanded_row_idx = short_index.view;
                  r.scales = r.expert_idx = r.bias = {};
              }),
              "moe_finalize_routing: expanded_row_idx has shape [5]; it must be [N*K] with N = 3 "
              "(out), K = 1");
    index.as<int32_t>()[4] = 6;
    EXPECT_EQ(message([](Request&) {}),
              "moe_finalize_routing: expanded_row_idx[4] is 6; allowed are -1 to 5");
    index.as<int32_t>()[4] = -2;
    EXPECT_EQ(message([](Request&) {}),
              "moe_finalize_routing: expanded_row_idx[4] is -2; allowed are -1 to 5");
    index.as<int32_t>()[4] = 0;
    experts.as<int32_t>()[4] = 4;
    EXPECT_EQ(message([](Request&) {}),
              "moe_finalize_routing: expert_idx[4] is 4; allowed are 0 to 3");
}

}  // namespace
}  // namespace afd::ops

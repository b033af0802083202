// SPDX-License-Identifier: Apache-2.0
//
// moe_init_routing_v3 against small results by hand and against the reference.

#include <gtest/gtest.h>

#include "tests/ops/operators/moe_init_routing_case.h"

namespace afd::ops {
namespace {

using Case = test::InitRoutingCase;
using Function = test::InitRouting;
using Outputs = test::InitRoutingOutputs;
using test::run;
using test::run_fast;
using test::run_reference;

void expect_same(Case& c, const std::string& what) {
    const Outputs want = run(c, run_reference);
    for (const unsigned num_threads : {1u, 3u}) {
        const Outputs got = run(c, run_fast, num_threads);
        EXPECT_EQ(got.expanded_x.bytes, want.expanded_x.bytes) << what;
        EXPECT_EQ(got.expanded_row_idx.bytes, want.expanded_row_idx.bytes) << what;
        EXPECT_EQ(got.counts.bytes, want.counts.bytes) << what;
        EXPECT_EQ(got.expanded_scale.bytes, want.expanded_scale.bytes) << what;
    }
}

std::string describe(const MoeInitRoutingV3Request& r) {
    return std::string(name_of(r.x.dtype)) + " N=" + std::to_string(r.x.shape[0]) +
           " K=" + std::to_string(r.expert_idx.shape[1]) + " E=" + std::to_string(r.expert_num) +
           " active_num=" + std::to_string(r.active_num) +
           " capacity=" + std::to_string(r.expert_capacity) +
           " type=" + std::to_string(r.expert_tokens_num_type) +
           " quant=" + std::to_string(r.quant_mode) + " idx=" + std::to_string(r.row_idx_type);
}

// Three tokens, two picks, by hand: the whole meaning of the indices in one example.
// Covers: moe_init_routing_v3 row_idx_type=0,1 quant_mode=-1 drop_pad_mode=0
TEST(MoeInitRoutingV3, SortsSlotsByExpertAndReportsThemBothWays) {
    Case c(DType::kFp32, 3, 2, 1, 4);
    const int32_t ids[] = {3, 1, 1, 0, 3, 3};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    const float rows[] = {10, 20, 30};
    std::copy_n(rows, 3, c.x.as<float>());
    c.request.expert_tokens_num_type = 1;
    for (const Function function : {run_fast, run_reference}) {
        c.request.row_idx_type = 0;
        Outputs gather = run(c, function);
        EXPECT_EQ(gather.expanded_x.values<float>(), (std::vector<float>{20, 10, 20, 10, 30, 30}));
        EXPECT_EQ(gather.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{3, 1, 2, 0, 4, 5}));
        EXPECT_EQ(gather.counts.values<int64_t>(), (std::vector<int64_t>{1, 2, 0, 3}));
        c.request.row_idx_type = 1;
        Outputs scatter = run(c, function);
        EXPECT_EQ(scatter.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{3, 1, 2, 0, 4, 5}));
    }
}

// Covers: moe_init_routing_v3 expert_tokens_num_type=0,1,2 expert_tokens_num_flag=false,true
TEST(MoeInitRoutingV3, CountsAsPrefixSumsAsCountsOrAsPairs) {
    Case c(DType::kFp32, 3, 2, 1, 6);
    const int32_t ids[] = {4, 1, 1, 5, 4, 4};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    c.with_range(1, 5);
    const std::vector<int64_t> want[] = {
        {2, 2, 2, 5}, {2, 0, 0, 3}, {1, 2, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0}};
    for (const Function function : {run_fast, run_reference}) {
        for (const int64_t type : {0, 1, 2}) {
            c.request.expert_tokens_num_flag = true;
            c.request.expert_tokens_num_type = type;
            EXPECT_EQ(run(c, function).counts.values<int64_t>(), want[type]) << type;
        }
        c.request.expert_tokens_num_flag = false;
        EXPECT_EQ(run(c, function).counts.view.rank, 0U);
    }
}

// Covers: moe_init_routing_v3 active_expert_range=subset,empty expert_idx=negative
TEST(MoeInitRoutingV3, ExpertsOutsideTheRangeHaveNoRowAndTheTailIsUntouched) {
    Case c(DType::kInt8, 2, 3, 4, 8);
    const int32_t ids[] = {7, 2, -1, 3, 0, 2};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    c.with_range(2, 4);
    for (const Function function : {run_fast, run_reference}) {
        c.request.row_idx_type = 0;
        Outputs gather = run(c, function);
        EXPECT_EQ(gather.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{-1, 0, -1, 2, -1, 1}));
        EXPECT_EQ(gather.expanded_x.as<uint8_t>()[12], 0xa5);
        c.request.row_idx_type = 1;
        Outputs scatter = run(c, function);
        const std::vector<int32_t> row_idx = scatter.expanded_row_idx.values<int32_t>();
        EXPECT_EQ(std::vector<int32_t>(row_idx.begin(), row_idx.begin() + 3),
                  (std::vector<int32_t>{1, 5, 3}));
        EXPECT_EQ(row_idx[3], static_cast<int32_t>(0xa5a5a5a5));
    }
    c.with_range(5, 5);
    expect_same(c, "empty range");
}

// Covers: moe_init_routing_v3 drop_pad_mode=1 expert_capacity=2
TEST(MoeInitRoutingV3, DropPadKeepsTheFirstRowsOfAnExpertAndPadsWithZeros) {
    Case c(DType::kFp32, 4, 2, 1, 3);
    const int32_t ids[] = {2, 0, 0, 0, 2, -1, 0, 2};
    std::copy_n(ids, 8, c.expert_idx.as<int32_t>());
    const float rows[] = {10, 20, 30, 40};
    std::copy_n(rows, 4, c.x.as<float>());
    c.with_scale({4});
    c.request.drop_pad_mode = 1;
    c.request.expert_capacity = 2;
    c.request.active_num = 1;  // Ignored.
    c.request.expert_tokens_num_type = 1;
    for (const Function function : {run_fast, run_reference}) {
        Outputs out = run(c, function);
        EXPECT_EQ(out.expanded_x.values<float>(), (std::vector<float>{10, 20, 0, 0, 10, 30}));
        EXPECT_EQ(out.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{4, 0, 1, -1, 5, -1, -1, -1}));
        EXPECT_EQ(out.counts.values<int64_t>(), (std::vector<int64_t>{4, 0, 3}));
        const float* scale = c.scale.as<float>();
        EXPECT_EQ(out.expanded_scale.values<float>(),
                  (std::vector<float>{scale[0], scale[1], 0, 0, scale[0], scale[2]}));
    }
}

// Goal: every legal combination of modes gives the reference's bytes, padding and untouched tails
// included. Method: sizes 0, 1, primes, K = E, more experts than slots; 1 and 3 threads.
// Oracle: the reference, which sorts with the standard library and writes row by row.
// Covers: moe_init_routing_v3 x=fp32,fp16,bf16,int8 quant_mode=-1,0,1 drop_pad_mode=0,1
// Covers: moe_init_routing_v3 expert_num=1,4,11,64
// Covers: moe_init_routing_v3 expert_tokens_num_type=0,1,2 row_idx_type=0,1
// Covers: moe_init_routing_v3 active_num=-1,0,positive active_expert_range=all,subset
// Covers: moe_init_routing_v3 scale=none,rows,smooth,smooth_shared offset=given,none
TEST(MoeInitRoutingV3, EveryCombinationOfModesMatchesTheReference) {
    struct Size {
        size_t num_tokens, top_k, hidden;
        int64_t num_experts;
    };
    const Size sizes[] = {
        {0, 3, 5, 4}, {1, 1, 1, 1}, {7, 4, 33, 4}, {13, 3, 17, 11}, {5, 2, 8, 64}};
    for (const DType dtype : {DType::kFp32, DType::kFp16, DType::kBf16, DType::kInt8}) {
        for (const Size& size : sizes) {
            for (const int64_t quant_mode : {-1, 0, 1}) {
                if (quant_mode != -1 && dtype == DType::kInt8) continue;
                for (const bool is_subset : {false, true}) {
                    for (const int variant : {0, 1, 2}) {
                        Case c(dtype, size.num_tokens, size.top_k, size.hidden, size.num_experts);
                        c.request.quant_mode = quant_mode;
                        c.request.expert_tokens_num_type = variant;
                        const int64_t start = is_subset ? size.num_experts / 3 : 0;
                        const int64_t end = is_subset ? size.num_experts - 1 : size.num_experts;
                        if (is_subset) c.with_range(start, std::max(start, end));
                        const auto num_active = static_cast<size_t>(std::max(start, end) - start);
                        if (quant_mode == 0) c.with_scale({1}).with_offset();
                        if (quant_mode == -1 && variant == 1) c.with_scale({size.num_tokens});
                        if (quant_mode == 1 && variant == 1) {
                            c.with_scale({num_active, size.hidden});
                        }
                        if (quant_mode == 1 && variant == 2) c.with_scale({1, size.hidden});
                        for (const int64_t row_idx_type : {0, 1}) {
                            c.request.row_idx_type = row_idx_type;
                            for (const int64_t active_num : {-1, 0, 1, 11}) {
                                c.request.active_num = active_num;
                                expect_same(c, describe(c.inputs()));
                            }
                        }
                        c.request.row_idx_type = 0;
                        c.request.drop_pad_mode = 1;
                        for (const int64_t capacity : {1, 3}) {
                            c.request.expert_capacity = capacity;
                            if (!is_subset) expect_same(c, describe(c.inputs()));
                        }
                    }
                }
            }
        }
    }
}

TEST(MoeInitRoutingV3, OneExpertMayTakeAllAndAllMayBeMasked) {
    for (const int32_t id : {6, -1}) {
        Case c(DType::kBf16, 11, 4, 19, 7);
        std::fill_n(c.expert_idx.as<int32_t>(), 44, id);
        c.request.quant_mode = 1;
        for (const int64_t type : {0, 1, 2}) {
            c.request.expert_tokens_num_type = type;
            expect_same(c, std::to_string(id));
        }
    }
}

// Enough slots and bytes that sort and copy are both cut into tasks.
TEST(MoeInitRoutingV3, ManySlotsAreSortedAndCopiedByManyThreads) {
    Case c(DType::kBf16, 20011, 8, 40, 37);
    c.with_range(3, 30);
    for (const int64_t row_idx_type : {0, 1}) {
        c.request.row_idx_type = row_idx_type;
        expect_same(c, "many");
    }
}

// The seed's two performance templates, as they are.
// Covers: moe_init_routing_v3 template=low_latency,large_batch
// Example: moe_init_routing_v3: the low-latency and the large-batch template
TEST(MoeInitRoutingV3, TheSeedsTemplateShapesWork) {
    Case low_latency(DType::kBf16, 1, 8, 7168, 256);
    low_latency.with_scale({256, 7168}).with_range(0, 256);
    low_latency.request.quant_mode = 1;
    low_latency.request.expert_tokens_num_type = 2;
    low_latency.request.row_idx_type = 1;
    expect_same(low_latency, "low latency");
    for (const size_t num_tokens : {384, 8192}) {
        Case large_batch(DType::kBf16, num_tokens, 8, 512, 256);
        large_batch.with_range(224, 256);
        large_batch.request.row_idx_type = 1;
        large_batch.request.expert_tokens_num_type = 1;
        expect_same(large_batch, "large batch");
    }
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

// The two-phase dispatch: layout, offsets and payload against the single pass.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "ops/operators/moe_init_routing.h"
#include "tests/ops/two_phase/two_phase_case.h"

namespace afd::ops {
namespace {

using test::Cluster;
using test::describe;
using test::expect_ok;
using test::expect_single_pass_order;
using test::kPaths;
using test::kReference;
using test::kSizes;
using test::Path;
using test::Sender;
using test::Size;
using test::Tensor;

// Three tokens by hand: two ranks, experts 0 and 2 on rank 0, 1 and the shared 3 on rank 1.
// Covers: two_phase_layout shared_expert_num=1 active_mask=given case=ids_out_of_range
TEST(TwoPhaseLayout, SortsEachBlockAndCountsAllOfThem) {
    Tensor table(DType::kInt32, {1, 4, 1, 2});
    table.set<int32_t>({0, 0, 1, 0, 0, 1, 1, 1});
    Tensor ids(DType::kInt32, {4, 2});
    ids.set<int32_t>({2, 1, 0, 9, 1, 1, -1, 0});
    Tensor mask(DType::kBool, {4});
    mask.set<bool>({true, true, false, true});
    Tensor sorted(DType::kInt32, {12});
    Tensor counts(DType::kInt32, {2, 2});
    Tensor offsets(DType::kInt64, {2, 2});
    TwoPhaseLayoutRequest r;
    r.num_ranks = 2;
    r.num_local_experts = 2;
    r.shared_expert_num = 1;
    r.expert_ids = ids.view;
    r.expert_rank_table = table.view;
    r.active_mask = mask.view;
    r.sorted_indices = sorted.view;
    r.send_counts = counts.view;
    r.send_offsets = offsets.view;
    for (const Path path : kPaths) {
        r.block_size = 2;
        expect_ok(r, path);
        EXPECT_EQ(sorted.values<int32_t>(),
                  (std::vector<int32_t>{3, 0, 1, 2, 5, -1, 10, 11, -1, -1, -1, -1}));
        EXPECT_EQ(counts.values<int32_t>(), (std::vector<int32_t>{2, 1, 1, 3}));
        EXPECT_EQ(offsets.values<int64_t>(), (std::vector<int64_t>{0, 2, 3, 4}));
        r.block_size = 4;
        expect_ok(r, path);
        EXPECT_EQ(sorted.values<int32_t>(),
                  (std::vector<int32_t>{3, 10, 0, 1, 2, 5, 11, -1, -1, -1, -1, -1}));
        EXPECT_EQ(counts.values<int32_t>(), (std::vector<int32_t>{2, 1, 1, 3}));
    }
}

// By hand: two routed experts and a shared one, 2, which the first token picks, too; 3 is none.
// Covers: two_phase_layout case=picks_of_shared_experts
TEST(TwoPhaseLayout, SendsAPickOfASharedExpertLikeAnyOther) {
    Tensor table(DType::kInt32, {1, 3, 1, 2});
    table.set<int32_t>({0, 0, 1, 0, 0, 1});
    Tensor ids(DType::kInt32, {2, 2});
    ids.set<int32_t>({2, 1, 3, 0});
    Tensor sorted(DType::kInt32, {6});
    Tensor counts(DType::kInt32, {2, 2});
    TwoPhaseLayoutRequest r;
    r.num_ranks = 2;
    r.num_local_experts = 2;
    r.shared_expert_num = 1;
    r.expert_ids = ids.view;
    r.expert_rank_table = table.view;
    r.sorted_indices = sorted.view;
    r.send_counts = counts.view;
    for (const Path path : kPaths) {
        expect_ok(r, path);
        EXPECT_EQ(sorted.values<int32_t>(), (std::vector<int32_t>{4, 0, 2, 5, 1, -1}));
        EXPECT_EQ(counts.values<int32_t>(), (std::vector<int32_t>{1, 3, 1, 0}));
    }
}

// By hand: two senders, two ranks with two local experts.
// Covers: two_phase_offsets one_buffer=false,true
TEST(TwoPhaseOffsets, GrantsByLocalExpertThenSender) {
    Tensor counts(DType::kInt32, {2, 2, 2});
    counts.set<int32_t>({1, 2, 3, 0, 4, 0, 5, 6});
    Tensor base(DType::kInt64, {2, 2, 2});
    Tensor recv_counts(DType::kInt64, {2, 2});
    Tensor recv_total(DType::kInt64, {2});
    Tensor group_list(DType::kInt64, {2, 2});
    TwoPhaseOffsetsRequest r{
        false, counts.view, base.view, recv_counts.view, recv_total.view, group_list.view};
    for (const Path path : kPaths) {
        r.one_buffer = false;
        expect_ok(r, path);
        EXPECT_EQ(base.values<int64_t>(), (std::vector<int64_t>{0, 5, 0, 8, 1, 7, 3, 8}));
        EXPECT_EQ(recv_counts.values<int64_t>(), (std::vector<int64_t>{3, 4, 3, 11}));
        EXPECT_EQ(recv_total.values<int64_t>(), (std::vector<int64_t>{7, 14}));
        EXPECT_EQ(group_list.values<int64_t>(), (std::vector<int64_t>{5, 2, 8, 6}));
        r.one_buffer = true;
        expect_ok(r, path);
        EXPECT_EQ(base.values<int64_t>(), (std::vector<int64_t>{0, 5, 7, 15, 1, 7, 10, 15}));
    }
}

// Goal: whatever the blocks, the receivers hold what one pass over all tokens of all senders would
// have written. Method: sizes 0, 1, primes, dense layers, more ranks than experts, masks, block
// sizes 1, prime, all. Oracle: one sorted list of (rank, local expert, sender, slot).
// Covers: two_phase_payload quant_mode=-1,1 scales=none,given x=bf16,fp16,fp32 block_size=1,7,8192
// Covers: two_phase_payload recv_x=bf16,fp16,fp32,int8 num_ranks=1,2,3,5,31 num_local_experts=any
// Covers: two_phase_payload shared_expert_num=0,1,2 session_id=0,1,2 layer_id=1
// Covers: two_phase_payload case=all_masked case=no_tokens case=no_routed_experts
// Covers: two_phase_layout block_size=1,7,8192 active_mask=none,given session_id=0,1,2 layer_id=1
// Covers: two_phase_layout num_ranks=1,2,3,5,31 num_local_experts=any shared_expert_num=0,1,2
// Covers: two_phase_layout case=all_masked case=no_tokens case=no_routed_experts
// Example: two_phase_dispatch: layout, counts to the host, exact allocation, data dispatch
TEST(TwoPhaseDispatch, ReceiversHoldTheRowsInTheOrderOfASinglePass) {
    for (const Size& size : kSizes) {
        for (const int variant : {0, 1, 2, 3}) {
            const DType dtypes[] = {DType::kBf16, DType::kFp16, DType::kFp32, DType::kBf16};
            Cluster c(size, dtypes[variant]);
            if (variant % 2 == 1) c.mask_every(3);
            if (variant == 3) c.mask_every(1);
            if (variant >= 1) c.quantise(variant == 2);
            for (const int64_t block_size : {1, 7, 8192}) {
                c.block_size = block_size;
                for (const Path path : kPaths) {
                    c.dispatch(path);
                    SCOPED_TRACE(describe(c, path));
                    ASSERT_NO_FATAL_FAILURE(expect_single_pass_order(c));
                }
            }
        }
    }
}

// Oracle: MoeInitRoutingV3, the single-pass operator, on one rank that holds all experts.
// Covers: two_phase_payload case=same_as_moe_init_routing
TEST(TwoPhaseDispatch, OneRankIsMoeInitRouting) {
    const Size size{.num_tokens = 211, .top_k = 3, .num_routed = 11, .hidden = 24};
    Cluster c(size);
    c.senders[0].ids.fill_ids(5, -1, 10);
    c.block_size = 13;
    c.dispatch({false, 3});
    MoeInitRoutingV3Request request;
    request.expert_num = 11;
    request.expert_tokens_num_flag = true;
    request.expert_tokens_num_type = 1;
    request.x = c.senders[0].x.view;
    request.expert_idx = c.senders[0].ids.view;
    const MoeInitRoutingV3Request shapes = with_output_shapes(request).value();
    Tensor expanded_x(shapes.expanded_x);
    Tensor row_idx(shapes.expanded_row_idx);
    Tensor counts(shapes.expert_tokens_count_or_cumsum);
    request.expanded_x = expanded_x.view;
    request.expanded_row_idx = row_idx.view;
    request.expert_tokens_count_or_cumsum = counts.view;
    SerialParallel parallel;
    const Workspace workspace(moe_init_routing_v3_workspace_bytes(211, 3, 11));
    ASSERT_TRUE(moe_init_routing_v3(request, workspace.bytes(), parallel).ok());
    EXPECT_EQ(c.group_list.values<int64_t>(), counts.values<int64_t>());
    const std::vector<Bf16> got = c.recv_x.values<Bf16>();
    ASSERT_GT(got.size(), 0U);
    EXPECT_EQ(std::memcmp(got.data(), expanded_x.bytes.data(), got.size() * sizeof(Bf16)), 0);
}

// Enough slots and bytes that sort, copy and sum are each cut into tasks.
TEST(TwoPhaseDispatch, ManyTokensAreSentAndCombinedByManyThreads) {
    Cluster c({.num_senders = 2,
               .num_tokens = 9001,
               .top_k = 4,
               .num_shared = 1,
               .num_routed = 19,
               .num_ranks = 3,
               .num_replicas = 2,
               .hidden = 40});
    for (const int64_t block_size : {int64_t{3}, int64_t{4099}, int64_t{1048576}}) {
        c.block_size = block_size;
        c.dispatch({false, 3});
        SCOPED_TRACE(describe(c, {false, 3}));
        ASSERT_NO_FATAL_FAILURE(expect_single_pass_order(c));
        Tensor want(DType::kBf16, {9001, 40});
        Tensor got(DType::kBf16, {9001, 40});
        expect_ok(c.combine_of(1, c.recv_x, want), kReference);
        expect_ok(c.combine_of(1, c.recv_x, got), {false, 3});
        ASSERT_EQ(got.bytes, want.bytes);
    }
}

// Covers: two_phase_payload case=one_expert_takes_all
TEST(TwoPhaseDispatch, OneRankAndOneExpertMayTakeAll) {
    Cluster c({.num_senders = 2, .num_tokens = 53, .top_k = 2, .num_routed = 9, .num_ranks = 4});
    for (Sender& sender : c.senders) std::fill_n(sender.ids.as<int32_t>(), 53 * 2, 6);
    for (const int64_t block_size : {1, 5, 53}) {
        c.block_size = block_size;
        for (const Path path : kPaths) {
            c.dispatch(path);
            ASSERT_NO_FATAL_FAILURE(expect_single_pass_order(c));
            EXPECT_EQ(c.recv_total.values<int64_t>(), (std::vector<int64_t>{0, 0, 212, 0}));
        }
    }
}

// A receiver that runs out of memory takes windowed chunks: blocks in several calls, with the
// progress in done. Oracle: the single pass.
// Covers: two_phase_payload first_block=0,1,3,4 num_blocks=-1,0,1,2 case=progress_in_done
// Example: two_phase_dispatch: block i goes to BaseOffset_R plus the rows already sent
TEST(TwoPhaseDispatch, BlocksSentInSeveralCallsGiveTheSameRows) {
    Cluster c(kSizes[4]);
    c.block_size = 9;
    for (const Path path : kPaths) {
        c.dispatch(path);
        c.recv_x = Tensor(c.recv_x.view);
        for (size_t i = 0; i < c.size.num_senders; ++i) {
            Tensor done(DType::kInt64, {5, static_cast<size_t>(c.num_local)});
            std::fill_n(done.as<int64_t>(), done.view.num_elements(), 0);
            TwoPhasePayloadRequest r = c.payload_of(i);
            r.done = done.view;
            for (const int64_t num_blocks : {0, 1, 2, 1, -1}) {
                r.num_blocks = num_blocks;
                expect_ok(r, path);
                r.first_block += num_blocks;
            }
            std::vector<int64_t> counts;
            for (const int32_t count : c.senders[i].counts.values<int32_t>()) {
                counts.push_back(count);
            }
            EXPECT_EQ(done.values<int64_t>(), counts);
        }
        ASSERT_NO_FATAL_FAILURE(expect_single_pass_order(c));
    }
}

// Ranks with segments of their own, each of exactly its rows, hold the parts of the one buffer.
// Covers: two_phase_payload case=segment_of_each_rank
TEST(TwoPhaseDispatch, EveryRankMayHaveASegmentOfItsOwn) {
    Cluster c(kSizes[4]);
    c.quantise(true);
    c.block_size = 16;
    for (const Path path : kPaths) {
        c.dispatch(path);
        expect_ok(c.offsets(false), path);
        std::vector<Tensor> rows;
        std::vector<Tensor> row_scales;
        std::vector<TwoPhaseReceiveBuffer> receivers;
        for (const int64_t total : c.recv_total.values<int64_t>()) {
            const auto num_rows = static_cast<size_t>(total);
            rows.emplace_back(DType::kInt8, std::initializer_list<size_t>{num_rows, 33});
            row_scales.emplace_back(DType::kFp32, std::initializer_list<size_t>{num_rows});
        }
        for (size_t rank = 0; rank < rows.size(); ++rank) {
            receivers.push_back({rows[rank].view, row_scales[rank].view});
        }
        for (size_t i = 0; i < c.size.num_senders; ++i) {
            TwoPhasePayloadRequest r = c.payload_of(i);
            r.recv_x = {};
            r.recv_scale = {};
            r.receivers = receivers;
            expect_ok(r, path);
        }
        std::vector<int8_t> all;
        std::vector<float> all_scales;
        for (size_t rank = 0; rank < rows.size(); ++rank) {
            for (const int8_t value : rows[rank].values<int8_t>()) all.push_back(value);
            for (const float value : row_scales[rank].values<float>()) all_scales.push_back(value);
        }
        EXPECT_EQ(all, c.recv_x.values<int8_t>());
        EXPECT_EQ(all_scales, c.recv_scale.values<float>());
    }
}

size_t last_replica(int64_t, size_t num_replicas) {
    return num_replicas - 1;
}

TEST(TwoPhaseLayout, TheChoiceOfReplicasIsTheCallers) {
    Cluster c({.num_tokens = 8, .top_k = 1, .num_routed = 1, .num_ranks = 3, .num_replicas = 3});
    std::fill_n(c.senders[0].ids.as<int32_t>(), 8, 0);
    for (const Path path : kPaths) {
        TwoPhaseLayoutRequest r = c.layout_of(0);
        r.choose_replica = last_replica;
        expect_ok(r, path);
        EXPECT_EQ(c.senders[0].counts.values<int32_t>(), (std::vector<int32_t>{0, 0, 8}));
    }
}

// Goal: a batch of a million tokens. Method: 1,048,576 tokens, top-2, 256 experts on 8 ranks; the
// cache is 4 bytes a slot, the scratch the same as for a thousand tokens. Oracle: every block is
// sorted by key and slot, and holds exactly its slots.
// Covers: two_phase_layout case=a_million_tokens
// Example: two_phase_dispatch: a million tokens without a global sort, cached indices
TEST(TwoPhaseLayout, AMillionTokensNeedFourBytesASlotAndTheScratchOfOneBlock) {
    const Size size{
        .num_tokens = 1048576, .top_k = 2, .num_routed = 256, .num_ranks = 8, .hidden = 0};
    Cluster c(size);
    c.senders[0].ids.fill_ids(1, 0, 255);
    const TwoPhaseLayoutRequest r = c.layout_of(0);
    EXPECT_EQ(c.senders[0].sorted.view.num_elements() * size_of(c.senders[0].sorted.view.dtype),
              size_t{1048576} * 2 * 4);
    Cluster small({.num_tokens = 1000, .top_k = 2, .num_routed = 256, .num_ranks = 8, .hidden = 0});
    EXPECT_EQ(two_phase_layout_workspace_bytes(r, 2),
              two_phase_layout_workspace_bytes(small.layout_of(0), 2));
    expect_ok(r, {false, 2});
    const std::vector<int32_t> sorted = c.senders[0].sorted.values<int32_t>();
    std::vector<int32_t> counts(256, 0);
    const int32_t* ids = c.senders[0].ids.as<int32_t>();
    const auto key_of = [&](int32_t slot) { return ids[slot] % 8 * 32 + ids[slot] / 8; };
    for (size_t i = 0; i < sorted.size(); ++i) {
        const int32_t block = static_cast<int32_t>(i / 16384);
        ASSERT_EQ(sorted[i] / 16384, block) << i;
        ++counts[static_cast<size_t>(key_of(sorted[i]))];
        if (i % 16384 == 0) continue;
        ASSERT_LT(std::pair(key_of(sorted[i - 1]), sorted[i - 1]),
                  std::pair(key_of(sorted[i]), sorted[i]))
            << i;
    }
    EXPECT_EQ(c.senders[0].counts.values<int32_t>(), counts);
}

}  // namespace
}  // namespace afd::ops

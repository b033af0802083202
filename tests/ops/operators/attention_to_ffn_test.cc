// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/attention_to_ffn.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "ops/reference/attention_to_ffn.h"
#include "ops/tensor/workspace.h"
#include "schedule/layout/geometry.h"
#include "tests/ops/operators/window_case.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;
using test::WindowCase;
using Request = AttentionToFfnRequest;

constexpr size_t kLayers = 3;
constexpr size_t kRouted = 7;
constexpr size_t kShared = 2;
constexpr size_t kExperts = kRouted + kShared;
constexpr size_t kReplicas = 3;
constexpr size_t kWorkers = 4;
constexpr size_t kTopK = 3;
constexpr size_t kSlots = kTopK + kShared;
constexpr int32_t kMasked = schedule::kMaskedId;

Result<> run_fast(const Request& request, unsigned num_threads = 1) {
    const Workspace workspace(
        attention_to_ffn_workspace_bytes(request.x.rank == 2 ? request.x.shape[0] : 0,
                                         70,
                                         request.ffn_windows.size(),
                                         kExperts * kReplicas));
    threads::ThreadPool parallel(num_threads);
    return attention_to_ffn(request, workspace.bytes(), parallel);
}

// One micro-batch of session 1. Expert e of layer l has 1 + e % 3 replicas.
struct Case {
    WindowCase windows;
    Tensor x, ids, table, scales, mask, slot_ranks;
    Request request;

    Case(DType dtype, size_t num_tokens, size_t hidden, uint32_t micro_batch_size = 5)
        : windows({2, 2, micro_batch_size, kSlots, kWorkers, 512}),
          x(dtype, {num_tokens, hidden}),
          ids(DType::kInt32, {num_tokens, kTopK}),
          table(DType::kInt32, {kLayers, kExperts, kReplicas, 2}),
          scales(DType::kFp32, {kLayers, kExperts, hidden}),
          mask(DType::kBool, {num_tokens}),
          slot_ranks(DType::kInt32, {num_tokens, kSlots}) {
        x.fill(1);
        ids.fill_ids(2, -1, kRouted);
        scales.fill(3);
        for (size_t i = 0; i < kLayers * kExperts * kReplicas; ++i) {
            const size_t replica = i % kReplicas;
            const size_t expert = i / kReplicas % kExperts;
            const bool is_there = replica <= expert % kReplicas;
            table.as<int32_t>()[2 * i] =
                is_there ? static_cast<int32_t>((expert + replica + i / 27) % kWorkers) : -1;
            table.as<int32_t>()[2 * i + 1] = static_cast<int32_t>(100 * (i / 27) + expert * 3);
        }
        for (size_t t = 0; t < num_tokens; ++t) mask.as<uint8_t>()[t] = t < (num_tokens + 1) / 2;
        request.session_id = 1;
        request.micro_batch_id = 1;
        request.layer_id = 2;
        request.round = 9;
        windows.context.common.expert_num = kExperts;
        request.context = &windows.context;
        request.ffn_windows = windows.ffn_windows;
        request.x = x.view;
        request.expert_ids = ids.view;
        request.expert_rank_table = table.view;
        request.slot_ranks = slot_ranks.view;
    }
};

// By hand: two tokens, the second inactive, one pick masked.
// Covers: attention_to_ffn quant_mode=-1 sync_flag=0,1 active_mask=given session_id=1
// Covers: attention_to_ffn micro_batch_id=1 layer_id=0 round=9
TEST(AttentionToFfn, WritesRowsIdsAndFlagsWhereTheTableSays) {
    for (const bool is_reference : {false, true}) {
        for (const int64_t sync_flag : {0, 1}) {
            Case c(DType::kBf16, 2, 4);
            c.request.layer_id = 0;
            c.request.sync_flag = sync_flag;
            c.request.active_mask = c.mask.view;
            c.ids.set<int32_t>({5, 9, 0, 1, 2, 3});
            // Expert 5: replicas 1, 2, 3 on ranks 1, 2, 3 -> session 1 takes rank 2. Expert 9 is
            // outside. Expert 0: rank 0. Shared 7: ranks 3, 0 -> 0. Shared 8: ranks 0, 1, 2 -> 1.
            ASSERT_TRUE(
                (is_reference ? reference::attention_to_ffn(c.request) : run_fast(c.request)).ok());
            const int32_t want_ranks[] = {2, -1, 0, 0, 1, -1, -1, -1, -1, -1};
            EXPECT_EQ(c.slot_ranks.values<int32_t>(),
                      std::vector<int32_t>(want_ranks, want_ranks + 10));
            const int32_t want_ids[kWorkers][kSlots] = {
                {kMasked, kMasked, 0, 21, kMasked},
                {kMasked, kMasked, kMasked, kMasked, 24},
                {15, kMasked, kMasked, kMasked, kMasked},
                {kMasked, kMasked, kMasked, kMasked, kMasked}};
            for (size_t rank = 0; rank < kWorkers; ++rank) {
                const int32_t* descriptor = c.windows.descriptor(rank, 1, 1);
                const bool is_published = sync_flag == 1 || rank != 3;
                EXPECT_EQ(descriptor[0], is_published ? 9 : 0) << rank;
                if (!is_published) continue;
                EXPECT_EQ(descriptor[1], 0);
                for (size_t i = 0; i < 5 * kSlots; ++i) {
                    EXPECT_EQ(descriptor[2 + i], i < kSlots ? want_ids[rank][i] : kMasked) << i;
                }
                EXPECT_EQ(c.windows.descriptor(rank, 1, 0)[0], 0);
            }
            EXPECT_EQ(std::memcmp(c.windows.ffn_row(2, 1, 1, 0, 0), c.x.bytes.data(), 8), 0);
            EXPECT_EQ(std::memcmp(c.windows.ffn_row(1, 1, 1, 0, 4), c.x.bytes.data(), 8), 0);
        }
    }
}

// Goal: the reference's bytes in all windows. Method: dtypes, quantised or not, with and without
// smooth scales and mask, sync and async, 0, 1 and all tokens, 1 and 3 threads.
// Covers: attention_to_ffn x=bf16,fp16 quant_mode=-1,1 scales=given,none sync_flag=0,1
// Covers: attention_to_ffn active_mask=given,none
TEST(AttentionToFfn, MatchesTheReferenceByteByByte) {
    for (const DType dtype : {DType::kBf16, DType::kFp16}) {
        for (const size_t num_tokens : {0, 1, 5}) {
            for (unsigned bits = 0; bits < 12; ++bits) {
                const unsigned mode = bits % 3;
                const auto prepare = [&](Case& c) {
                    c.request.quant_mode = mode == 0 ? -1 : 1;
                    if (mode == 2) c.request.scales = c.scales.view;
                    c.request.sync_flag = bits / 3 % 2;
                    if (bits >= 6) c.request.active_mask = c.mask.view;
                };
                Case want(dtype, num_tokens, 131);
                prepare(want);
                const Result<> plain = reference::attention_to_ffn(want.request);
                ASSERT_TRUE(plain.ok()) << plain.error().message;
                for (const unsigned num_threads : {1u, 3u}) {
                    Case got(dtype, num_tokens, 131);
                    prepare(got);
                    const Result<> result = run_fast(got.request, num_threads);
                    ASSERT_TRUE(result.ok()) << result.error().message;
                    EXPECT_EQ(got.windows.ffn_words, want.windows.ffn_words) << bits;
                    EXPECT_EQ(got.slot_ranks.bytes, want.slot_ranks.bytes) << bits;
                }
            }
        }
    }
}

TEST(AttentionToFfn, ManyTokensAreCutIntoTasks) {
    Case want(DType::kBf16, 400, 250, 401);
    Case got(DType::kBf16, 400, 250, 401);
    ASSERT_TRUE(reference::attention_to_ffn(want.request).ok());
    ASSERT_TRUE(run_fast(got.request, 3).ok());
    EXPECT_EQ(got.windows.ffn_words, want.windows.ffn_words);
}

TEST(AttentionToFfn, ThePolicyChoosesTheReplica) {
    Case c(DType::kBf16, 1, 4);
    c.ids.set<int32_t>({2, 2, 5});
    c.request.choose_replica = [](int64_t, size_t num_replicas) { return num_replicas - 1; };
    ASSERT_TRUE(run_fast(c.request).ok());
    // Layer 2: expert e, replica r on rank (e + r + 2) % 4; the last of 3 replicas is r = 2.
    const std::vector<int32_t> ranks = c.slot_ranks.values<int32_t>();
    EXPECT_EQ(ranks[0], 2);
    EXPECT_EQ(ranks[1], 2);
    EXPECT_EQ(ranks[2], 1);
}

// Larger ids say something else in a descriptor: they mask a slot or offer a token.
TEST(AttentionToFfn, LocalIdsEndWhereOffersBegin) {
    for (const int32_t id : {schedule::kMaskedId,
                             schedule::kOfferedId,
                             schedule::kLeastOfferedId,
                             schedule::kLeastOfferedId - 1}) {
        Case c(DType::kBf16, 5, 250);
        c.table.as<int32_t>()[2 * (2 * 27 + 4) + 1] = id;
        for (const Result<>& result :
             {run_fast(c.request), reference::attention_to_ffn(c.request)}) {
            const bool is_offer = schedule::is_offered_id(id);
            EXPECT_EQ(result.ok(), !is_offer && id != schedule::kMaskedId) << id;
            if (result.ok()) continue;
            EXPECT_EQ(result.error().message,
                      "attention_to_ffn: expert_rank_table[2, 1, 1] has local id " +
                          std::to_string(id) + "; allowed are 0 to 2130706430");
        }
    }
}

TEST(AttentionToFfn, RefusesWhatDoesNotFitWithAMessage) {
    const auto message = [](auto&& change) {
        Case c(DType::kBf16, 5, 250);
        change(c, c.request);
        const auto before = c.windows.ffn_words;
        const Result<> result = run_fast(c.request);
        EXPECT_FALSE(reference::attention_to_ffn(c.request).ok());
        EXPECT_EQ(c.windows.ffn_words, before);
        return result.ok() ? "accepted" : result.error().message;
    };
    const std::string name = "attention_to_ffn: ";
    EXPECT_EQ(message([](Case&, Request& r) { r.quant_mode = 0; }),
              name + "quant_mode is 0; allowed are -1, 1");
    EXPECT_EQ(message([](Case&, Request& r) { r.sync_flag = 2; }),
              name + "sync_flag is 2; allowed are 0, 1");
    EXPECT_EQ(message([](Case&, Request& r) { r.round = 0; }),
              name + "round is 0; allowed are 1 to 2147483647");
    EXPECT_EQ(message([](Case&, Request& r) { r.session_id = 2; }),
              name + "session_id is 2; it must be 0 or more and below session_num, 2");
    EXPECT_EQ(message([](Case&, Request& r) { r.micro_batch_id = 2; }),
              name + "micro_batch_id is 2; it must be 0 or more and below micro_batch_num, 2");
    EXPECT_EQ(message([](Case&, Request& r) { r.layer_id = 3; }),
              name + "layer_id is 3; it must be 0 or more and below L, 3");
    EXPECT_EQ(message([](Case&, Request& r) { r.context = nullptr; }),
              name + "schedule_context is missing; it must be [1024]");
    EXPECT_EQ(message([](Case&, Request& r) { r.ffn_windows = {}; }),
              name + "ffn_windows is missing; at least one is needed");
    const std::string twice = message([](Case&, Request& r) {
        // The first replica of expert 1 where that of expert 0 is.
        auto* table = static_cast<int32_t*>(const_cast<void*>(r.expert_rank_table.data)) +
                      static_cast<size_t>(r.layer_id) * r.expert_rank_table.shape[1] *
                          r.expert_rank_table.shape[2] * 2;
        const size_t expert = r.expert_rank_table.shape[2] * 2;
        table[expert] = table[0];
        table[expert + 1] = table[1];
    });
    EXPECT_NE(twice.find(", the place of expert 0"), std::string::npos) << twice;
    // Expert 3 has one replica, which ends its list: behind that a place is nobody's.
    Case ended(DType::kBf16, 2, 4);
    auto* layer = ended.table.as<int32_t>() + size_t{2} * kExperts * kReplicas * 2;
    layer[(3 * kReplicas + 2) * 2] = layer[0];
    layer[(3 * kReplicas + 2) * 2 + 1] = layer[1];
    const auto done = run_fast(ended.request);
    EXPECT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(message([](Case& c, Request& r) { r.scales = c.scales.view; }),
              name + "quant_mode is -1; only quant_mode 1 takes scales");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.context.common.micro_batch_size = 4; }),
              name + "x has 5 rows; at most micro_batch_size, 4, are allowed");
    EXPECT_EQ(message([](Case& c, Request& r) {
                  c.windows.context.common.selected_expert_num = 8;
                  r.slot_ranks = {};
              }),
              name + "selected_expert_num is 8; with K = 3 allowed are 3 to 7");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.context.common.session_num = 0; }),
              name + "session_num is 0; allowed are 1 to 1024");
    EXPECT_EQ(
        message([](Case& c, Request&) { c.windows.context.common.attn_to_ffn_token_size = 500; }),
        name + "attn_to_ffn_token_size is 500; it must be a positive multiple of 512");
    Tensor wide(DType::kBf16, {5, 257});
    EXPECT_EQ(message([&](Case&, Request& r) { r.x = wide.view; }),
              name + "attn_to_ffn_token_size is 512; a row needs 514 bytes");
    Tensor wide_int8(DType::kBf16, {5, 509});
    EXPECT_EQ(message([&](Case&, Request& r) {
                  r.x = wide_int8.view;
                  r.quant_mode = 1;
              }),
              name + "attn_to_ffn_token_size is 512; a row needs 513 bytes");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.context.ffn.token_info_buf_size -= 4; }),
              name + "token_info_buf_size is 428; the dimensions need 432");
    EXPECT_EQ(
        message([](Case& c, Request&) { c.windows.context.ffn.token_data_buf += 1; }),
        name +
            "token_data_buf is 497; with its 51200 bytes it ends beyond the 51696 bytes of an "
            "FFN window");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.context.ffn.token_info_buf = 2; }),
              name + "token_info_buf is 2; it must be a multiple of 4");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.ffn_windows[3] = {}; }),
              name +
                  "token_info_buf is 64; with its 432 bytes it ends beyond the 0 bytes of an FFN "
                  "window");
    EXPECT_EQ(message([](Case& c, Request&) { c.table.as<int32_t>()[2 * (2 * 27 + 3)] = 4; }),
              name + "expert_rank_table[2, 1, 0] has rank 4; allowed are 0 to 3");
    EXPECT_EQ(message([](Case& c, Request&) { c.table.as<int32_t>()[2 * (2 * 27 + 3)] = -1; }),
              name + "expert_rank_table[2, 1, 0] has rank -1; allowed are 0 to 3");
    EXPECT_EQ(message([](Case& c, Request&) { c.table.as<int32_t>()[2 * (2 * 27 + 4) + 1] = -1; }),
              name + "expert_rank_table[2, 1, 1] has local id -1; allowed are 0 to 2130706430");
    EXPECT_EQ(message([](Case& c, Request& r) {
                  c.mask.as<uint8_t>()[4] = 1;
                  r.active_mask = c.mask.view;
              }),
              name + "active_mask[4] is true behind a false one; true entries come first");
    Tensor table(DType::kInt32, {kLayers, 1, kReplicas, 2});
    EXPECT_EQ(message([&](Case&, Request& r) { r.expert_rank_table = table.view; }),
              name + "expert_rank_table has 1 experts a layer; the shared ones alone are 2");
    EXPECT_EQ(message([](Case& c, Request&) { ++c.windows.context.common.expert_num; }),
              name +
                  "expert_rank_table has 9 experts a layer; it must be the context's "
                  "expert_num, 10");
}

}  // namespace
}  // namespace afd::ops

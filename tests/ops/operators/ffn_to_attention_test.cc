// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_to_attention.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/reference/ffn_to_attention.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/operators/window_case.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;
using test::WindowCase;
using Request = FfnToAttentionRequest;

Result<> run_fast(const Request& request, unsigned num_threads = 1) {
    const Workspace workspace(
        ffn_to_attention_workspace_bytes(request.x.rank == 2 ? request.x.shape[0] : 0));
    threads::ThreadPool parallel(num_threads);
    return ffn_to_attention(request, workspace.bytes(), parallel);
}

// One row for every token of 3 sessions and 2 micro-batches, in one of its 3 slots.
struct Case {
    WindowCase windows;
    Tensor x, sessions, micro_batches, tokens, slots, num_rows, weights, rounds;
    Request request;

    Case(DType dtype, size_t hidden, size_t num_tensor_rows = 24, uint32_t micro_batch_size = 4)
        : windows({3, 2, micro_batch_size, 3, 1, 512}),
          x(dtype, {num_tensor_rows, hidden}),
          sessions(DType::kInt32, {num_tensor_rows}),
          micro_batches(DType::kInt32, {num_tensor_rows}),
          tokens(DType::kInt32, {num_tensor_rows}),
          slots(DType::kInt32, {num_tensor_rows}),
          num_rows(DType::kInt64, {1}),
          weights(DType::kFp32, {num_tensor_rows}),
          rounds(DType::kInt32, {3, 2}) {
        x.fill(1);
        weights.fill(2);
        for (size_t i = 0; i < num_tensor_rows; ++i) {
            const size_t token = i * 7 % num_tensor_rows;
            slots.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
            tokens.as<int32_t>()[i] = static_cast<int32_t>(token % micro_batch_size);
            micro_batches.as<int32_t>()[i] = static_cast<int32_t>(token / micro_batch_size % 2);
            sessions.as<int32_t>()[i] = static_cast<int32_t>(token / micro_batch_size / 2);
        }
        for (int32_t i = 0; i < 6; ++i) rounds.as<int32_t>()[i] = i % 2 == 0 ? 7 + i : -i;
        request.context = &windows.context;
        request.attention_windows = windows.attention_windows;
        request.x = x.view;
        request.session_ids = sessions.view;
        request.micro_batch_ids = micro_batches.view;
        request.token_ids = tokens.view;
        request.expert_offsets = slots.view;
    }
};

// Goal: the reference's bytes in all windows. Method: every pair of dtypes, with and without
// weights, rounds and a count, 1 and 3 threads.
// Covers: ffn_to_attention token_dtype=0,1 x=bf16,fp16,fp32 routing_weights=given,none
// Covers: ffn_to_attention rounds=given,none actual_token_num=given,none
TEST(FfnToAttention, MatchesTheReferenceByteByByte) {
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
        for (const int64_t token_dtype : {0, 1}) {
            for (unsigned bits = 0; bits < 8; ++bits) {
                const auto prepare = [&](Case& c) {
                    c.request.token_dtype = token_dtype;
                    if ((bits & 1) != 0) c.request.routing_weights = c.weights.view;
                    if ((bits & 2) != 0) c.request.rounds = c.rounds.view;
                    c.num_rows.set<int64_t>({bits == 6 ? 0 : 17});
                    if ((bits & 4) != 0) c.request.actual_token_num = c.num_rows.view;
                };
                Case want(dtype, 253);
                prepare(want);
                const Result<> plain = reference::ffn_to_attention(want.request);
                ASSERT_TRUE(plain.ok()) << plain.error().message;
                for (const unsigned num_threads : {1u, 3u}) {
                    Case got(dtype, 253);
                    prepare(got);
                    const Result<> result = run_fast(got.request, num_threads);
                    ASSERT_TRUE(result.ok()) << result.error().message;
                    EXPECT_EQ(got.windows.attention_words, want.windows.attention_words) << bits;
                }
            }
        }
    }
}

TEST(FfnToAttention, PutsEachRowItsWeightAndItsFlagInTheirPlace) {
    Case c(DType::kBf16, 250);
    c.request.token_dtype = 1;
    c.request.routing_weights = c.weights.view;
    c.request.rounds = c.rounds.view;
    ASSERT_TRUE(run_fast(c.request).ok());
    for (size_t i = 0; i < 24; ++i) {
        const auto at = [&](Tensor& ids) { return static_cast<size_t>(ids.as<int32_t>()[i]); };
        const size_t session = at(c.sessions);
        const size_t m = at(c.micro_batches);
        const std::byte* row = c.windows.result_row(session, m, at(c.tokens), at(c.slots));
        EXPECT_EQ(std::memcmp(row, c.x.as<Bf16>() + i * 250, 500), 0) << i;
        EXPECT_EQ(std::memcmp(row + 500, c.weights.as<float>() + i, 4), 0) << i;
        EXPECT_EQ(c.windows.result_flag(session, m, at(c.tokens), at(c.slots)),
                  c.rounds.as<int32_t>()[session * 2 + m]);
        EXPECT_EQ(c.windows.result_flag(session, m, at(c.tokens), (at(c.slots) + 1) % 3), 0);
    }
}

TEST(FfnToAttention, ManyRowsAreCutIntoTasks) {
    Case want(DType::kFp32, 200, 3 * 2 * 300, 300);
    Case got(DType::kFp32, 200, 3 * 2 * 300, 300);
    ASSERT_TRUE(reference::ffn_to_attention(want.request).ok());
    ASSERT_TRUE(run_fast(got.request, 3).ok());
    EXPECT_EQ(got.windows.attention_words, want.windows.attention_words);
}

// Goal: the four operators on windows compose. Method: 3 sessions dispatch a micro-batch to 4
// workers, each batches what it got (a scan) and returns the rows unchanged, each session combines
// with weights 1/4; K = 4 and no shared expert, so every sum is exact. Oracle: x itself.
TEST(FfnToAttention, DispatchAndCombineWithWeightsThatSumToOneRestoreTheTokens) {
    constexpr size_t kTokens = 13;
    constexpr size_t kHidden = 101;
    constexpr size_t kWorkers = 4;
    constexpr size_t kExperts = 10;
    constexpr uint32_t kSlots = 4;
    WindowCase windows({3, 2, kTokens, kSlots, kWorkers, 512});
    std::vector<int32_t> control(3 * 3 + 3 * kTokens * kSlots);
    auto& ffn = windows.context.ffn;
    ffn.session_ids_buf_size = ffn.micro_batch_ids_buf_size = 12;
    ffn.micro_batch_ids_buf = 12;
    ffn.expert_ids_buf = 24;
    ffn.expert_ids_buf_size = 3 * kTokens * kSlots * 4;
    windows.context.common.expert_num = kExperts;
    Tensor table(DType::kInt32, {1, kExperts, 1, 2});
    for (size_t e = 0; e < kExperts; ++e) {
        table.as<int32_t>()[2 * e] = static_cast<int32_t>(e % kWorkers);
        table.as<int32_t>()[2 * e + 1] = static_cast<int32_t>(e / kWorkers);
    }
    SerialParallel serial;
    std::vector<Tensor> tokens;
    for (size_t session = 0; session < 3; ++session) {
        const auto seed = static_cast<uint32_t>(session);
        tokens.push_back(Tensor(DType::kBf16, {kTokens, kHidden}).fill(seed));
        Tensor ids(DType::kInt32, {kTokens, kSlots});
        ids.fill_ids(seed, 0, kExperts - 1);
        AttentionToFfnRequest request;
        request.session_id = static_cast<int64_t>(session);
        request.context = &windows.context;
        request.ffn_windows = windows.ffn_windows;
        request.x = tokens.back().view;
        request.expert_ids = ids.view;
        request.expert_rank_table = table.view;
        const Workspace workspace(
            attention_to_ffn_workspace_bytes(kTokens, kSlots, kWorkers, kExperts));
        const Result<> sent = attention_to_ffn(request, workspace.bytes(), serial);
        ASSERT_TRUE(sent.ok()) << sent.error().message;
    }
    constexpr size_t kRows = 3 * kTokens * kSlots;
    for (size_t rank = 0; rank < kWorkers; ++rank) {
        Tensor y(DType::kBf16, {kRows, kHidden});
        Tensor lists[4];
        for (Tensor& list : lists) list = Tensor(DType::kInt32, {kRows});
        std::vector<int64_t> groups(6);
        FfnWorkerBatchingOutput output{};
        output.y = std::span(y.bytes).first(kRows * kHidden * 2);
        output.group_list = groups;
        output.session_ids = {lists[0].as<int32_t>(), kRows};
        output.micro_batch_ids = {lists[1].as<int32_t>(), kRows};
        output.token_ids = {lists[2].as<int32_t>(), kRows};
        output.expert_offsets = {lists[3].as<int32_t>(), kRows};
        schedule::ScheduleContext context = windows.context;
        const FfnWorkerBatchingAttributes attributes{.expert_num = 3,
                                                     .max_out_shape = {3, kTokens, kSlots, kHidden},
                                                     .token_dtype = TokenDtype::kBf16,
                                                     .need_schedule = 1,
                                                     .layer_num = 0};
        const Workspace workspace(ffn_worker_batching_workspace_bytes(attributes));
        const Result<> batched =
            ffn_worker_batching({.attributes = attributes,
                                 .context = &context,
                                 .window = windows.ffn_windows[rank],
                                 .control = std::as_writable_bytes(std::span<int32_t>(control))},
                                output,
                                workspace.bytes(),
                                serial);
        ASSERT_TRUE(batched.ok()) << batched.error().message;
        ASSERT_GT(output.actual_token_num, 0);
        Request back;
        back.token_dtype = 1;
        back.context = &windows.context;
        back.attention_windows = windows.attention_windows;
        back.x = y.view;
        back.session_ids = lists[0].view;
        back.micro_batch_ids = lists[1].view;
        back.token_ids = lists[2].view;
        back.expert_offsets = lists[3].view;
        back.actual_token_num =
            make_tensor<const void>(&output.actual_token_num, DType::kInt64, {1});
        const Result<> returned = run_fast(back);
        ASSERT_TRUE(returned.ok()) << returned.error().message;
    }
    for (size_t session = 0; session < 3; ++session) {
        Tensor weights(DType::kFp32, {kTokens, kSlots});
        std::fill_n(weights.as<float>(), kTokens * kSlots, 0.25f);
        Tensor layer(DType::kInt32, {1});
        layer.set<int32_t>({0});
        Tensor next_layer(DType::kInt32, {1});
        Tensor out(DType::kBf16, {kTokens, kHidden});
        schedule::ScheduleContext context = windows.context;
        const Result<> combined =
            attention_worker_combine({.hidden_size = kHidden,
                                      .token_dtype = 1,
                                      .need_schedule = 1,
                                      .context = &context,
                                      .window = windows.attention_windows[session],
                                      .expert_scales = weights.view,
                                      .layer_id = layer.view,
                                      .y = out.view,
                                      .next_layer_id = next_layer.view},
                                     {},
                                     serial);
        ASSERT_TRUE(combined.ok()) << combined.error().message;
        EXPECT_EQ(out.bytes, tokens[session].bytes);
        EXPECT_EQ(*next_layer.as<int32_t>(), 1);
    }
}

TEST(FfnToAttention, RefusesWhatDoesNotFitWithAMessage) {
    const auto message = [](auto&& change) {
        Case c(DType::kBf16, 255);
        change(c, c.request);
        const auto before = c.windows.attention_words;
        const Result<> result = run_fast(c.request);
        EXPECT_EQ(c.windows.attention_words, before);
        const Result<> plain = reference::ffn_to_attention(c.request);
        EXPECT_EQ(c.windows.attention_words, before);
        EXPECT_FALSE(result.ok() || plain.ok());
        if (!result.ok() && !plain.ok()) {
            EXPECT_EQ(plain.error().message, result.error().message);
        }
        return result.ok() ? "accepted" : result.error().message;
    };
    const std::string name = "ffn_to_attention: ";
    EXPECT_EQ(message([](Case&, Request& r) { r.token_dtype = 2; }),
              name + "token_dtype is 2; allowed are 0, 1");
    EXPECT_EQ(message([](Case&, Request& r) { r.context = nullptr; }),
              name + "schedule_context is missing; it must be [1024]");
    EXPECT_EQ(message([](Case& c, Request& r) {
                  r.attention_windows = r.attention_windows.first(2);
                  (void)c;
              }),
              name + "attention_windows are 2; there must be session_num, 3");
    EXPECT_EQ(message([](Case& c, Request&) { c.sessions.as<int32_t>()[5] = 3; }),
              name + "session_ids[5] is 3; it must be 0 or more and below session_num, 3");
    EXPECT_EQ(message([](Case& c, Request&) { c.micro_batches.as<int32_t>()[5] = -1; }),
              name + "micro_batch_ids[5] is -1; it must be 0 or more and below micro_batch_num, 2");
    EXPECT_EQ(message([](Case& c, Request&) { c.tokens.as<int32_t>()[5] = 4; }),
              name + "token_ids[5] is 4; it must be 0 or more and below micro_batch_size, 4");
    EXPECT_EQ(
        message([](Case& c, Request&) { c.slots.as<int32_t>()[5] = 3; }),
        name + "expert_offsets[5] is 3; it must be 0 or more and below selected_expert_num, 3");
    for (const int64_t num_rows : {-1, 25}) {
        EXPECT_EQ(
            message([&](Case& c, Request& r) {
                c.num_rows.set<int64_t>({num_rows});
                r.actual_token_num = c.num_rows.view;
            }),
            name + "actual_token_num is " + std::to_string(num_rows) + "; allowed are 0 to 24");
    }
    EXPECT_EQ(message([](Case& c, Request& r) {
                  c.rounds.as<int32_t>()[4] = 0;
                  r.rounds = c.rounds.view;
              }),
              name +
                  "rounds[4] is 0, the flag of a slot that nobody has written; allowed are "
                  "all other values");
    Tensor rounds(DType::kInt32, {3, 3});
    EXPECT_EQ(message([&](Case&, Request& r) { r.rounds = rounds.view; }),
              name + "rounds has shape [3, 3]; it must be [A, M] with A = 3, M = 2");
    EXPECT_EQ(message([](Case& c, Request& r) { r.routing_weights = c.weights.view; }),
              name + "ffn_to_attn_token_size is 512; a row needs 514 bytes");
    EXPECT_EQ(message([](Case& c, Request&) { c.windows.context.attention.token_data_buf = 101; }),
              name + "token_data_buf is 101; it must be a multiple of 2");
    EXPECT_EQ(
        message([](Case& c, Request&) { c.windows.context.attention.token_info_buf_size = 95; }),
        name + "token_info_buf_size is 95; the dimensions need 96");
    EXPECT_EQ(
        message([](Case& c, Request&) {
            for (Tensor* ids : {&c.sessions, &c.micro_batches, &c.tokens, &c.slots}) {
                ids->as<int32_t>()[7] = ids->as<int32_t>()[3];
            }
        }),
        name +
            "expert_offsets has slot 0 twice for session 2, micro-batch 1, token 1; each slot "
            "takes one row");
}

}  // namespace
}  // namespace afd::ops

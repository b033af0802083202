// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/attention_worker_combine.h"

#include <gtest/gtest.h>

#include "ops/reference/attention_worker_combine.h"
#include "schedule/context/schedule_context.h"
#include "tests/ops/random_values.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using schedule::ScheduleContext;
using test::Tensor;
using Request = AttentionWorkerCombineRequest;

constexpr size_t kMicroBatches = 3;
constexpr size_t kTokens = 5;    // BS
constexpr size_t kExperts = 11;  // common.expert_num
constexpr size_t kRowBytes = 1024;
constexpr size_t kDataOffset = 2048;  // Not where WindowLayout puts it: offsets are the context's.

Result<> run_fast(const Request& request, unsigned num_threads = 1) {
    threads::ThreadPool parallel(num_threads);
    return attention_worker_combine(request, {}, parallel);
}

// A window whose rows depend on their place, with every flag set.
struct Worker {
    ScheduleContext context{};
    test::GuardedVector<int32_t> window;
    Tensor scales, ids, layer_id, y, next_layer_id, num_taken;
    Request request;

    Worker(int64_t token_dtype,
           size_t num_tokens,
           size_t top_k,
           size_t num_shared,
           size_t hidden,
           size_t num_micro_batch_tokens = kTokens)
        : scales(DType::kFp32, {num_tokens, top_k}),
          ids(DType::kInt32, {num_tokens, top_k}),
          layer_id(DType::kInt32, {1}),
          y(token_dtype == 0 ? DType::kFp16 : DType::kBf16, {num_tokens, hidden}),
          next_layer_id(DType::kInt32, {1}),
          num_taken(DType::kInt64, {1}) {
        const size_t slots = num_micro_batch_tokens * (top_k + num_shared);
        context.common = {2,
                          kMicroBatches,
                          static_cast<uint32_t>(num_micro_batch_tokens),
                          static_cast<uint32_t>(top_k + num_shared),
                          kExperts,
                          512,
                          kRowBytes,
                          1,
                          {}};
        context.control.run_flag = 1;
        const size_t data_bytes = kMicroBatches * slots * kRowBytes;
        const size_t info_bytes = kMicroBatches * slots * 4;
        window.assign((kDataOffset + data_bytes) / 4, 9);
        context.attention = {0, info_bytes, kDataOffset, data_bytes, kMicroBatches - 1, {}};
        test::RandomValues random(1, 1.0f);
        std::byte* rows = reinterpret_cast<std::byte*>(window.data()) + kDataOffset;
        for (size_t i = 0; i < data_bytes / 2; ++i) {
            reference::set_element(y.view.dtype, rows, i, random.next());
        }
        scales.fill(2);
        ids.fill_ids(3, -1, kExperts);
        layer_id.set<int32_t>({41});
        request.hidden_size = static_cast<int64_t>(hidden);
        request.token_dtype = token_dtype;
        request.context = &context;
        request.window = std::as_bytes(std::span<const int32_t>(window));
        request.expert_scales = scales.view;
        request.layer_id = layer_id.view;
        request.y = y.view;
        request.next_layer_id = next_layer_id.view;
        request.actual_token_num = num_taken.view;
    }

    // The flag of (micro-batch, token, slot).
    int32_t& flag(size_t m, size_t token, size_t slot) {
        const size_t k1 = context.common.selected_expert_num;
        return window[(m * context.common.micro_batch_size + token) * k1 + slot];
    }
};

// Goal: the reference's bits. Method: both dtypes, with and without ids, 0 to 4 shared experts,
// fewer tokens than the micro-batch has, every micro-batch, 1 and 3 threads.
// Covers: attention_worker_combine token_dtype=0,1 need_schedule=0 expert_ids=given,none
// Covers: attention_worker_combine hidden_size=301
TEST(AttentionWorkerCombine, MatchesTheReferenceBitByBit) {
    for (const int64_t token_dtype : {0, 1}) {
        for (const size_t num_tokens : {0, 1, 5}) {
            for (const size_t num_shared : {0, 1, 4}) {
                for (const bool has_ids : {false, true}) {
                    for (uint32_t m = 0; m < kMicroBatches; ++m) {
                        Worker worker(token_dtype, num_tokens, 3, num_shared, 301);
                        worker.context.attention.micro_batch_id = m;
                        if (has_ids) worker.request.expert_ids = worker.ids.view;
                        Tensor want = worker.y;
                        Request plain = worker.request;
                        plain.y = want.view;
                        ASSERT_TRUE(reference::attention_worker_combine(plain).ok());
                        for (const unsigned num_threads : {1u, 3u}) {
                            const Result<> result = run_fast(worker.request, num_threads);
                            ASSERT_TRUE(result.ok()) << result.error().message;
                            EXPECT_EQ(worker.y.bytes, want.bytes);
                        }
                        EXPECT_EQ(*worker.next_layer_id.as<int32_t>(), 42);
                        EXPECT_EQ(*worker.num_taken.as<int64_t>(),
                                  static_cast<int64_t>(num_tokens));
                    }
                }
            }
        }
    }
}

TEST(AttentionWorkerCombine, ManyTokensAreCutIntoTasks) {
    Worker worker(1, 300, 2, 1, 500, 301);
    worker.request.expert_ids = worker.ids.view;
    Tensor want = worker.y;
    Request plain = worker.request;
    plain.y = want.view;
    ASSERT_TRUE(reference::attention_worker_combine(plain).ok());
    ASSERT_TRUE(run_fast(worker.request, 3).ok());
    EXPECT_EQ(worker.y.bytes, want.bytes);
}

// By hand: two picks, one masked, one shared row; a masked row's NaN is not read.
TEST(AttentionWorkerCombine, AddsPicksInOrderThenTheSharedRow) {
    Worker worker(1, 1, 3, 1, 1);
    worker.request.expert_ids = worker.ids.view;
    worker.context.attention.micro_batch_id = 0;
    worker.scales.set({0.5f, 100.0f, 2.0f});
    worker.ids.set<int32_t>({3, 11, 0});
    std::byte* rows = reinterpret_cast<std::byte*>(worker.window.data()) + kDataOffset;
    const float values[] = {8, std::nanf(""), 16, 1};
    for (size_t slot = 0; slot < 4; ++slot) {
        reference::set_element(DType::kBf16, rows + slot * kRowBytes, 0, values[slot]);
    }
    ASSERT_TRUE(run_fast(worker.request).ok());
    EXPECT_EQ(to_float(*worker.y.as<Bf16>()), 37.0f);
}

// Covers: attention_worker_combine need_schedule=1
TEST(AttentionWorkerCombine, TakesTheNextMicroBatchWhenEveryUsedSlotIsThere) {
    for (const bool is_reference : {false, true}) {
        Worker worker(0, 2, 2, 1, 8);
        worker.request.need_schedule = 1;
        const auto run = [&] {
            const Result<> result = is_reference
                                        ? reference::attention_worker_combine(worker.request)
                                        : run_fast(worker.request);
            EXPECT_TRUE(result.ok()) << result.error().message;
            return *worker.num_taken.as<int64_t>();
        };
        EXPECT_EQ(run(), 2);
        EXPECT_EQ(worker.context.attention.micro_batch_id, 0u);
        worker.flag(1, 1, 2) = 0;
        const auto before = worker.y.bytes;
        worker.next_layer_id.set<int32_t>({-5});
        EXPECT_EQ(run(), 0);
        EXPECT_EQ(worker.context.attention.micro_batch_id, 0u);
        EXPECT_EQ(worker.y.bytes, before);
        EXPECT_EQ(*worker.next_layer_id.as<int32_t>(), -5);
        worker.flag(1, 1, 2) = -7;
        worker.flag(1, 2, 0) = 0;  // Of a token that is not there.
        EXPECT_EQ(run(), 2);
        EXPECT_EQ(worker.context.attention.micro_batch_id, 1u);
        // A masked slot is not waited for.
        worker.request.expert_ids = worker.ids.view;
        worker.ids.set<int32_t>({0, 1, 2147483647, 3});
        worker.flag(2, 1, 0) = 0;
        EXPECT_EQ(run(), 2);
        EXPECT_EQ(worker.context.attention.micro_batch_id, 2u);
        worker.context.control.run_flag = 0;
        EXPECT_EQ(run(), 0);
        EXPECT_EQ(worker.context.attention.micro_batch_id, 2u);
    }
}

TEST(AttentionWorkerCombine, RefusesWhatDoesNotFitWithAMessage) {
    const auto message = [](auto&& change) {
        Worker worker(1, 3, 2, 1, 500);
        worker.request.expert_ids = worker.ids.view;
        change(worker, worker.request);
        const auto before = worker.y.bytes;
        const Result<> result = run_fast(worker.request);
        EXPECT_FALSE(reference::attention_worker_combine(worker.request).ok());
        EXPECT_EQ(worker.y.bytes, before);
        return result.ok() ? "accepted" : result.error().message;
    };
    const std::string name = "attention_worker_combine: ";
    EXPECT_EQ(message([](Worker&, Request& r) { r.token_dtype = 2; }),
              name + "token_dtype is 2; allowed are 0, 1");
    EXPECT_EQ(message([](Worker&, Request& r) { r.need_schedule = 2; }),
              name + "need_schedule is 2; allowed are 0, 1");
    EXPECT_EQ(message([](Worker&, Request& r) { r.hidden_size = 0; }),
              name + "hidden_size is 0; allowed are 1 to 2147483647");
    EXPECT_EQ(message([](Worker&, Request& r) { r.token_dtype = 0; }),
              name + "y has dtype bf16; it must be fp16 with token_dtype 0");
    EXPECT_EQ(message([](Worker&, Request& r) { r.context = nullptr; }),
              name + "schedule_context is missing; it must be [1024]");
    EXPECT_EQ(message([](Worker&, Request& r) { r.hidden_size = 499; }),
              name +
                  "y has shape [3, 500]; it must be [n, hidden_size] with n = 3 "
                  "(expert_scales), hidden_size = 499");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.micro_batch_size = 2; }),
              name + "expert_scales has 3 rows; at most micro_batch_size, 2, are allowed");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.selected_expert_num = 1; }),
              name + "selected_expert_num is 1; with K = 2 allowed are 2 to 6");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.selected_expert_num = 7; }),
              name + "selected_expert_num is 7; with K = 2 allowed are 2 to 6");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.micro_batch_num = 65; }),
              name + "micro_batch_num is 65; allowed are 1 to 64");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.session_num = 1025; }),
              name + "session_num is 1025; allowed are 1 to 1024");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.attention.micro_batch_id = 3; }),
              name + "micro_batch_id is 3; it must be below micro_batch_num, 3");
    for (const int32_t layer : {-1, INT32_MAX}) {
        EXPECT_EQ(message([&](Worker& w, Request&) { w.layer_id.set<int32_t>({layer}); }),
                  name + "layer_id is " + std::to_string(layer) +
                      "; allowed are 0 to 2147483646, so that there is a next one");
    }
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.ffn_to_attn_token_size = 700; }),
              name + "ffn_to_attn_token_size is 700; it must be a positive multiple of 512");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.common.ffn_to_attn_token_size = 512; }),
              name + "ffn_to_attn_token_size is 512; a row needs 1000 bytes");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.attention.token_data_buf_size -= 1; }),
              name + "token_data_buf_size is 46079; the dimensions need 46080");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.attention.token_data_buf += 2; }),
              name +
                  "token_data_buf is 2050; with its 46080 bytes it ends beyond the 48128 bytes of "
                  "attention_window");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.attention.token_data_buf = ~0ull; }),
              name +
                  "token_data_buf is 18446744073709551615; with its 46080 bytes it ends beyond "
                  "the 48128 bytes of attention_window");
    EXPECT_EQ(message([](Worker& w, Request&) { w.context.attention.token_data_buf = 2047; }),
              name + "token_data_buf is 2047; it must be a multiple of 2");
    EXPECT_EQ(message([](Worker& w, Request& r) {
                  r.need_schedule = 1;
                  w.context.attention.token_info_buf_size = 4;
              }),
              name + "token_info_buf_size is 4; the dimensions need 180");
    EXPECT_EQ(message([](Worker& w, Request& r) {
                  r.need_schedule = 1;
                  w.context.attention.token_info_buf = 2;
              }),
              name + "token_info_buf is 2; it must be a multiple of 4");
}

TEST(AttentionWorkerCombine, TopKIsAtMost64) {
    Worker worker(1, 1, 65, 0, 4);
    const Result<> result = run_fast(worker.request);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "attention_worker_combine: K is 65; allowed are 1 to 64");
}

}  // namespace
}  // namespace afd::ops

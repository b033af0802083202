// SPDX-License-Identifier: Apache-2.0
//
// What ffn_worker_batching refuses, and in which words. Method: a valid request, one thing wrong,
// the whole message; nothing is written.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/ops/operators/ffn_worker_batching_case.h"

namespace afd::ops {
namespace {

using Worker = test::BatchingWorker;
using Output = test::BatchingOutput;
using test::run_batching;

// Each case breaks one thing; the message names it, its value and what is allowed.
TEST(FfnWorkerBatching, RefusesByNameValueAndLimitAndWritesNothing) {
    const auto refused = [](const auto& breakage) {
        Worker worker;
        worker.describe(0, 0, 1, 0);
        worker.describe(1, 0, 1, 0);
        worker.take(0, 0);
        worker.take(1, 0);
        Output output;
        breakage(worker, output);
        const Result<> result = run_batching(worker, output);
        EXPECT_EQ(output.session_ids[0], -7);
        EXPECT_EQ(output.group_list[0], -7);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    using W = Worker&;
    using O = Output&;
    const std::string name = "ffn_worker_batching: ";
    EXPECT_EQ(refused([](W w, O) { w.attributes.expert_num = 0; }),
              name + "expert_num is 0; it must be positive");
    EXPECT_EQ(refused([](W w, O) { w.attributes.layer_num = 5; }),
              name + "expert_num is 12; it must be a multiple of layer_num, which is 5");
    EXPECT_EQ(refused([](W w, O) { w.attributes.layer_num = -1; }),
              name + "layer_num is -1; it must not be negative");
    EXPECT_EQ(refused([](W w, O) { w.attributes.need_schedule = 2; }),
              name + "need_schedule is 2; allowed are 0 and 1");
    EXPECT_EQ(refused([](W w, O) { w.attributes.token_dtype = TokenDtype{3}; }),
              name + "token_dtype is 3; allowed are 0 (fp16), 1 (bf16), 2 (int8)");
    EXPECT_EQ(refused([](W w, O) { w.attributes.max_out_shape[1] = 5; }),
              name + "max_out_shape[1] is 5; it must equal the context's micro_batch_size, 4");
    EXPECT_EQ(refused([](W w, O) { w.attributes.max_out_shape[3] = 257; }),
              name + "attn_to_ffn_token_size is 512; a row of H 257 does not fit");
    EXPECT_EQ(refused([](W w, O) { w.context.common.attn_to_ffn_token_size = 514; }),
              name + "attn_to_ffn_token_size is 514; it must be a positive multiple of 512");
    EXPECT_EQ(refused([](W w, O) { w.context.common.schedule_mode = 7; }),
              name + "schedule_mode is 7; allowed are 0, 1, 2");
    EXPECT_EQ(refused([](W w, O) {
                  w.attributes.need_schedule = 1;
                  w.context.ffn.polling_index = 99;
              }),
              name + "polling_index is 99; it must be below micro_batch_num, 3");
    EXPECT_EQ(refused([](W w, O) { w.context.common.session_num = 1025; }),
              name + "session_num is 1025; allowed are 1 ... 1024");
    EXPECT_EQ(refused([](W w, O) { w.context.common.micro_batch_num = 0; }),
              name + "micro_batch_num is 0; allowed are 1 ... 64");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.out_num = 6; }),
              name + "out_num is 6; at most session_num, 5");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.session_ids_buf)[1] = 5; }),
              name + "session_ids[1] is 5; allowed are 0 ... 4");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.micro_batch_ids_buf)[0] = -1; }),
              name + "micro_batch_ids[0] is -1; allowed are 0 ... 2");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.session_ids_buf)[1] = 0; }),
              name + "session_ids[1] is 0; its micro-batch 0 is in the list twice");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.token_data_buf_size -= 1; }),
              name + "token_data_buf_size is 92159; the dimensions need 92160");
    EXPECT_EQ(
        refused([](W w, O) { w.context.ffn.token_data_buf += 4; }),
        name + "token_data_buf is 1028; with its 92160 bytes it ends beyond the segment of 93184");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.session_ids_buf = UINT64_MAX - 3; }),
              name +
                  "session_ids_buf is 18446744073709551612; with its 20 bytes it ends beyond the "
                  "segment of 364");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.expert_ids_buf_size = 0; }),
              name + "expert_ids_buf_size is 0; the dimensions need 240");
    EXPECT_EQ(refused([](W, O o) { o.view.token_ids = o.view.token_ids.subspan(1); }),
              name + "token_ids size is 59; at least 60 elements are needed");
    EXPECT_EQ(refused([](W w, O o) {
                  w.attributes.token_dtype = TokenDtype::kInt8;
                  o.view.dynamic_scale = {};
              }),
              name + "dynamic_scale size is 0; at least 60 elements are needed");
}

TEST(FfnWorkerBatching, RefusesARequestWithoutAContext) {
    Worker worker;
    FfnWorkerBatchingRequest request = test::batching_request(worker);
    request.context = nullptr;
    Output output;
    const Workspace workspace(ffn_worker_batching_workspace_bytes(worker.attributes));
    SerialParallel serial;
    for (const Result<>& result :
         {ffn_worker_batching(request, output.view, workspace.bytes(), serial),
          reference::ffn_worker_batching(request, output.view)}) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code, Code::kInvalidArgument);
        EXPECT_EQ(result.error().message,
                  "ffn_worker_batching: schedule_context is missing; it must be [1024]");
    }
    EXPECT_EQ(output.session_ids[0], -7);
}

// Goal: what is checked is what is used. Method: a second thread writes wrong and right values into
// the context while the operator runs. Oracle: each call refuses, or has the rows of a call that
// nobody disturbed; none reads outside, which would end the process.
TEST(FfnWorkerBatching, GoesByOneCopyOfAContextThatChanges) {
    Worker worker;
    worker.take(0, 0);
    worker.take(3, 2);
    Output quiet;
    ASSERT_TRUE(run_batching(worker, quiet).ok());
    std::atomic<bool> is_over{false};
    std::thread writer([&] {
        auto& ffn = worker.context.ffn;
        const uint64_t sessions = ffn.session_ids_buf;
        const uint64_t rows = ffn.token_data_buf;
        // Relaxed: nothing is ordered by these words, nor by the end.
        const auto store = [](auto& word, auto value) {
            std::atomic_ref(word).store(value, std::memory_order_relaxed);
        };
        while (!is_over.load(std::memory_order_relaxed)) {
            store(ffn.out_num, 0x40000000U);
            store(ffn.session_ids_buf, uint64_t{1} << 40);
            store(ffn.token_data_buf, uint64_t{1} << 44);
            store(ffn.out_num, 2U);
            store(ffn.session_ids_buf, sessions);
            store(ffn.token_data_buf, rows);
        }
    });
    uint32_t num_refused = 0;
    // On a busy machine 2,000 calls can be over before the writer has had its first turn.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto goes_on = [&](int call) {
        return call < 2000 || (num_refused == 0 && std::chrono::steady_clock::now() < deadline);
    };
    for (int call = 0; goes_on(call); ++call) {
        Output output;
        const Result<> done = run_batching(worker, output);
        if (!done.ok()) {
            EXPECT_EQ(done.error().code, Code::kInvalidArgument);
            ++num_refused;
            continue;
        }
        EXPECT_EQ(output.view.actual_token_num, quiet.view.actual_token_num);
        EXPECT_EQ(output.y, quiet.y);
    }
    is_over.store(true, std::memory_order_relaxed);
    writer.join();
    EXPECT_GT(num_refused, 0U) << "the writer changed nothing";
}

}  // namespace
}  // namespace afd::ops

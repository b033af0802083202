// SPDX-License-Identifier: Apache-2.0
//
// The stand-alone schedulers: what they take for given flags, over small windows.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/ffn_worker_scheduler.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops {
namespace {

using schedule::ScheduleContext;

constexpr size_t kSlots = 4;  // BS·K1

ScheduleContext small_context() {
    ScheduleContext context{};
    context.common.session_num = 4;
    context.common.micro_batch_num = 3;
    context.common.micro_batch_size = 2;
    context.common.selected_expert_num = 2;
    context.control.run_flag = 1;
    context.attention.micro_batch_id = 2;
    return context;
}

class FfnWorkerSchedulerTest : public testing::Test {
  protected:
    FfnWorkerSchedulerTest()
        : context_(small_context()), window_(4 * 3 * (2 + kSlots)), control_(256, -7) {
        auto& ffn = context_.ffn;
        ffn.token_info_buf = 0;
        ffn.token_info_buf_size = 4 * 3 * (2 + kSlots) * 4;
        ffn.layer_ids_buf = 0;
        ffn.session_ids_buf = 64;
        ffn.micro_batch_ids_buf = 128;
        ffn.expert_ids_buf = 192;
        ffn.layer_ids_buf_size = ffn.session_ids_buf_size = ffn.micro_batch_ids_buf_size = 16;
        ffn.expert_ids_buf_size = 4 * kSlots * 4;
    }

    // A descriptor whose layer and ids say where it is.
    void make_ready(int32_t session, int32_t micro_batch) {
        int32_t* descriptor = &window_[static_cast<size_t>(session * 3 + micro_batch) * 6];
        descriptor[0] = 1;
        descriptor[1] = 10 * session + micro_batch;
        for (int32_t k = 0; k < 4; ++k) descriptor[2 + k] = 100 * session + 10 * micro_batch + k;
    }

    // "session:micro-batch ..." of what was taken, checked against layer and ids.
    std::string take(std::string_view policy, int64_t group = 1) {
        const auto done =
            ffn_worker_scheduler({.policy = policy,
                                  .sync_group_size = group,
                                  .context = &context_,
                                  .window = std::as_bytes(std::span(window_)),
                                  .control = std::as_writable_bytes(std::span(control_))});
        if (!done.ok()) return done.error().message;
        std::string text;
        for (uint32_t i = 0; i < context_.ffn.out_num; ++i) {
            const int32_t session = control_[16 + i];
            const int32_t micro_batch = control_[32 + i];
            EXPECT_EQ(control_[i], 10 * session + micro_batch);
            EXPECT_EQ(control_[48 + i * kSlots + 3], 100 * session + 10 * micro_batch + 3);
            text += (text.empty() ? "" : " ") + std::to_string(session) + ":" +
                    std::to_string(micro_batch);
        }
        return text;
    }

    ScheduleContext context_;
    std::vector<int32_t> window_;
    std::vector<int32_t> control_;
};

// Covers: ffn_worker_scheduler policy=any
TEST_F(FfnWorkerSchedulerTest, AnyTakesTheFirstReadyMicroBatchOfEachSession) {
    make_ready(0, 0);
    make_ready(0, 2);
    make_ready(2, 1);
    EXPECT_EQ(take("any"), "0:0 2:1");
    context_.ffn.polling_index = 1;
    EXPECT_EQ(take("any"), "0:2 2:1");
    EXPECT_EQ(context_.ffn.polling_index, 1U);
}

// Covers: ffn_worker_scheduler policy=groups sync_group_size=2,3
TEST_F(FfnWorkerSchedulerTest, GroupsTakesOnlyCompleteGroups) {
    make_ready(0, 0);
    make_ready(2, 1);
    EXPECT_EQ(take("groups", 2), "");
    make_ready(3, 0);
    EXPECT_EQ(take("groups", 2), "2:1 3:0");
    make_ready(1, 2);
    EXPECT_EQ(take("groups", 2), "0:0 1:2 2:1 3:0");
    // The last group may be smaller.
    EXPECT_EQ(take("groups", 3), "0:0 1:2 2:1 3:0");
}

// Covers: ffn_worker_scheduler policy=all
TEST_F(FfnWorkerSchedulerTest, AllTakesTurns) {
    make_ready(0, 0);
    make_ready(1, 1);
    make_ready(3, 1);
    EXPECT_EQ(take("all"), "0:0");
    EXPECT_EQ(take("all"), "1:1 3:1");
    EXPECT_EQ(take("all"), "");
    EXPECT_EQ(context_.ffn.polling_index, 0U);
}

TEST_F(FfnWorkerSchedulerTest, TakesNothingWhenToldToEnd) {
    make_ready(0, 0);
    context_.control.run_flag = 0;
    for (const char* policy : {"any", "groups", "all"}) EXPECT_EQ(take(policy), "");
    EXPECT_EQ(context_.ffn.polling_index, 0U);
}

TEST_F(FfnWorkerSchedulerTest, SkipsOutputBuffersOfSizeZero) {
    make_ready(1, 0);
    context_.ffn.expert_ids_buf_size = 0;
    context_.ffn.layer_ids_buf_size = 0;
    ASSERT_TRUE(ffn_worker_scheduler({.context = &context_,
                                      .window = std::as_bytes(std::span(window_)),
                                      .control = std::as_writable_bytes(std::span(control_))})
                    .ok());
    EXPECT_EQ(context_.ffn.out_num, 1U);
    EXPECT_EQ(control_[0], -7);
    EXPECT_EQ(control_[16], 1);
    EXPECT_EQ(control_[48], -7);
}

TEST_F(FfnWorkerSchedulerTest, RefusesWhatTheRecordDoesNotAllow) {
    EXPECT_EQ(take("some"),
              "ffn_worker_scheduler: policy is \"some\"; allowed are any, groups, all");
    EXPECT_EQ(take("groups", 0),
              "ffn_worker_scheduler: sync_group_size is 0; allowed are 1 to 1024");
    context_.ffn.polling_index = 3;
    EXPECT_EQ(take("any"),
              "ffn_worker_scheduler: polling_index is 3; it must be below micro_batch_num, 3");
    context_.ffn.polling_index = 0;
    context_.ffn.expert_ids_buf = 1000;
    EXPECT_EQ(take("any"),
              "ffn_worker_scheduler: expert_ids_buf is 1000; with its 64 bytes it ends beyond the "
              "1024 bytes of ffn_control");
    context_.common.session_num = 1025;
    EXPECT_EQ(take("any"), "ffn_worker_scheduler: session_num is 1025; allowed are 1 to 1024");
}

class AttentionWorkerSchedulerTest : public testing::Test {
  protected:
    AttentionWorkerSchedulerTest() : context_(small_context()), flags_(3 * kSlots) {
        context_.attention.token_info_buf = 0;
        context_.attention.token_info_buf_size = flags_.size() * 4;
    }

    void set_flags(size_t micro_batch, size_t count) {
        std::fill_n(flags_.begin() + static_cast<std::ptrdiff_t>(micro_batch * kSlots), count, 5);
    }

    // What was taken, as text.
    std::string take(int64_t num_tokens = -1) {
        int32_t taken = 99;
        const auto done =
            attention_worker_scheduler({.num_tokens = num_tokens,
                                        .context = &context_,
                                        .window = std::as_bytes(std::span(flags_)),
                                        .taken = make_tensor<void>(&taken, DType::kInt32, {1})});
        return done.ok() ? std::to_string(taken) : done.error().message;
    }

    ScheduleContext context_;
    std::vector<int32_t> flags_;
};

TEST_F(AttentionWorkerSchedulerTest, TakesMicroBatchesInOrderWhenAllTheirSlotsAreBack) {
    EXPECT_EQ(take(), "-1");
    set_flags(1, kSlots);
    EXPECT_EQ(take(), "-1") << "micro-batch 0 comes first";
    set_flags(0, kSlots - 1);
    EXPECT_EQ(take(), "-1");
    set_flags(0, kSlots);
    EXPECT_EQ(take(), "0");
    EXPECT_EQ(take(), "1");
    EXPECT_EQ(take(), "-1");
    EXPECT_EQ(context_.attention.micro_batch_id, 1U);
}

// Covers: attention_worker_scheduler num_tokens=-1,1
TEST_F(AttentionWorkerSchedulerTest, LooksAtTheSlotsOfItsTokensOnly) {
    set_flags(0, 2);
    EXPECT_EQ(take(), "-1");
    EXPECT_EQ(take(1), "0");
    EXPECT_EQ(take(0), "1") << "a micro-batch without tokens waits for nothing";
}

TEST_F(AttentionWorkerSchedulerTest, TakesNothingWhenToldToEnd) {
    set_flags(0, kSlots);
    context_.control.run_flag = 0;
    EXPECT_EQ(take(), "-1");
}

TEST_F(AttentionWorkerSchedulerTest, RefusesWhatTheRecordDoesNotAllow) {
    EXPECT_EQ(take(3),
              "attention_worker_scheduler: num_tokens is 3; at most micro_batch_size, 2, are "
              "allowed");
    context_.attention.token_info_buf_size = 4;
    EXPECT_EQ(take(),
              "attention_worker_scheduler: token_info_buf_size is 4; the dimensions need 48");
    context_.attention.micro_batch_id = 3;
    EXPECT_EQ(take(),
              "attention_worker_scheduler: micro_batch_id is 3; it must be below micro_batch_num, "
              "3");
}

}  // namespace
}  // namespace afd::ops

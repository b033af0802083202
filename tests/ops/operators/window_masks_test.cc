// SPDX-License-Identifier: Apache-2.0

// AttentionToFFN and AttentionWorkerCombine together: which slots are sent is which slots are
// awaited and read; and neither they nor the FFN side follow a context that changes under them.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/reference/attention_to_ffn.h"
#include "ops/reference/attention_worker_combine.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/operators/window_case.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;
using test::WindowCase;

constexpr uint32_t kTokens = 3;
constexpr uint32_t kTopK = 3;
constexpr uint32_t kShared = 2;
constexpr uint32_t kSlots = kTopK + kShared;
constexpr uint32_t kRouted = 4;
constexpr uint32_t kExperts = kRouted + kShared;
constexpr uint32_t kWorkers = 2;
constexpr size_t kHidden = 4;

struct Round {
    WindowCase windows{{1, 2, kTokens, kSlots, kWorkers, 512}};
    Tensor x{DType::kBf16, {kTokens, kHidden}};
    Tensor ids{DType::kInt32, {kTokens, kTopK}};
    Tensor table{DType::kInt32, {1, kExperts, 1, 2}};
    Tensor ranks{DType::kInt32, {kTokens, kSlots}};
    Tensor scales{DType::kFp32, {kTokens, kTopK}};
    Tensor layer_id{DType::kInt32, {1}};
    Tensor y{DType::kBf16, {kTokens, kHidden}};
    Tensor next_layer_id{DType::kInt32, {1}};
    Tensor num_taken{DType::kInt64, {1}};

    Round() {
        windows.context.common.expert_num = kExperts;
        x.fill(1);
        scales.fill(2);
        layer_id.set<int32_t>({7});
        // By each other: a routed expert, one that is outside on either side, shared ones, and what
        // a masked slot holds.
        ids.set<int32_t>({0, -1, 4, 5, 6, 3, schedule::kMaskedId, 4, 4});
        for (uint32_t e = 0; e < kExperts; ++e) {
            table.as<int32_t>()[2 * e] = static_cast<int32_t>(e % kWorkers);
            table.as<int32_t>()[2 * e + 1] = static_cast<int32_t>(10 + e);
        }
    }

    AttentionToFfnRequest dispatch() {
        AttentionToFfnRequest r;
        r.context = &windows.context;
        r.ffn_windows = windows.ffn_windows;
        r.x = x.view;
        r.expert_ids = ids.view;
        r.expert_rank_table = table.view;
        r.slot_ranks = ranks.view;
        return r;
    }

    AttentionWorkerCombineRequest combine() {
        AttentionWorkerCombineRequest r;
        r.hidden_size = kHidden;
        r.token_dtype = 1;
        r.need_schedule = 1;
        r.context = &windows.context;
        r.window = windows.attention_windows[0];
        r.expert_scales = scales.view;
        r.expert_ids = ids.view;
        r.layer_id = layer_id.view;
        r.y = y.view;
        r.next_layer_id = next_layer_id.view;
        r.actual_token_num = num_taken.view;
        return r;
    }
};

Result<> run_dispatch(const AttentionToFfnRequest& r) {
    const Workspace workspace(
        attention_to_ffn_workspace_bytes(kTokens, kSlots, kWorkers, kExperts));
    SerialParallel serial;
    return attention_to_ffn(r, workspace.bytes(), serial);
}

// Goal: a slot is awaited exactly if it was sent. Method: ids on both sides of every bound; flags
// are set for the slots that were sent, then each one of them is missing in turn. Oracle: what
// dispatch says of its slots, and the rule: outside [0, E+S) masks.
// Covers: attention_to_ffn case=masks_the_slots_that_combine_masks
// Covers: attention_worker_combine case=awaits_the_slots_that_were_sent
TEST(WindowMasks, WhatIsSentIsWhatIsAwaited) {
    for (const bool is_reference : {false, true}) {
        Round round;
        ASSERT_TRUE((is_reference ? reference::attention_to_ffn(round.dispatch())
                                  : run_dispatch(round.dispatch()))
                        .ok());
        const int32_t want[] = {0, -1, 0, 0, 1, 1, -1, 1, 0, 1, -1, 0, 0, 0, 1};
        EXPECT_EQ(round.ranks.values<int32_t>(), std::vector<int32_t>(want, want + 15));
        // A pick of a shared expert goes to its place; its descriptor says so.
        EXPECT_EQ(round.windows.descriptor(0, 0, 0)[2 + 2], 14);

        const auto take = [&] {
            SerialParallel serial;
            const AttentionWorkerCombineRequest r = round.combine();
            round.windows.context.attention.micro_batch_id = 1;
            const Result<> done = is_reference ? reference::attention_worker_combine(r)
                                               : attention_worker_combine(r, {}, serial);
            EXPECT_TRUE(done.ok()) << done.error().message;
            return *round.num_taken.as<int64_t>();
        };
        for (size_t i = 0; i < size_t{kTokens} * kSlots; ++i) {
            if (want[i] >= 0) round.windows.result_flag(0, 0, i / kSlots, i % kSlots) = 1;
        }
        EXPECT_EQ(take(), kTokens);
        for (size_t i = 0; i < size_t{kTokens} * kSlots; ++i) {
            if (want[i] < 0) continue;
            int32_t& flag = round.windows.result_flag(0, 0, i / kSlots, i % kSlots);
            flag = 0;
            EXPECT_EQ(take(), 0) << i;
            flag = 1;
        }
    }
}

schedule::ScheduleContext* changing = nullptr;

// Goal: the context that was judged is the one that is used. Method: the choice of a replica, in
// the middle of the call, stands for another process that moves the buffers out of the windows,
// which end at guard pages. Oracle: the bytes of a call that nobody disturbs.
TEST(WindowMasks, DispatchGoesByTheContextThatItJudged) {
    Round calm;
    ASSERT_TRUE(run_dispatch(calm.dispatch()).ok());
    Round round;
    changing = &round.windows.context;
    AttentionToFfnRequest r = round.dispatch();
    r.choose_replica = [](int64_t, size_t) -> size_t {
        changing->ffn.token_data_buf = uint64_t{1} << 40;
        changing->ffn.token_info_buf = uint64_t{1} << 40;
        changing->common.attn_to_ffn_token_size = 1U << 30;
        changing->common.micro_batch_num = 1U << 30;
        return 0;
    };
    ASSERT_TRUE(run_dispatch(r).ok());
    for (size_t rank = 0; rank < kWorkers; ++rank) {
        EXPECT_TRUE(
            std::ranges::equal(round.windows.ffn_words[rank], calm.windows.ffn_words[rank]));
    }
}

// Another process, at the moment when the threads are counted.
class Meddler : public Parallel {
  public:
    explicit Meddler(schedule::ScheduleContext& context) : context_(context) {}

    unsigned num_threads() const override {
        context_.ffn.token_data_buf = uint64_t{1} << 40;
        context_.ffn.out_num = 1U << 30;
        context_.common.attn_to_ffn_token_size = 1U << 30;
        return 2;
    }
    void run(size_t num_tasks, FunctionRef<void(size_t, unsigned)> body) override {
        num_threads();
        for (size_t task = 0; task < num_tasks; ++task) body(task, 0);
    }

  private:
    schedule::ScheduleContext& context_;
};

// The same for the FFN side, whose rows are gathered after everything was judged; enough of them
// that they are cut into tasks.
TEST(WindowMasks, BatchingGoesByTheContextThatItJudged) {
    constexpr uint32_t kManyTokens = 600;
    constexpr size_t kBytes = 4096;
    WindowCase windows({1, 1, kManyTokens, 1, 1, kBytes});
    int32_t* descriptor = windows.descriptor(0, 0, 0);
    descriptor[0] = 1;
    std::fill_n(descriptor + 2, kManyTokens, 0);
    for (uint32_t token = 0; token < kManyTokens; ++token) {
        std::fill_n(windows.ffn_row(0, 0, 0, token, 0), kBytes, static_cast<std::byte>(token));
    }
    std::vector<std::byte> y(kManyTokens * kBytes);
    std::vector<int64_t> groups(2);
    std::vector<int32_t> lists(size_t{4} * kManyTokens);
    FfnWorkerBatchingOutput output{};
    output.y = y;
    output.group_list = groups;
    output.session_ids = std::span(lists).subspan(0, kManyTokens);
    output.micro_batch_ids = std::span(lists).subspan(kManyTokens, kManyTokens);
    output.token_ids = std::span(lists).subspan(2 * kManyTokens, kManyTokens);
    output.expert_offsets = std::span(lists).subspan(3 * kManyTokens, kManyTokens);
    const FfnWorkerBatchingAttributes attributes{.expert_num = 1,
                                                 .max_out_shape = {1, kManyTokens, 1, kBytes / 2},
                                                 .token_dtype = TokenDtype::kBf16,
                                                 .need_schedule = 1,
                                                 .layer_num = 0};
    const Workspace workspace(ffn_worker_batching_workspace_bytes(attributes));
    Meddler meddler(windows.context);
    const Result<> done = ffn_worker_batching({.attributes = attributes,
                                               .context = &windows.context,
                                               .window = windows.ffn_windows[0],
                                               .control = {}},
                                              output,
                                              workspace.bytes(),
                                              meddler);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(output.actual_token_num, kManyTokens);
    for (uint32_t token = 0; token < kManyTokens; ++token) {
        EXPECT_EQ(y[token * kBytes], static_cast<std::byte>(token)) << token;
    }
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_worker_batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "tests/ops/operators/ffn_worker_batching_case.h"

namespace afd::ops {
namespace {

using Worker = test::BatchingWorker;
using Output = test::BatchingOutput;
using test::run_batching;

struct Expected {
    int64_t key;
    size_t session, m, bs, k;
};

// The independent implementation: a list of valid slots, stably sorted by key.
std::vector<Expected> expected_rows(Worker& worker,
                                    const std::vector<std::pair<size_t, size_t>>& taken) {
    const auto layers = worker.attributes.layer_num;
    const int64_t per_layer =
        layers == 0 ? worker.attributes.expert_num : worker.attributes.expert_num / layers;
    std::vector<Expected> rows;
    for (const auto& [session, m] : taken) {
        const int32_t* d = worker.descriptor(session, m);
        if (layers > 0 && (d[1] < 0 || d[1] >= layers)) continue;
        for (size_t bs = 0; bs < Worker::kTokens; ++bs) {
            for (size_t k = 0; k < Worker::kSlots; ++k) {
                const int64_t id = d[2 + bs * Worker::kSlots + k];
                if (id < 0 || id >= per_layer) continue;
                rows.push_back({layers > 0 ? d[1] * per_layer + id : id, session, m, bs, k});
            }
        }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Expected& a, const Expected& b) {
        return a.key < b.key;
    });
    return rows;
}

void expect_output(Worker& worker, const Output& output, const std::vector<Expected>& want) {
    const bool is_int8 = worker.attributes.token_dtype == TokenDtype::kInt8;
    const size_t row_bytes = Worker::kHidden * (is_int8 ? 1 : 2);
    ASSERT_EQ(output.view.actual_token_num, static_cast<int64_t>(want.size()));
    std::vector<int64_t> groups;
    for (size_t i = 0; i < want.size(); ++i) {
        const auto& [key, session, m, bs, k] = want[i];
        const std::byte* source = worker.source_row(session, m, bs, k);
        EXPECT_EQ(std::memcmp(output.y.data() + i * row_bytes, source, row_bytes), 0) << i;
        if (is_int8) {
            EXPECT_EQ(std::memcmp(&output.dynamic_scale[i], source + Worker::kHidden, 4), 0) << i;
        }
        EXPECT_EQ(output.session_ids[i], static_cast<int32_t>(session)) << i;
        EXPECT_EQ(output.micro_batch_ids[i], static_cast<int32_t>(m)) << i;
        EXPECT_EQ(output.token_ids[i], static_cast<int32_t>(bs)) << i;
        EXPECT_EQ(output.expert_offsets[i], static_cast<int32_t>(k)) << i;
        if (groups.empty() || groups[groups.size() - 2] != key) {
            groups.insert(groups.end(), {key, 0});
        }
        ++groups.back();
    }
    EXPECT_EQ(output.view.num_groups, static_cast<int64_t>(groups.size() / 2));
    groups.resize(24, 0);
    EXPECT_EQ(output.group_list, groups);
    for (size_t i = want.size(); i < Worker::kRowsMax; ++i) {
        EXPECT_EQ(output.session_ids[i], -7) << i;
    }
    for (size_t i = want.size() * row_bytes; i < output.y.size(); ++i) {
        ASSERT_EQ(output.y[i], std::byte{0xee}) << i;
    }
}

// Covers: ffn_worker_batching expert_num=12 max_out_shape=given token_dtype=0,1,2 need_schedule=0
// Covers: ffn_worker_batching layer_num=0,2
TEST(FfnWorkerBatching, SortsRowsOfScheduledSessionsByExpertForEveryDtype) {
    for (const auto dtype : {TokenDtype::kFp16, TokenDtype::kBf16, TokenDtype::kInt8}) {
        for (const int64_t layer_num : {0, 2}) {
            for (const unsigned num_threads : {0u, 1u, 2u}) {
                Worker worker;
                worker.attributes.token_dtype = dtype;
                worker.attributes.layer_num = layer_num;
                // Sessions out of order, one twice with different micro-batches, mixed layers.
                const std::vector<std::pair<size_t, size_t>> taken{{4, 1}, {0, 2}, {2, 0}, {0, 0}};
                for (const auto& [session, m] : taken) {
                    worker.describe(session, m, 9, static_cast<int32_t>((session + m) % 2));
                    worker.take(session, m);
                }
                Output output;
                const Result<> result = run_batching(worker, output, num_threads);
                ASSERT_TRUE(result.ok()) << result.error().message;
                expect_output(worker, output, expected_rows(worker, taken));
            }
        }
    }
}

// Enough bytes that the copy is cut into tasks; oracle: one thread, and the source in each row.
TEST(FfnWorkerBatching, ManyRowsAreCopiedByManyThreads) {
    constexpr size_t kWide = 1000;
    constexpr size_t kWideBytes = 2048;
    constexpr size_t kTotal = 2 * 64 * 4;
    std::vector<uint16_t> window(kTotal * kWideBytes / 2);
    for (size_t i = 0; i < window.size(); ++i) window[i] = static_cast<uint16_t>(i / 1024 + i);
    std::vector<int32_t> control(4 + kTotal);
    control[0] = 0;
    control[1] = 1;
    for (size_t i = 0; i < kTotal; ++i) control[4 + i] = static_cast<int32_t>(i * 7 % 9);
    schedule::ScheduleContext context{};
    context.common = {2, 1, 64, 4, 8, kWideBytes, 512, 0, {}};
    context.ffn.token_data_buf_size = kTotal * kWideBytes;
    context.ffn.session_ids_buf_size = 8;
    context.ffn.micro_batch_ids_buf = 8;
    context.ffn.micro_batch_ids_buf_size = 8;
    context.ffn.expert_ids_buf = 16;
    context.ffn.expert_ids_buf_size = kTotal * 4;
    context.ffn.out_num = 2;
    const FfnWorkerBatchingAttributes attributes{
        .expert_num = 8, .max_out_shape = {2, 64, 4, kWide}, .token_dtype = TokenDtype::kBf16};
    std::vector<std::vector<uint16_t>> results;
    for (const unsigned num_threads : {1u, 3u}) {
        std::vector<uint16_t> y(kTotal * kWide);
        std::vector<int64_t> groups(16);
        std::vector<int32_t> lists[4];
        for (auto& list : lists) list.resize(kTotal);
        FfnWorkerBatchingOutput output{.y = std::as_writable_bytes(std::span(y)),
                                       .group_list = groups,
                                       .session_ids = lists[0],
                                       .micro_batch_ids = lists[1],
                                       .token_ids = lists[2],
                                       .expert_offsets = lists[3],
                                       .dynamic_scale = {}};
        const Workspace workspace(ffn_worker_batching_workspace_bytes(attributes));
        threads::ThreadPool parallel(num_threads);
        const Result<> result =
            ffn_worker_batching({.attributes = attributes,
                                 .context = &context,
                                 .window = std::as_bytes(std::span<const uint16_t>(window)),
                                 .control = std::as_writable_bytes(std::span<int32_t>(control))},
                                output,
                                workspace.bytes(),
                                parallel);
        ASSERT_TRUE(result.ok()) << result.error().message;
        ASSERT_EQ(output.actual_token_num, static_cast<int64_t>(kTotal - (kTotal + 4) / 9));
        for (size_t i = 0; i < static_cast<size_t>(output.actual_token_num); ++i) {
            const auto place =
                static_cast<size_t>(lists[0][i] * 256 + lists[2][i] * 4 + lists[3][i]);
            ASSERT_EQ(std::memcmp(&y[i * kWide], &window[place * 1024], kWide * 2), 0) << i;
        }
        results.push_back(y);
    }
    EXPECT_EQ(results[0], results[1]);
}

TEST(FfnWorkerBatching, ALayerOutOfRangeMasksItsRowOnly) {
    Worker worker;
    worker.attributes.layer_num = 3;
    const std::vector<std::pair<size_t, size_t>> taken{{0, 0}, {1, 0}, {3, 0}};
    const int32_t layers[] = {-1, 2, 3};
    for (size_t i = 0; i < 3; ++i) {
        worker.describe(taken[i].first, 0, 1, layers[i]);
        worker.take(taken[i].first, 0);
    }
    Output output;
    ASSERT_TRUE(run_batching(worker, output).ok());
    ASSERT_GT(output.view.actual_token_num, 0);
    expect_output(worker, output, expected_rows(worker, {{1, 0}}));
}

TEST(FfnWorkerBatching, NothingScheduledGivesNoRowsAndZeroGroups) {
    Worker worker;
    Output output;
    ASSERT_TRUE(run_batching(worker, output).ok());
    expect_output(worker, output, {});
}

TEST(FfnWorkerBatching, AllMaskedRowsGiveNoRows) {
    Worker worker;
    worker.describe(2, 1, 1, 0);
    std::fill_n(worker.descriptor(2, 1) + 2, Worker::kIds, schedule::kMaskedId);
    worker.take(2, 1);
    Output output;
    ASSERT_TRUE(run_batching(worker, output).ok());
    expect_output(worker, output, {});
}

TEST(FfnWorkerBatching, OneExpertMayTakeEverything) {
    Worker worker;
    std::vector<std::pair<size_t, size_t>> taken;
    for (size_t s = 0; s < Worker::kSessions; ++s) {
        worker.describe(s, 2, 1, 0);
        std::fill_n(worker.descriptor(s, 2) + 2, Worker::kIds, 11);
        worker.take(s, 2);
        taken.emplace_back(s, 2);
    }
    Output output;
    ASSERT_TRUE(run_batching(worker, output, 2).ok());
    ASSERT_EQ(output.view.actual_token_num, static_cast<int64_t>(Worker::kRowsMax));
    expect_output(worker, output, expected_rows(worker, taken));
}

// Covers: ffn_worker_batching need_schedule=1
TEST(FfnWorkerBatching, ScanTakesTheFirstReadyMicroBatchFromThePollingIndexOn) {
    for (const unsigned num_threads : {0u, 1u}) {
        Worker worker;
        worker.attributes.need_schedule = 1;
        worker.context.ffn.polling_index = 2;
        worker.describe(1, 1, 5, 0);
        worker.describe(3, 1, 1, 0);
        worker.describe(0, 0, 4, 0);
        Output first;
        ASSERT_TRUE(run_batching(worker, first, num_threads).ok());
        expect_output(worker, first, expected_rows(worker, {{0, 0}}));
        EXPECT_EQ(worker.context.ffn.polling_index, 1u);
        EXPECT_EQ(worker.context.ffn.out_num, 1u);
        Output second;
        ASSERT_TRUE(run_batching(worker, second, num_threads).ok());
        expect_output(worker, second, expected_rows(worker, {{1, 1}, {3, 1}}));
        EXPECT_EQ(worker.context.ffn.polling_index, 2u);
        const auto& ffn = worker.context.ffn;
        EXPECT_EQ(worker.list(ffn.session_ids_buf)[0], 1);
        EXPECT_EQ(worker.list(ffn.session_ids_buf)[1], 3);
        EXPECT_EQ(worker.list(ffn.micro_batch_ids_buf)[1], 1);
        EXPECT_EQ(worker.list(ffn.expert_ids_buf)[Worker::kIds], worker.descriptor(3, 1)[2]);
        EXPECT_EQ(worker.descriptor(1, 1)[0], 5) << "flags are the caller's to clear";
    }
}

TEST(FfnWorkerBatching, ScanSkipsOutputBuffersOfSizeZero) {
    for (const unsigned num_threads : {0u, 1u}) {
        Worker worker;
        worker.attributes.need_schedule = 1;
        worker.describe(2, 0, 1, 0);
        worker.context.ffn.session_ids_buf_size = 0;
        worker.context.ffn.expert_ids_buf_size = 0;
        const std::vector<int32_t> before = worker.control_words;
        Output output;
        ASSERT_TRUE(run_batching(worker, output, num_threads).ok());
        expect_output(worker, output, expected_rows(worker, {{2, 0}}));
        const auto at = [&](uint64_t offset) { return worker.list(offset)[0]; };
        EXPECT_EQ(at(worker.context.ffn.session_ids_buf),
                  before[worker.context.ffn.session_ids_buf / 4]);
    }
}

// Goal: a context whose lists overlap, which is not refused, leaves the same bytes from both
// implementations. Method: the micro-batches' list in the middle of the ids of the second row.
TEST(FfnWorkerBatching, ScanWritesListAfterListWhereTheyOverlap) {
    std::vector<std::vector<int32_t>> left;
    for (const unsigned num_threads : {0u, 1u}) {
        Worker worker;
        worker.attributes.need_schedule = 1;
        for (size_t session = 0; session < 3; ++session) worker.describe(session, 2, 1, 0);
        auto& ffn = worker.context.ffn;
        ffn.micro_batch_ids_buf = ffn.expert_ids_buf + (Worker::kIds + 2) * 4;
        Output output;
        ASSERT_TRUE(run_batching(worker, output, num_threads).ok());
        EXPECT_EQ(ffn.out_num, 3u);
        // The ids are the list that is written last.
        EXPECT_EQ(std::memcmp(worker.list(ffn.expert_ids_buf) + Worker::kIds,
                              worker.descriptor(1, 2) + 2,
                              Worker::kIds * 4),
                  0);
        left.push_back(worker.control_words);
    }
    EXPECT_EQ(left[0], left[1]);
}

TEST(FfnWorkerBatching, ScanTakesNothingWhenNothingIsReadyOrTheRunFlagIsDown) {
    for (const unsigned num_threads : {0u, 1u}) {
        for (const bool run_flag : {true, false}) {
            Worker worker;
            worker.attributes.need_schedule = 1;
            worker.context.ffn.polling_index = 1;
            worker.context.ffn.out_num = 3;
            worker.context.control.run_flag = run_flag ? 1 : 0;
            if (!run_flag) worker.describe(2, 0, 1, 0);
            Output output;
            ASSERT_TRUE(run_batching(worker, output, num_threads).ok());
            expect_output(worker, output, {});
            EXPECT_EQ(worker.context.ffn.out_num, 0u);
            EXPECT_EQ(worker.context.ffn.polling_index, 1u);
        }
    }
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_worker_batching.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "ops/reference/ffn_worker_batching.h"
#include "ops/tensor/workspace.h"
#include "schedule/schedule_context.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

constexpr size_t kSessions = 5;
constexpr size_t kMicroBatches = 3;
constexpr size_t kTokens = 4;  // BS
constexpr size_t kSlots = 3;   // K1
constexpr size_t kHidden = 21;
constexpr size_t kTokenBytes = 512;
constexpr size_t kIds = kTokens * kSlots;
constexpr size_t kRowsMax = kSessions * kIds;
constexpr size_t kInfoBytes = kSessions * kMicroBatches * (2 + kIds) * 4;
constexpr size_t kDataOffset =
    1024;  // Not where WindowLayout puts it: the offsets are the context's.
constexpr size_t kDataBytes = kSessions * kMicroBatches * kIds * kTokenBytes;

// A window and a control segment laid out by hand; every byte of a row depends on its source.
struct Worker {
    std::vector<int32_t> window_words = std::vector<int32_t>((kDataOffset + kDataBytes) / 4);
    std::vector<int32_t> control_words = std::vector<int32_t>(16 + 3 * kSessions + kRowsMax);
    schedule::ScheduleContext context{};
    FfnWorkerBatchingAttributes attributes{.expert_num = 12,
                                           .max_out_shape = {kSessions, kTokens, kSlots, kHidden},
                                           .token_dtype = TokenDtype::kBf16,
                                           .need_schedule = 0,
                                           .layer_num = 0};

    Worker() {
        static_assert(kInfoBytes <= kDataOffset);
        context.common = {kSessions, kMicroBatches, kTokens, kSlots, 12, kTokenBytes, 512, 0, {}};
        context.control.run_flag = 1;
        auto& ffn = context.ffn;
        ffn.token_info_buf = 0;
        ffn.token_info_buf_size = kInfoBytes;
        ffn.token_data_buf = kDataOffset;
        ffn.token_data_buf_size = kDataBytes;
        auto append = [at = uint64_t{64}](uint64_t& buf, uint64_t& size, uint64_t n) mutable {
            buf = at;
            size = n * 4;
            at += size;
        };
        append(ffn.layer_ids_buf, ffn.layer_ids_buf_size, kSessions);
        append(ffn.session_ids_buf, ffn.session_ids_buf_size, kSessions);
        append(ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, kSessions);
        append(ffn.expert_ids_buf, ffn.expert_ids_buf_size, kRowsMax);
        auto* bytes = reinterpret_cast<uint8_t*>(window_words.data()) + kDataOffset;
        for (size_t i = 0; i < kDataBytes; ++i) {
            bytes[i] = static_cast<uint8_t>(i * 31 + i / 512 * 7 + i / 65536);
        }
        for (size_t s = 0; s < kSessions; ++s) {
            for (size_t m = 0; m < kMicroBatches; ++m) describe(s, m, 0, 0);
        }
    }

    int32_t* descriptor(size_t session, size_t m) {
        return window_words.data() + (session * kMicroBatches + m) * (2 + kIds);
    }

    // Fills a descriptor; its ids are a fixed mix of experts and masked values.
    void describe(size_t session, size_t m, int32_t flag, int32_t layer) {
        const int32_t ids[] = {3, 2147483647, 0, 5, -1, 3, 1, 11, 12, 2, 0};
        int32_t* d = descriptor(session, m);
        d[0] = flag;
        d[1] = layer;
        for (size_t i = 0; i < kIds; ++i) d[2 + i] = ids[(i * 5 + session * 3 + m) % 11];
    }

    int32_t* list(uint64_t offset) { return control_words.data() + offset / 4; }

    // Puts (session, micro-batch) at the end of the scheduler's output, as a scheduler would.
    void take(size_t session, size_t m) {
        auto& ffn = context.ffn;
        const size_t row = ffn.out_num++;
        const int32_t* d = descriptor(session, m);
        list(ffn.session_ids_buf)[row] = static_cast<int32_t>(session);
        list(ffn.micro_batch_ids_buf)[row] = static_cast<int32_t>(m);
        list(ffn.layer_ids_buf)[row] = d[1];
        std::memcpy(list(ffn.expert_ids_buf) + row * kIds, d + 2, kIds * 4);
    }

    const std::byte* source_row(size_t session, size_t m, size_t bs, size_t k) const {
        const size_t place = ((session * kMicroBatches + m) * kTokens + bs) * kSlots + k;
        return reinterpret_cast<const std::byte*>(window_words.data()) + kDataOffset +
               place * kTokenBytes;
    }
};

struct Output {
    std::vector<std::byte> y = std::vector<std::byte>(kRowsMax * kHidden * 2, std::byte{0xee});
    std::vector<int64_t> group_list = std::vector<int64_t>(24, -7);
    std::vector<int32_t> session_ids = std::vector<int32_t>(kRowsMax, -7);
    std::vector<int32_t> micro_batch_ids = std::vector<int32_t>(kRowsMax, -7);
    std::vector<int32_t> token_ids = std::vector<int32_t>(kRowsMax, -7);
    std::vector<int32_t> expert_offsets = std::vector<int32_t>(kRowsMax, -7);
    std::vector<float> dynamic_scale = std::vector<float>(kRowsMax, -7.0f);
    FfnWorkerBatchingOutput view{};

    Output() {
        view.y = y;
        view.group_list = group_list;
        view.session_ids = session_ids;
        view.micro_batch_ids = micro_batch_ids;
        view.token_ids = token_ids;
        view.expert_offsets = expert_offsets;
        view.dynamic_scale = dynamic_scale;
    }
};

// Without threads: the reference.
Result<> run(Worker& worker, Output& output, unsigned num_threads = 1) {
    const FfnWorkerBatchingRequest request{
        .attributes = worker.attributes,
        .context = &worker.context,
        .window = std::as_bytes(std::span<const int32_t>(worker.window_words)),
        .control = std::as_writable_bytes(std::span<int32_t>(worker.control_words))};
    if (num_threads == 0) return reference::ffn_worker_batching(request, output.view);
    const Workspace workspace(ffn_worker_batching_workspace_bytes(worker.attributes));
    threads::ThreadPool parallel(num_threads);
    return ffn_worker_batching(request, output.view, workspace.bytes(), parallel);
}

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
        for (size_t bs = 0; bs < kTokens; ++bs) {
            for (size_t k = 0; k < kSlots; ++k) {
                const int64_t id = d[2 + bs * kSlots + k];
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
    const size_t row_bytes = kHidden * (is_int8 ? 1 : 2);
    ASSERT_EQ(output.view.actual_token_num, static_cast<int64_t>(want.size()));
    std::vector<int64_t> groups;
    for (size_t i = 0; i < want.size(); ++i) {
        const auto& [key, session, m, bs, k] = want[i];
        const std::byte* source = worker.source_row(session, m, bs, k);
        EXPECT_EQ(std::memcmp(output.y.data() + i * row_bytes, source, row_bytes), 0) << i;
        if (is_int8) {
            EXPECT_EQ(std::memcmp(&output.dynamic_scale[i], source + kHidden, 4), 0) << i;
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
    for (size_t i = want.size(); i < kRowsMax; ++i) EXPECT_EQ(output.session_ids[i], -7) << i;
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
                const Result<> result = run(worker, output, num_threads);
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
    ASSERT_TRUE(run(worker, output).ok());
    ASSERT_GT(output.view.actual_token_num, 0);
    expect_output(worker, output, expected_rows(worker, {{1, 0}}));
}

TEST(FfnWorkerBatching, NothingScheduledGivesNoRowsAndZeroGroups) {
    Worker worker;
    Output output;
    ASSERT_TRUE(run(worker, output).ok());
    expect_output(worker, output, {});
}

TEST(FfnWorkerBatching, AllMaskedRowsGiveNoRows) {
    Worker worker;
    worker.describe(2, 1, 1, 0);
    std::fill_n(worker.descriptor(2, 1) + 2, kIds, schedule::kMaskedId);
    worker.take(2, 1);
    Output output;
    ASSERT_TRUE(run(worker, output).ok());
    expect_output(worker, output, {});
}

TEST(FfnWorkerBatching, OneExpertMayTakeEverything) {
    Worker worker;
    std::vector<std::pair<size_t, size_t>> taken;
    for (size_t s = 0; s < kSessions; ++s) {
        worker.describe(s, 2, 1, 0);
        std::fill_n(worker.descriptor(s, 2) + 2, kIds, 11);
        worker.take(s, 2);
        taken.emplace_back(s, 2);
    }
    Output output;
    ASSERT_TRUE(run(worker, output, 2).ok());
    ASSERT_EQ(output.view.actual_token_num, static_cast<int64_t>(kRowsMax));
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
        ASSERT_TRUE(run(worker, first, num_threads).ok());
        expect_output(worker, first, expected_rows(worker, {{0, 0}}));
        EXPECT_EQ(worker.context.ffn.polling_index, 1u);
        EXPECT_EQ(worker.context.ffn.out_num, 1u);
        Output second;
        ASSERT_TRUE(run(worker, second, num_threads).ok());
        expect_output(worker, second, expected_rows(worker, {{1, 1}, {3, 1}}));
        EXPECT_EQ(worker.context.ffn.polling_index, 2u);
        const auto& ffn = worker.context.ffn;
        EXPECT_EQ(worker.list(ffn.session_ids_buf)[0], 1);
        EXPECT_EQ(worker.list(ffn.session_ids_buf)[1], 3);
        EXPECT_EQ(worker.list(ffn.micro_batch_ids_buf)[1], 1);
        EXPECT_EQ(worker.list(ffn.expert_ids_buf)[kIds], worker.descriptor(3, 1)[2]);
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
        ASSERT_TRUE(run(worker, output, num_threads).ok());
        expect_output(worker, output, expected_rows(worker, {{2, 0}}));
        const auto at = [&](uint64_t offset) { return worker.list(offset)[0]; };
        EXPECT_EQ(at(worker.context.ffn.session_ids_buf),
                  before[worker.context.ffn.session_ids_buf / 4]);
    }
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
            ASSERT_TRUE(run(worker, output, num_threads).ok());
            expect_output(worker, output, {});
            EXPECT_EQ(worker.context.ffn.out_num, 0u);
            EXPECT_EQ(worker.context.ffn.polling_index, 1u);
        }
    }
}

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
        const Result<> result = run(worker, output);
        EXPECT_EQ(output.session_ids[0], -7);
        EXPECT_EQ(output.group_list[0], -7);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    using W = Worker&;
    using O = Output&;
    EXPECT_EQ(refused([](W w, O) { w.attributes.expert_num = 0; }),
              "expert_num is 0; it must be positive");
    EXPECT_EQ(refused([](W w, O) { w.attributes.layer_num = 5; }),
              "expert_num is 12; it must be a multiple of layer_num, which is 5");
    EXPECT_EQ(refused([](W w, O) { w.attributes.layer_num = -1; }),
              "layer_num is -1; it must not be negative");
    EXPECT_EQ(refused([](W w, O) { w.attributes.need_schedule = 2; }),
              "need_schedule is 2; allowed are 0 and 1");
    EXPECT_EQ(refused([](W w, O) { w.attributes.token_dtype = TokenDtype{3}; }),
              "token_dtype is 3; allowed are 0 (fp16), 1 (bf16), 2 (int8)");
    EXPECT_EQ(refused([](W w, O) { w.attributes.max_out_shape[1] = 5; }),
              "max_out_shape[1] is 5; it must equal the context's micro_batch_size, 4");
    EXPECT_EQ(refused([](W w, O) { w.attributes.max_out_shape[3] = 257; }),
              "attn_to_ffn_token_size is 512; a row of H 257 does not fit");
    EXPECT_EQ(refused([](W w, O) { w.context.common.session_num = 1025; }),
              "session_num is 1025; allowed are 1 ... 1024");
    EXPECT_EQ(refused([](W w, O) { w.context.common.micro_batch_num = 0; }),
              "micro_batch_num is 0; allowed are 1 ... 64");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.out_num = 6; }),
              "out_num is 6; at most session_num, 5");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.session_ids_buf)[1] = 5; }),
              "session_ids[1] is 5; allowed are 0 ... 4");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.micro_batch_ids_buf)[0] = -1; }),
              "micro_batch_ids[0] is -1; allowed are 0 ... 2");
    EXPECT_EQ(refused([](W w, O) { w.list(w.context.ffn.session_ids_buf)[1] = 0; }),
              "session_ids[1] is 0; its micro-batch 0 is in the list twice");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.token_data_buf_size -= 1; }),
              "token_data_buf_size is 92159; the dimensions need more");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.token_data_buf += 4; }),
              "token_data_buf is 1028; with its 92160 bytes it ends beyond the segment of 93184");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.session_ids_buf = UINT64_MAX - 3; }),
              "session_ids_buf is 18446744073709551612; with its 20 bytes it ends beyond the "
              "segment of 364");
    EXPECT_EQ(refused([](W w, O) { w.context.ffn.expert_ids_buf_size = 0; }),
              "expert_ids_buf_size is 0; the dimensions need more");
    EXPECT_EQ(refused([](W, O o) { o.view.token_ids = o.view.token_ids.subspan(1); }),
              "token_ids size is 59; at least 60 elements are needed");
    EXPECT_EQ(refused([](W w, O o) {
                  w.attributes.token_dtype = TokenDtype::kInt8;
                  o.view.dynamic_scale = {};
              }),
              "dynamic_scale size is 0; at least 60 elements are needed");
}

}  // namespace
}  // namespace afd::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

// A worker's window and control segment laid out by hand, the outputs of ffn_worker_batching over
// them, and runs of either implementation, for the tests of the operator.

#include <cstring>
#include <span>
#include <vector>

#include "ops/operators/ffn_worker_batching.h"
#include "ops/reference/ffn_worker_batching.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

// A window and a control segment laid out by hand; every byte of a row depends on its source.
struct BatchingWorker {
    static constexpr size_t kSessions = 5;
    static constexpr size_t kMicroBatches = 3;
    static constexpr size_t kTokens = 4;  // BS
    static constexpr size_t kSlots = 3;   // K1
    static constexpr size_t kHidden = 21;
    static constexpr size_t kTokenBytes = 512;
    static constexpr size_t kIds = kTokens * kSlots;
    static constexpr size_t kRowsMax = kSessions * kIds;
    static constexpr size_t kInfoBytes = kSessions * kMicroBatches * (2 + kIds) * 4;
    // Not where WindowLayout puts it: the offsets are the context's.
    static constexpr size_t kDataOffset = 1024;
    static constexpr size_t kDataBytes = kSessions * kMicroBatches * kIds * kTokenBytes;

    std::vector<int32_t> window_words = std::vector<int32_t>((kDataOffset + kDataBytes) / 4);
    std::vector<int32_t> control_words = std::vector<int32_t>(16 + 3 * kSessions + kRowsMax);
    schedule::ScheduleContext context{};
    FfnWorkerBatchingAttributes attributes{.expert_num = 12,
                                           .max_out_shape = {kSessions, kTokens, kSlots, kHidden},
                                           .token_dtype = TokenDtype::kBf16,
                                           .need_schedule = 0,
                                           .layer_num = 0};

    BatchingWorker() {
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

struct BatchingOutput {
    std::vector<std::byte> y = std::vector<std::byte>(
        BatchingWorker::kRowsMax * BatchingWorker::kHidden * 2, std::byte{0xee});
    std::vector<int64_t> group_list = std::vector<int64_t>(24, -7);
    std::vector<int32_t> session_ids = std::vector<int32_t>(BatchingWorker::kRowsMax, -7);
    std::vector<int32_t> micro_batch_ids = std::vector<int32_t>(BatchingWorker::kRowsMax, -7);
    std::vector<int32_t> token_ids = std::vector<int32_t>(BatchingWorker::kRowsMax, -7);
    std::vector<int32_t> expert_offsets = std::vector<int32_t>(BatchingWorker::kRowsMax, -7);
    std::vector<float> dynamic_scale = std::vector<float>(BatchingWorker::kRowsMax, -7.0f);
    FfnWorkerBatchingOutput view{};

    BatchingOutput() {
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
inline FfnWorkerBatchingRequest batching_request(BatchingWorker& worker) {
    return {.attributes = worker.attributes,
            .context = &worker.context,
            .window = std::as_bytes(std::span<const int32_t>(worker.window_words)),
            .control = std::as_writable_bytes(std::span<int32_t>(worker.control_words))};
}

inline Result<> run_batching(BatchingWorker& worker,
                             BatchingOutput& output,
                             unsigned num_threads = 1) {
    const FfnWorkerBatchingRequest request = batching_request(worker);
    if (num_threads == 0) return reference::ffn_worker_batching(request, output.view);
    const Workspace workspace(ffn_worker_batching_workspace_bytes(worker.attributes));
    threads::ThreadPool parallel(num_threads);
    return ffn_worker_batching(request, output.view, workspace.bytes(), parallel);
}

}  // namespace afd::ops::test

// SPDX-License-Identifier: Apache-2.0
//
// A whole ScheduleContext, with the window and the control segment behind it. Input: the two
// attributes that count, the context, then the segments. Oracle: the sanitizer, and what is
// accepted gives no more rows than there is room for.

#include <cstring>
#include <vector>

#include "ops/operators/context_copy.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/tensor/parallel.h"
#include "proto/check.h"
#include "schedule/context/context_fields.h"
#include "schedule/context/schedule_context.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

// A = 2, BS = 2, K1 = 2, H = 4.
constexpr size_t kRows = 2 * 2 * 2;
constexpr size_t kHidden = 4;
constexpr int64_t kExperts = 6;
constexpr size_t kSegmentBytes = 4096;

void batch(afd::schedule::ScheduleContext& context,
           std::vector<std::byte>& segments,
           int64_t need_schedule,
           int64_t num_layers) {
    afd::ops::FfnWorkerBatchingRequest request;
    request.attributes = {.expert_num = kExperts,
                          .max_out_shape = {2, 2, 2, kHidden},
                          .token_dtype = afd::ops::TokenDtype::kBf16,
                          .need_schedule = need_schedule,
                          .layer_num = num_layers};
    request.context = &context;
    request.window = std::span(segments).first(kSegmentBytes);
    request.control = std::span(segments).subspan(kSegmentBytes);
    std::vector<std::byte> y(kRows * kHidden * 2);
    std::vector<int64_t> groups(kExperts * 2);
    std::vector<int32_t> sessions(kRows);
    std::vector<int32_t> micro_batches(kRows);
    std::vector<int32_t> tokens(kRows);
    std::vector<int32_t> offsets(kRows);
    afd::ops::FfnWorkerBatchingOutput output{.y = y,
                                             .group_list = groups,
                                             .session_ids = sessions,
                                             .micro_batch_ids = micro_batches,
                                             .token_ids = tokens,
                                             .expert_offsets = offsets,
                                             .dynamic_scale = {}};
    std::vector<std::byte> workspace(
        afd::ops::ffn_worker_batching_workspace_bytes(request.attributes));
    afd::ops::SerialParallel serial;
    const auto done = afd::ops::ffn_worker_batching(request, output, workspace, serial);
    AFD_ASSERT(!done.ok() || (output.actual_token_num >= 0 &&
                              output.actual_token_num <= static_cast<int64_t>(kRows)),
               "%lld rows",
               static_cast<long long>(output.actual_token_num));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    const auto choices = input.take<uint8_t>();
    auto context = input.take<afd::schedule::ScheduleContext>();
    std::vector<std::byte> segments(2 * kSegmentBytes);
    input.fill(segments);
    static_cast<void>(afd::schedule::context_fields(afd::ops::private_copy(context)));
    batch(context, segments, choices & 1, (choices & 2) != 0 ? 2 : 0);
    return 0;
}

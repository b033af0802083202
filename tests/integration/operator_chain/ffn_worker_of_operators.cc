// SPDX-License-Identifier: Apache-2.0
//
// An FFN worker in thirty lines: FfnWorkerBatching (which schedules), the grouped experts,
// FFNToAttention, until run_flag is 0.
//
//   ffn_worker_of_operators PREFIX RANK
#include <sched.h>

#include <cstdlib>

#include "ops/experts/grouped_ffn.h"
#include "ops/operators/ffn_to_attention.h"
#include "ops/operators/ffn_worker_batching.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/integration/operator_chain/chain_memory.h"

namespace afd::test {
namespace {

constexpr size_t kRowsMax = size_t{kSessions} * kTokensMax * kSlots;
constexpr uint64_t kPatienceUs = 60'000'000;  // Without a single row: its test is gone.

// What FfnWorkerBatching writes, and the experts' rows.
struct Batch {
    daemon::Matrix x{kRowsMax * daemon::kHidden};
    daemon::Matrix y{kRowsMax * daemon::kHidden};
    std::vector<int64_t> groups;
    std::vector<int32_t> sessions = std::vector<int32_t>(kRowsMax);
    std::vector<int32_t> micro_batches = std::vector<int32_t>(kRowsMax);
    std::vector<int32_t> tokens = std::vector<int32_t>(kRowsMax);
    std::vector<int32_t> slots = std::vector<int32_t>(kRowsMax);
    ops::FfnWorkerBatchingOutput output;

    explicit Batch(size_t num_keys) : groups(2 * num_keys) {
        output.y = std::as_writable_bytes(std::span(x));
        output.group_list = groups;
        output.session_ids = sessions;
        output.micro_batch_ids = micro_batches;
        output.token_ids = tokens;
        output.expert_offsets = slots;
    }
};

void serve(const ChainMemory& memory, uint32_t rank) {
    const schedule::ExpertPlacement placement = daemon::placement_of(kRanks);
    const ops::ExpertTable experts = daemon::shard(placement, rank);
    schedule::ScheduleContext& context = ChainMemory::context(memory.ffn_control(rank));
    const auto num_keys = static_cast<int64_t>(experts.num_keys());
    const ops::FfnWorkerBatchingRequest request{
        .attributes = {.expert_num = num_keys,
                       .max_out_shape = {kSessions, kTokensMax, kSlots, daemon::kHidden},
                       .token_dtype = ops::TokenDtype::kBf16,
                       .need_schedule = 1,
                       .layer_num = daemon::kLayers},
        .context = &context,
        .window = memory.ffn_window(rank),
        .control = memory.ffn_control(rank)};
    Batch batch(experts.num_keys());
    const std::vector<std::span<std::byte>> attention_windows = {memory.attention_window(0),
                                                                 memory.attention_window(1)};
    const ops::Workspace batching(ops::ffn_worker_batching_workspace_bytes(request.attributes));
    const ops::Workspace computing(
        ops::grouped_ffn_workspace_bytes(experts, kRowsMax, experts.num_keys()));
    const ops::Workspace returning(ops::ffn_to_attention_workspace_bytes(kRowsMax));
    ops::SerialParallel serial;
    const schedule::ContextWords words(context);
    uint64_t last_us = schedule::steady_now_us();

    while (words.run_flag() && schedule::steady_now_us() - last_us < kPatienceUs) {
        AFD_ASSERT(ops::ffn_worker_batching(request, batch.output, batching.bytes(), serial).ok(),
                   "batch");
        const auto* control = memory.ffn_control(rank).data();
        for (uint32_t i = 0; i < context.ffn.out_num; ++i) {
            int32_t session = 0;
            int32_t micro_batch = 0;
            std::memcpy(&session, control + context.ffn.session_ids_buf + 4 * i, 4);
            std::memcpy(&micro_batch, control + context.ffn.micro_batch_ids_buf + 4 * i, 4);
            schedule::publish_release(
                memory.descriptor_flag(
                    rank, static_cast<uint32_t>(session), static_cast<uint32_t>(micro_batch)),
                0);
        }
        const auto num_rows = static_cast<size_t>(batch.output.actual_token_num);
        if (num_rows == 0) {
            ::sched_yield();
            continue;
        }
        last_us = schedule::steady_now_us();
        const auto* groups = reinterpret_cast<const ops::ExpertGroup*>(batch.groups.data());
        const auto computed = ops::grouped_ffn(
            {.experts = &experts,
             .groups = {groups, static_cast<size_t>(batch.output.num_groups)},
             .x = ops::make_rows<const ops::Bf16>(batch.x.data(), num_rows, daemon::kHidden),
             .y = ops::make_rows(batch.y.data(), num_rows, daemon::kHidden)},
            computing.bytes(),
            serial);
        AFD_ASSERT(computed.ok(), "%s", computed.error().message.c_str());
        const auto list = [&](std::vector<int32_t>& values) {
            return ops::make_tensor<const void>(values.data(), ops::DType::kInt32, {num_rows});
        };
        const auto returned = ops::ffn_to_attention(
            {.token_dtype = 1,
             .context = &ChainMemory::context(memory.attention_control(0)),
             .attention_windows = attention_windows,
             .x = ops::make_tensor<const void>(
                 batch.y.data(), ops::DType::kBf16, {num_rows, daemon::kHidden}),
             .session_ids = list(batch.sessions),
             .micro_batch_ids = list(batch.micro_batches),
             .token_ids = list(batch.tokens),
             .expert_offsets = list(batch.slots)},
            returning.bytes(),
            serial);
        AFD_ASSERT(returned.ok(), "%s", returned.error().message.c_str());
    }
}

}  // namespace
}  // namespace afd::test

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    afd::test::serve(afd::test::ChainMemory::attach(argv[1]),
                     static_cast<uint32_t>(std::atoi(argv[2])));
    return 0;
}

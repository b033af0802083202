// SPDX-License-Identifier: Apache-2.0
//
// The experts' half of an attention worker: AttentionToFFN, then AttentionWorkerCombine (which
// schedules), with every micro-batch in flight. Writes the rows of its calls, one after another, to
// standard output.
//
//   attention_worker_of_operators PREFIX SESSION NUM_CALLS
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/attention_worker_combine.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/integration/operator_chain/chain_memory.h"

namespace afd::test {
namespace {

constexpr uint64_t kPatienceUs = 60'000'000;

class AttentionWorker {
  public:
    AttentionWorker(const ChainMemory& memory, uint32_t session)
        : memory_(memory),
          session_(session),
          context_(ChainMemory::context(memory.attention_control(session))),
          windows_{memory.ffn_window(0), memory.ffn_window(1)},
          table_(rank_table()),
          workspace_(ops::attention_to_ffn_workspace_bytes(
              kTokensMax, kSlots, kRanks, table_.size() / 2)) {}

    void dispatch(const daemon::Call& call, uint32_t micro_batch) {
        wait([&] {
            return schedule::observe(memory_.descriptor_flag(0, session_, micro_batch),
                                     schedule::Order::kAcquire) == 0 &&
                   schedule::observe(memory_.descriptor_flag(1, session_, micro_batch),
                                     schedule::Order::kAcquire) == 0;
        });
        const ops::MoeInput& input = call.input;
        const auto sent = ops::attention_to_ffn(
            {.session_id = session_,
             .micro_batch_id = micro_batch,
             .layer_id = input.layer_id,
             .context = &ChainMemory::context(memory_.ffn_control(0)),
             .ffn_windows = windows_,
             .x = ops::make_tensor<const void>(
                 input.x.data, ops::DType::kBf16, {input.num_tokens, daemon::kHidden}),
             .expert_ids = ops::make_tensor<const void>(
                 input.topk_ids, ops::DType::kInt32, {input.num_tokens, daemon::kTopK}),
             .expert_rank_table =
                 ops::make_tensor<const void>(table_.data(),
                                              ops::DType::kInt32,
                                              {daemon::kLayers, daemon::kPerLayer, kRanks, 2})},
            workspace_.bytes(),
            serial_);
        AFD_ASSERT(sent.ok(), "%s", sent.error().message.c_str());
    }

    // Combines the call of the next micro-batch, once its rows are there.
    daemon::Matrix combine(const daemon::Call& call, uint32_t micro_batch) {
        const size_t num_tokens = call.input.num_tokens;
        daemon::Matrix out(num_tokens * daemon::kHidden);
        auto layer = static_cast<int32_t>(call.input.layer_id);
        int32_t next_layer = 0;
        int64_t num_taken = 0;
        const ops::AttentionWorkerCombineRequest request{
            .hidden_size = daemon::kHidden,
            .token_dtype = 1,
            .need_schedule = 1,
            .context = &context_,
            .window = memory_.attention_window(session_),
            .expert_scales = ops::make_tensor<const void>(
                call.weights.data(), ops::DType::kFp32, {num_tokens, daemon::kTopK}),
            .expert_ids = ops::make_tensor<const void>(
                call.ids.data(), ops::DType::kInt32, {num_tokens, daemon::kTopK}),
            .layer_id = ops::make_tensor<const void>(&layer, ops::DType::kInt32, {1}),
            .y = ops::make_tensor<void>(
                out.data(), ops::DType::kBf16, {num_tokens, daemon::kHidden}),
            .next_layer_id = ops::make_tensor<void>(&next_layer, ops::DType::kInt32, {1}),
            .actual_token_num = ops::make_tensor<void>(&num_taken, ops::DType::kInt64, {1})};
        wait([&] {
            const auto combined = ops::attention_worker_combine(request, {}, serial_);
            AFD_ASSERT(combined.ok(), "%s", combined.error().message.c_str());
            return context_.attention.micro_batch_id == micro_batch && next_layer == layer + 1;
        });
        for (uint32_t token = 0; token < num_tokens; ++token) {
            for (uint32_t k = 0; k < kSlots; ++k) {
                schedule::publish_release(memory_.result_flag(session_, micro_batch, token, k), 0);
            }
        }
        return out;
    }

  private:
    static void wait(const std::function<bool()>& happened) {
        const uint64_t start_us = schedule::steady_now_us();
        while (!happened()) {
            AFD_ASSERT(schedule::steady_now_us() - start_us < kPatienceUs, "no FFN worker answers");
            ::sched_yield();
        }
    }

    const ChainMemory& memory_;
    const uint32_t session_;
    schedule::ScheduleContext& context_;
    const std::vector<std::span<std::byte>> windows_;
    const std::vector<int32_t> table_;
    const ops::Workspace workspace_;
    ops::SerialParallel serial_;
};

void run(const ChainMemory& memory, uint32_t session, uint32_t num_calls) {
    AttentionWorker worker(memory, session);
    std::array<std::unique_ptr<daemon::Call>, kMicroBatches> in_flight;
    for (uint32_t number = 0; number < num_calls + kMicroBatches; ++number) {
        const uint32_t micro_batch = number % kMicroBatches;
        std::unique_ptr<daemon::Call>& call = in_flight[micro_batch];
        if (call) {
            const daemon::Matrix out = worker.combine(*call, micro_batch);
            std::fwrite(out.data(), sizeof(ops::Bf16), out.size(), stdout);
        }
        call.reset();
        if (number >= num_calls) continue;
        call = std::make_unique<daemon::Call>(seed_of_call(session, number), kTokensMax);
        worker.dispatch(*call, micro_batch);
    }
}

}  // namespace
}  // namespace afd::test

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    afd::test::run(afd::test::ChainMemory::attach(argv[1]),
                   static_cast<uint32_t>(std::atoi(argv[2])),
                   static_cast<uint32_t>(std::atoi(argv[3])));
    return 0;
}

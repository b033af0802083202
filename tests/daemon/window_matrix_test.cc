// SPDX-License-Identifier: Apache-2.0
//
// Goal: the fused-MoE test matrix over windows: every Experts part that FFN workers can run gives
// the layer's exact output at the attention worker.
// Method: one session and two FFN ranks, each a thread over one mapping; the cases of
// tests/ops/moe_matrix.h, with the shared experts on the ranks and as a stage of the session.
// Oracle: MatrixOracle, bit for bit.

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "daemon/ffn_loop.h"
#include "daemon/window_prepare_finalize.h"
#include "ops/fused_moe/fused_moe.h"
#include "tests/ops/moe_matrix.h"
#include "tests/schedule/local_instance.h"

namespace afd::daemon {
namespace {

using ops::test::MatrixCase;
using ops::test::MatrixModel;
using ops::test::MatrixOracle;
using ops::test::MatrixShard;

constexpr uint32_t kRanks = 2;

// What the records allow over windows.
std::vector<ops::MoePair> window_pairs() {
    std::vector<ops::MoePair> pairs;
    for (const ops::MoePair& pair : ops::moe_pairs()) {
        const bool is_window = pair.prepare_finalize->capability->name == "afd_window";
        const auto config = ops::test::matrix_config(pair.quantisation);
        if (is_window && check_composition(*pair.prepare_finalize, *pair.experts, config).ok()) {
            pairs.push_back(pair);
        }
    }
    return pairs;
}

// FFN ranks that run one Experts part, until the object ends.
class Ranks {
  public:
    Ranks(const ops::MoePair& pair, const MatrixModel& model, uint32_t num_shared)
        : pair_(pair),
          model_(model),
          placement_(schedule::ExpertPlacement::round_robin(
                         std::vector<schedule::LayerExperts>(
                             ops::test::kMatrixLayers,
                             {static_cast<uint32_t>(ops::test::kMatrixExperts), num_shared}),
                         kRanks)
                         .value()),
          instance_(
              {.num_sessions = 1,
               .num_micro_batches = 1,
               .micro_batch_size = ops::test::kMatrixTokens,
               .selected_expert_num = static_cast<uint32_t>(ops::test::kMatrixTopK) + num_shared,
               .num_experts = static_cast<uint32_t>(ops::test::kMatrixExperts) + num_shared,
               .attn_to_ffn_token_bytes = 512,
               .ffn_to_attn_token_bytes = 512,
               .num_ffn_workers = kRanks}) {
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            ports_.push_back(std::make_unique<WorkerPort>(16, 16, instance_.rank_doorbell(rank)));
        }
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            threads_.emplace_back([this, rank] { run(rank); });
        }
    }
    ~Ranks() {
        for (auto& port : ports_) port->push_command({.kind = WorkerCommand::Kind::kShutdown});
        for (std::thread& thread : threads_) thread.join();
    }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    schedule::LocalInstance& instance() { return instance_; }
    const schedule::ExpertPlacement& placement() const { return placement_; }

  private:
    void run(uint32_t rank) {
        const auto transport = instance_.returns(rank);
        MatrixShard shard(placement_.num_local_experts_per_layer(rank));
        for (const schedule::LocalExpert& local : placement_.local_experts(rank)) {
            shard.set(local.layer_id,
                      static_cast<size_t>(local.local_id),
                      model_.expert(local.layer_id, local.expert));
        }
        const auto experts = pair_.experts->make(shard.setup());
        ops::SerialParallel serial;
        alignas(128) std::array<std::byte, schedule::kMetricsBytes> metrics{};
        FfnLoop loop(
            {.transport = transport.get(),
             .layout = &instance_.layout(),
             .placement = &placement_,
             .experts = experts.get(),
             .hidden = ops::test::kMatrixHidden,
             .parallel = &serial,
             .port = ports_[rank].get(),
             .metrics = MetricsWriter(metrics.data())},
            {.policy = schedule::FfnPolicy::kGather, .num_sessions = 1, .num_micro_batches = 1},
            schedule::AdaptiveWait(transport->doorbell(), 20, false));
        loop.run();
    }

    ops::MoePair pair_;
    const MatrixModel& model_;
    schedule::ExpertPlacement placement_;
    schedule::LocalInstance instance_;
    std::vector<std::unique_ptr<WorkerPort>> ports_;
    std::vector<std::thread> threads_;
};

class WindowMatrix : public testing::TestWithParam<std::tuple<ops::MoePair, bool>> {};

TEST_P(WindowMatrix, GivesTheBitsOfItsRowsAlone) {
    const auto& [pair, has_shared_stage] = GetParam();
    const MatrixModel model(pair.quantisation);
    const bool is_reference = pair.experts->capability->name == "reference";
    MatrixOracle oracle(model, is_reference);
    Ranks ranks(pair, model, has_shared_stage ? 0 : 1);
    const auto transport = ranks.instance().dispatch(0);
    WindowPrepareFinalize windows(
        *transport, ranks.instance().layout().geometry, ranks.placement(), 0);

    MatrixShard shared(1);
    for (uint32_t layer = 0; layer < ops::test::kMatrixLayers; ++layer) {
        shared.set(layer, 0, model.expert(layer, ops::test::kMatrixExperts));
    }
    const auto stage = ops::find_experts(is_reference ? "reference" : "grouped_bf16")
                           .value()
                           ->make(shared.setup());
    ops::FusedMoeConfig config = ops::test::matrix_config(pair.quantisation);
    config.has_shared_stage = has_shared_stage;
    config.wait_timeout_us = 60'000'000;
    ops::RemoteExperts remote(*pair.experts->capability);
    ops::SerialParallel serial;
    auto moe = ops::FusedMoe::compose(
        windows, remote, config, serial, has_shared_stage ? stage.get() : nullptr);
    ASSERT_TRUE(moe.ok()) << moe.error().message;

    const ops::test::RandomMatrix x = ops::test::matrix_tokens();
    for (const MatrixCase& c : ops::test::matrix_cases()) {
        while (!moe.value().slot_free(0)) std::this_thread::yield();
        std::vector<ops::Bf16> out(c.num_tokens * ops::test::kMatrixHidden);
        const auto applied = moe.value().apply(
            c.input(x), ops::make_rows(out.data(), c.num_tokens, ops::test::kMatrixHidden));
        ASSERT_TRUE(applied.ok()) << c.name() << ": " << applied.error().message;
        ASSERT_EQ(out, oracle.expected(c)) << c.name();
    }
}

using PairAndStage = std::tuple<ops::MoePair, bool>;

std::string label(const testing::TestParamInfo<PairAndStage>& of) {
    const auto& [pair, has_shared_stage] = of.param;
    return std::string(pair.experts->capability->name) + "_" +
           std::string(name_of(pair.quantisation)) + (has_shared_stage ? "_shared_stage" : "");
}

INSTANTIATE_TEST_SUITE_P(Pairs,
                         WindowMatrix,
                         testing::Combine(testing::ValuesIn(window_pairs()), testing::Bool()),
                         label);

}  // namespace
}  // namespace afd::daemon

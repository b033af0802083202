// SPDX-License-Identifier: Apache-2.0
//
// Goal: the fused-MoE test matrix over windows: every Experts part that FFN workers can run, every
// dtype of rows, either place of the shared experts and of the routing weights give the layer's
// exact output at the attention worker, also where the FFN workers route. Method: one session and
// two FFN ranks, each a thread over one mapping; the cases of tests/ops/fused_moe/moe_matrix.h.
// Where ranks route, the session chooses the same cases' experts itself, as in a dense layer; and
// gates choose, of which one spreads its choice, one has favourites and one always names the same
// expert (no gate masks or repeats). Oracle: MatrixOracle, bit for bit; of gates with what each
// says of a row alone.

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "daemon/ffn/ffn_loop.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "tests/daemon/lanes/remote_matrix.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

using ops::test::MatrixCase;

enum class GateKind { kSpread, kFavourites, kOneExpert };

model::Router make_router(GateKind kind, uint32_t top_k) {
    std::vector<model::Router::Gate> gates(ops::test::kMatrixLayers);
    for (uint32_t layer = 0; layer < ops::test::kMatrixLayers; ++layer) {
        const ops::test::RandomMatrix weight(
            ops::test::kMatrixExperts, ops::test::kMatrixHidden, 77 + layer);
        gates[layer].weight = ops::PackedLinear::pack(weight.rows(), ops::best_numeric_class());
        for (uint32_t e = 0; e < ops::test::kMatrixExperts; ++e) {
            const float favour = kind == GateKind::kFavourites ? 1.0f / static_cast<float>(e + 1)
                                                               : (e == 5 ? 10.0f : 0.0f);
            gates[layer].bias.push_back(kind == GateKind::kSpread ? 0.0f : favour);
        }
    }
    return model::Router::make({.num_experts = ops::test::kMatrixExperts,
                                .top_k = top_k,
                                .norm = ops::GatingNorm::kSigmoid,
                                .norm_topk_prob = true,
                                .routed_scaling_factor = 2.5F},
                               std::move(gates))
        .value();
}

// A session, and FFN ranks that run one Experts part until the object ends.
class System {
  public:
    explicit System(const RemoteCase& of, const model::Router* router = nullptr)
        : case_(of),
          router_(router),
          placement_(matrix_placement(of)),
          instance_({.num_sessions = 1,
                     .num_micro_batches = 1,
                     .micro_batch_size = ops::test::kMatrixTokens,
                     .selected_expert_num =
                         static_cast<uint32_t>(ops::test::kMatrixTopK) + of.num_dispatched_shared(),
                     .num_experts = static_cast<uint32_t>(ops::test::kMatrixExperts) +
                                    of.num_dispatched_shared(),
                     .attn_to_ffn_token_bytes = 512,
                     .ffn_to_attn_token_bytes = 512,
                     .num_ffn_workers = kMatrixRanks}),
          transport_(instance_.dispatch(0)),
          windows_(*transport_,
                   instance_.layout().geometry,
                   placement_,
                   0,
                   router == nullptr ? schedule::RouterPlacement::kAttention
                                     : schedule::RouterPlacement::kFfn,
                   of.dispatch_dtype),
          stage_(shared_stage(of)),
          remote_(*of.pair.experts->capability) {
        for (uint32_t rank = 0; rank < kMatrixRanks; ++rank) {
            ports_.push_back(std::make_unique<WorkerPort>(16, 16, instance_.rank_doorbell(rank)));
        }
        for (uint32_t rank = 0; rank < kMatrixRanks; ++rank) {
            threads_.emplace_back([this, rank] { run(rank); });
        }
    }
    ~System() {
        for (auto& port : ports_) port->push_command({.kind = WorkerCommand::Kind::kShutdown});
        for (std::thread& thread : threads_) thread.join();
    }
    System(const System&) = delete;
    System& operator=(const System&) = delete;

    Result<ops::FusedMoe> compose(bool needs_routing) {
        ops::FusedMoeConfig config = case_.config();
        config.needs_routing = needs_routing;
        return ops::FusedMoe::compose(windows_,
                                      remote_,
                                      config,
                                      serial_,
                                      stage_ == nullptr ? nullptr : stage_->experts.get());
    }

  private:
    void run(uint32_t rank) {
        const auto transport = instance_.returns(rank);
        const MatrixPart part = rank_part(case_, placement_, rank);
        ops::SerialParallel serial;
        std::vector<std::byte> metrics(instance_.layout().ffn_metrics_bytes);
        FfnLoop loop({.transport = transport.get(),
                      .placement = &placement_,
                      .experts = part.experts.get(),
                      .hidden = ops::test::kMatrixHidden,
                      .dispatch_dtype = case_.dispatch_dtype,
                      .router = router_,
                      .parallel = &serial,
                      .port = ports_[rank].get(),
                      .metrics = Metrics(metrics)},
                     std::make_unique<schedule::FfnScheduler>(schedule::FfnSchedulerConfig{}),
                     schedule::AdaptiveWait(transport->doorbell(), 20, false));
        loop.run();
    }

    const RemoteCase case_;
    const model::Router* router_;
    schedule::ExpertPlacement placement_;
    schedule::LocalInstance instance_;
    std::unique_ptr<schedule::ShmDispatchTransport> transport_;
    WindowPrepareFinalize windows_;
    std::unique_ptr<MatrixPart> stage_;
    ops::RemoteExperts remote_;
    ops::SerialParallel serial_;
    std::vector<std::unique_ptr<WorkerPort>> ports_;
    std::vector<std::thread> threads_;
};

// What the layer gives for the case; `input` is the case's, routed or not.
std::vector<ops::Bf16> run_case(ops::FusedMoe& moe,
                                const MatrixCase& c,
                                const ops::MoeInput& input) {
    while (!moe.slot_free(0)) std::this_thread::yield();
    std::vector<ops::Bf16> out(c.num_tokens * ops::test::kMatrixHidden);
    const auto applied =
        moe.apply(input, ops::make_rows(out.data(), c.num_tokens, ops::test::kMatrixHidden));
    EXPECT_TRUE(applied.ok()) << c.name() << ": " << applied.error().message;
    return out;
}

class WindowMatrix : public testing::TestWithParam<RemoteCase> {};

TEST_P(WindowMatrix, GivesTheBitsOfItsRowsAlone) {
    const bool ranks_route = GetParam().pair.prepare_finalize->capability->routes;
    const model::Router router = make_router(GateKind::kSpread, ops::test::kMatrixTopK);
    System system(GetParam(), ranks_route ? &router : nullptr);
    auto moe = system.compose(false);
    ASSERT_TRUE(moe.ok()) << moe.error().message;
    const ops::test::RandomMatrix x = ops::test::matrix_tokens();
    for (const MatrixCase& c : ops::test::matrix_cases()) {
        if (!GetParam().takes(c)) continue;
        ASSERT_EQ(run_case(moe.value(), c, GetParam().input(c, x)), matrix_expected(GetParam(), c))
            << c.name();
    }
}

INSTANTIATE_TEST_SUITE_P(AttentionRoutes,
                         WindowMatrix,
                         testing::ValuesIn(remote_cases("afd_window")),
                         remote_case_name);
INSTANTIATE_TEST_SUITE_P(FfnRoutes,
                         WindowMatrix,
                         testing::ValuesIn(remote_cases("afd_window_ffn_router")),
                         remote_case_name);

class GateMatrix : public testing::TestWithParam<RemoteCase> {};

TEST_P(GateMatrix, GivesTheBitsOfWhatGatesSayOfRowsAlone) {
    const ops::test::RandomMatrix x = ops::test::matrix_tokens();
    ops::SerialParallel serial;
    for (const GateKind kind : {GateKind::kSpread, GateKind::kFavourites, GateKind::kOneExpert}) {
        for (const uint32_t top_k : {1u, 4u, 8u}) {
            const model::Router router = make_router(kind, top_k);
            const ops::Workspace workspace(router.workspace_bytes(1, 1));
            System system(GetParam(), &router);
            auto moe = system.compose(true);
            ASSERT_TRUE(moe.ok()) << moe.error().message;
            for (const uint32_t num_tokens : {0u, 1u, 7u, 33u, 257u}) {
                MatrixCase c(num_tokens, top_k, ops::test::Routing::kUniform);
                for (uint32_t token = 0; token < num_tokens; ++token) {
                    router.route(ops::test::kMatrixLayer,
                                 x.rows().slice(token, 1),
                                 {&c.ids[token * top_k], &c.weights[token * top_k]},
                                 workspace.bytes(),
                                 serial);
                }
                ops::MoeInput unrouted = c.input(x);
                unrouted.topk_ids = nullptr;
                unrouted.topk_weights = nullptr;
                ASSERT_EQ(run_case(moe.value(), c, unrouted), matrix_oracle(GetParam()).expected(c))
                    << c.name() << ", gate " << static_cast<int>(kind);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(FfnRoutes,
                         GateMatrix,
                         testing::ValuesIn(remote_cases("afd_window_ffn_router")),
                         remote_case_name);

}  // namespace
}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Goal: the MoE layer over windows gives the bits of the local composition, whatever the number of
// FFN workers, sessions and micro-batches and whichever side routes, and no access of it races.
// Method: every role is a thread over one mapping (so a thread sanitizer sees all of them): FFN
// loops with the real experts, and sessions that keep all their micro-batches in flight with random
// rows and routings, masked slots and ragged sizes included. With router = ffn the sessions send
// rows only, now and then one with a NaN; the FFN loops have the gates. Some shapes run over
// ToyNetwork instead, where the roles share no memory and messages arrive late and mixed.
// Oracle: local_result of tests/daemon/lanes/random_moe.h; with router = ffn over what the gates
// say of each row alone, and the weights that come back are these.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "daemon/ffn/ffn_loop.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "tests/daemon/lanes/random_moe.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/transport/toy_network.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kTokensMax = 8;
constexpr auto kAttention = schedule::RouterPlacement::kAttention;
constexpr auto kFfn = schedule::RouterPlacement::kFfn;

// Gates of the MoE layers, with a bias and two groups of which the better one is chosen from.
model::Router make_router() {
    std::vector<model::Router::Gate> gates(kLayers);
    for (uint32_t layer = 1; layer < kLayers; ++layer) {
        const Matrix weight = random_matrix(kRoutedExperts, kHidden, 77 * layer);
        gates[layer].weight = ops::PackedLinear::pack(
            ops::make_rows(weight.data(), kRoutedExperts, kHidden), ops::best_numeric_class());
        for (uint32_t e = 0; e < kRoutedExperts; ++e) {
            gates[layer].bias.push_back(static_cast<float>(e % 3) / 8);
        }
    }
    return model::Router::make({.num_experts = kRoutedExperts,
                                .top_k = kTopK,
                                .norm = ops::GatingNorm::kSigmoid,
                                .n_group = 2,
                                .topk_group = 1,
                                .group_select_mode = ops::GroupSelectMode::kSumOfTwoBest,
                                .norm_topk_prob = true,
                                .routed_scaling_factor = 2.5F},
                               std::move(gates))
        .value();
}

// What a session gives to its windows: with router = ffn an MoE layer's rows are not routed.
ops::MoeInput window_input(const Call& call, schedule::RouterPlacement router) {
    ops::MoeInput sent = call.input;
    if (router == kFfn && sent.layer_id != 0) {
        sent.topk_ids = nullptr;
        sent.topk_weights = nullptr;
    }
    return sent;
}

// Routes the call row by row.
void route(Call& call, const model::Router& router) {
    if (call.input.layer_id == 0) return;
    std::mt19937 random(call.input.num_tokens);
    ops::SerialParallel serial;
    const ops::Workspace workspace(router.workspace_bytes(1, 1));
    for (uint32_t t = 0; t < call.input.num_tokens; ++t) {
        if (random() % 16 == 0) call.x[t * kHidden] = ops::from_float(NAN);
        router.route(call.input.layer_id,
                     call.input.x.slice(t, 1),
                     {&call.ids[t * kTopK], &call.weights[t * kTopK]},
                     workspace.bytes(),
                     serial);
    }
}

// What all threads of a test share.
template <typename Instance>
struct RoutedSystem {
    Instance& instance;
    const schedule::ExpertPlacement& placement;
    schedule::RouterPlacement router;
    model::Router gates = make_router();
};

bool same_bits(const float* a, const float* b, size_t count) {
    return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

// A session's thread: `num_calls` calls, all micro-batches in flight at once.
template <typename Instance>
void run_session(const RoutedSystem<Instance>& system, uint32_t session, uint32_t num_calls) {
    const bool ffn_routes = system.router == kFfn;
    const schedule::Geometry& geometry = system.instance.layout().geometry;
    const auto transport = system.instance.dispatch(session);
    WindowPrepareFinalize windows(*transport, geometry, system.placement, session, system.router);
    ops::RemoteExperts remote(ops::kGroupedBf16);
    ops::SerialParallel serial;
    ops::FusedMoeConfig config = moe_config(kTokensMax, geometry.num_micro_batches);
    config.needs_routing = ffn_routes;
    auto moe = ops::FusedMoe::compose(windows, remote, config, serial);
    ASSERT_TRUE(moe.ok()) << moe.error().message;
    schedule::AdaptiveWait wait(transport->doorbell(), 20, false);

    struct Lane {
        std::unique_ptr<Call> call;
        ops::MoeTicket ticket;
    };
    std::vector<Lane> lanes(geometry.num_micro_batches);
    uint32_t num_started = 0;
    uint32_t num_finished = 0;
    while (num_finished < num_calls) {
        bool progressed = false;
        for (uint32_t m = 0; m < lanes.size(); ++m) {
            Lane& lane = lanes[m];
            if (lane.call && moe.value().ready(lane.ticket)) {
                Matrix out(size_t{kTokensMax} * kHidden);
                const uint32_t num_tokens = lane.call->input.num_tokens;
                const auto finished = moe.value().finish(
                    std::move(lane.ticket), ops::make_rows(out.data(), num_tokens, kHidden));
                ASSERT_TRUE(finished.ok()) << finished.error().message;
                ASSERT_EQ(bits_of(out, size_t{num_tokens} * kHidden), local_result(*lane.call))
                    << "session " << session << ", call " << num_finished;
                if (ffn_routes && lane.call->input.layer_id != 0) {
                    ASSERT_TRUE(same_bits(windows.topk_weights(m),
                                          lane.call->weights.data(),
                                          size_t{num_tokens} * kTopK));
                }
                lane.call.reset();
                ++num_finished;
                progressed = true;
            }
            if (!lane.call && num_started < num_calls && moe.value().slot_free(m)) {
                lane.call = std::make_unique<Call>(session * 100000 + num_started++, kTokensMax);
                if (ffn_routes) route(*lane.call, system.gates);
                auto ticket = moe.value().start(window_input(*lane.call, system.router), m);
                ASSERT_TRUE(ticket.ok()) << ticket.error().message;
                lane.ticket = std::move(ticket).value();
                progressed = true;
            }
        }
        if (progressed) continue;
        const bool woken =
            wait.until(schedule::steady_now_us() + 30'000'000, true, [&](schedule::Order order) {
                for (uint32_t m = 0; m < lanes.size(); ++m) {
                    if (windows.is_answered(m, order)) return true;
                }
                return false;
            });
        ASSERT_TRUE(woken) << "session " << session << " waited 30 s";
    }
}

template <typename Instance>
void run_rank(const RoutedSystem<Instance>& system, uint32_t rank, WorkerPort& port) {
    const auto transport = system.instance.returns(rank);
    const ops::ExpertTable table = shard(system.placement, rank);
    ops::GroupedExperts experts(table, system.placement.num_local_experts_per_layer(rank));
    ops::SerialParallel serial;
    std::vector<std::byte> metrics(system.instance.layout().ffn_metrics_bytes);
    FfnLoop loop({.transport = transport.get(),
                  .placement = &system.placement,
                  .experts = &experts,
                  .hidden = kHidden,
                  .router = system.router == kFfn ? &system.gates : nullptr,
                  .parallel = &serial,
                  .port = &port,
                  .metrics = Metrics(metrics)},
                 std::make_unique<schedule::FfnScheduler>(schedule::FfnSchedulerConfig{
                     .policy = schedule::FfnPolicy::kGather,
                     .num_sessions = system.instance.layout().geometry.num_sessions,
                     .num_micro_batches = system.instance.layout().geometry.num_micro_batches}),
                 schedule::AdaptiveWait(transport->doorbell(), 20, false));
    loop.run();
}

// Experts that are neither neighbours nor alone: expert e is on ranks e % F and (e + 2) % F, under
// local ids that fall as e rises; the sessions divide the replicas among themselves.
schedule::ExpertPlacement scattered_placement(uint32_t num_ranks) {
    std::vector<std::vector<std::vector<schedule::ExpertReplica>>> table(kLayers);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const uint32_t num_experts = layer == 0 ? 1 : kPerLayer;
        for (uint32_t e = 0; e < num_experts; ++e) {
            const auto local_id = static_cast<int32_t>(kPerLayer - 1 - e);
            std::vector<schedule::ExpertReplica>& replicas = table[layer].emplace_back();
            replicas.push_back({e % num_ranks, local_id});
            if (num_ranks > 2) replicas.push_back({(e + 2) % num_ranks, local_id});
        }
    }
    return schedule::ExpertPlacement::from_table(table, num_ranks).value();
}

struct RoutedShape {
    uint32_t num_sessions;
    uint32_t num_ranks;
    uint32_t num_micro_batches;
    schedule::RouterPlacement router = schedule::RouterPlacement::kAttention;
    bool is_scattered = false;
    bool is_toy = false;
};

template <typename Instance>
void run_shape(const RoutedShape& shape) {
    const schedule::ExpertPlacement placement =
        shape.is_scattered ? scattered_placement(shape.num_ranks) : placement_of(shape.num_ranks);
    Instance instance({.num_sessions = shape.num_sessions,
                       .num_micro_batches = shape.num_micro_batches,
                       .micro_batch_size = kTokensMax,
                       .selected_expert_num = kTopK + 1,
                       .num_experts = kRoutedExperts + 1,
                       .attn_to_ffn_token_bytes = 512,
                       .ffn_to_attn_token_bytes = 512,  // Room for a weight.
                       .num_ffn_workers = shape.num_ranks});
    const RoutedSystem<Instance> system{instance, placement, shape.router};

    std::vector<std::unique_ptr<WorkerPort>> ports;
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < shape.num_ranks; ++rank) {
        WorkerPort& port =
            *ports.emplace_back(std::make_unique<WorkerPort>(16, 16, instance.rank_doorbell(rank)));
        ranks.emplace_back([&, rank] { run_rank(system, rank, port); });
    }
    std::vector<std::thread> sessions;
    for (uint32_t session = 0; session < shape.num_sessions; ++session) {
        sessions.emplace_back([&, session] { run_session(system, session, 150); });
    }
    for (std::thread& session : sessions) session.join();
    for (auto& port : ports) {
        ASSERT_TRUE(port->push_command({.kind = WorkerCommand::Kind::kShutdown}));
    }
    for (std::thread& rank : ranks) rank.join();
}

class WindowMoe : public testing::TestWithParam<RoutedShape> {};

TEST_P(WindowMoe, GivesTheBitsOfTheLocalComposition) {
    if (GetParam().is_toy) {
        run_shape<schedule::ToyNetwork>(GetParam());
    } else {
        run_shape<schedule::LocalInstance>(GetParam());
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         WindowMoe,
                         testing::Values(RoutedShape{1, 1, 1},
                                         RoutedShape{1, 2, 3},
                                         RoutedShape{3, 2, 2},
                                         RoutedShape{2, 3, 2, kAttention, true},
                                         RoutedShape{1, 1, 1, kFfn},
                                         RoutedShape{3, 2, 2, kFfn},
                                         RoutedShape{2, 3, 2, kFfn, true},
                                         // More ranks than experts: some only know that.
                                         RoutedShape{1, 8, 2, kFfn},
                                         RoutedShape{3, 2, 2, kAttention, false, true},
                                         RoutedShape{2, 3, 2, kFfn, true, true}),
                         [](const auto& shape) {
                             return "A" + std::to_string(shape.param.num_sessions) + "F" +
                                    std::to_string(shape.param.num_ranks) + "M" +
                                    std::to_string(shape.param.num_micro_batches) +
                                    (shape.param.router == kFfn ? "RouterFfn" : "") +
                                    (shape.param.is_scattered ? "Scattered" : "") +
                                    (shape.param.is_toy ? "Toy" : "");
                         });

// Goal: an id between the routed experts and the shared ones is treated alike on the way there and
// back: the call is refused and nothing of it is sent, so nothing is awaited for ever. Method: such
// an id, then in the same slot the call without it, its first pick masked. Oracle: the message, and
// the bits of the local composition.
TEST(WindowMoeIds, APickOfASharedExpertIsRefusedBeforeAnythingIsSent) {
    const schedule::ExpertPlacement placement = placement_of(1);
    schedule::LocalInstance instance({.num_sessions = 1,
                                      .num_micro_batches = 1,
                                      .micro_batch_size = kTokensMax,
                                      .selected_expert_num = kTopK + 1,
                                      .num_experts = kRoutedExperts + 1,
                                      .attn_to_ffn_token_bytes = 512,
                                      .ffn_to_attn_token_bytes = 512,
                                      .num_ffn_workers = 1});
    const RoutedSystem<schedule::LocalInstance> system{instance, placement, kAttention};
    const auto transport = instance.dispatch(0);
    WindowPrepareFinalize windows(
        *transport, instance.layout().geometry, placement, 0, system.router);
    ops::RemoteExperts remote(ops::kGroupedBf16);
    ops::SerialParallel serial;
    auto moe = ops::FusedMoe::compose(windows, remote, moe_config(kTokensMax, 1), serial).value();
    uint32_t seed = 0;
    auto call = std::make_unique<Call>(seed, kTokensMax);
    while (call->input.layer_id == 0 || call->input.num_tokens == 0) {
        call = std::make_unique<Call>(++seed, kTokensMax);
    }
    call->ids[0] = static_cast<int32_t>(kRoutedExperts);
    const auto refused = moe.start(call->input, 0);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "layer " + std::to_string(call->input.layer_id) + ": expert " +
                  std::to_string(kRoutedExperts) + " was chosen, the layer has " +
                  std::to_string(kRoutedExperts));
    ASSERT_TRUE(moe.slot_free(0));

    call->ids[0] = -1;
    auto ticket = moe.start(call->input, 0);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    WorkerPort port(16, 16, instance.rank_doorbell(0));
    std::thread rank([&] { run_rank(system, 0, port); });
    schedule::AdaptiveWait wait(transport->doorbell(), 20, false);
    EXPECT_TRUE(wait.until(schedule::steady_now_us() + 30'000'000,
                           true,
                           [&](schedule::Order order) { return windows.is_answered(0, order); }));
    Matrix out(size_t{kTokensMax} * kHidden);
    const uint32_t num_tokens = call->input.num_tokens;
    const auto finished =
        moe.finish(std::move(ticket).value(), ops::make_rows(out.data(), num_tokens, kHidden));
    EXPECT_TRUE(finished.ok()) << finished.error().message;
    EXPECT_EQ(bits_of(out, size_t{num_tokens} * kHidden), local_result(*call));
    EXPECT_TRUE(port.push_command({.kind = WorkerCommand::Kind::kShutdown}));
    rank.join();
}

}  // namespace
}  // namespace afd::daemon

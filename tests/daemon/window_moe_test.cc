// SPDX-License-Identifier: Apache-2.0
//
// Goal: the MoE layer over windows gives the bits of the local composition, whatever the number of
// FFN workers, sessions and micro-batches, and no access of it races.
// Method: every role is a thread over one mapping (so a thread sanitizer sees all of them): FFN
// loops with the real experts, and sessions that keep all their micro-batches in flight with random
// rows and routings, masked slots and ragged sizes included.
// Oracle: ops::LocalPrepareFinalize with ops::GroupedExperts over the same weights.

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <thread>

#include "daemon/ffn_loop.h"
#include "daemon/window_prepare_finalize.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/grouped_experts.h"
#include "ops/fused_moe/local_prepare_finalize.h"
#include "tests/schedule/local_instance.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kHidden = 64;
constexpr uint32_t kLayers = 3;  // Layer 0 is dense.
constexpr uint32_t kExperts = 6;
constexpr uint32_t kTopK = 3;
constexpr uint32_t kTokensMax = 8;
constexpr uint32_t kPerLayer = kExperts + 1;  // And the shared one.

using Matrix = std::vector<ops::Bf16>;

Matrix random_matrix(size_t rows, size_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.2F);
    Matrix matrix(rows * cols);
    for (ops::Bf16& value : matrix) value = ops::from_float(normal(random));
    return matrix;
}

// The expert's weights depend only on layer and logical expert.
ops::PackedExpert make_expert(uint32_t layer, uint32_t expert) {
    const uint32_t intermediate = expert == kExperts || layer == 0 ? 48 : 32;
    const uint32_t seed = 1000 * layer + 10 * expert;
    const Matrix gate = random_matrix(intermediate, kHidden, seed + 1);
    const Matrix up = random_matrix(intermediate, kHidden, seed + 2);
    const Matrix down = random_matrix(kHidden, intermediate, seed + 3);
    return ops::pack_expert(ops::make_rows(gate.data(), intermediate, kHidden),
                            ops::make_rows(up.data(), intermediate, kHidden),
                            ops::make_rows(down.data(), kHidden, intermediate),
                            ops::best_numeric_class());
}

std::vector<schedule::LayerExperts> layers() {
    return {{0, 1}, {kExperts, 1}, {kExperts, 1}};
}

ops::ExpertTable shard(const schedule::ExpertPlacement& placement, uint32_t rank) {
    const size_t per_layer = placement.num_local_experts_per_layer(rank);
    ops::ExpertTable table(kLayers * per_layer, kHidden);
    for (const schedule::LocalExpert& local : placement.local_experts(rank)) {
        table.set(local.layer_id * per_layer + static_cast<size_t>(local.local_id),
                  make_expert(local.layer_id, local.expert));
    }
    return table;
}

ops::ExpertTable all_experts() {
    ops::ExpertTable table(kLayers * kPerLayer, kHidden);
    table.set(0, make_expert(0, 0));
    for (uint32_t layer = 1; layer < kLayers; ++layer) {
        for (uint32_t expert = 0; expert <= kExperts; ++expert) {
            table.set(layer * kPerLayer + expert, make_expert(layer, expert));
        }
    }
    return table;
}

// One random call of the layer, made from a seed.
struct Call {
    Matrix x;
    std::vector<int32_t> ids;
    std::vector<float> weights;
    ops::MoeInput input;

    explicit Call(uint32_t seed) {
        std::mt19937 random(seed);
        input.num_tokens = static_cast<uint32_t>(random()) % (kTokensMax + 1);
        input.layer_id = static_cast<uint32_t>(random()) % kLayers;
        input.top_k = kTopK;
        input.num_shared = input.layer_id == 0 ? 0 : 1;
        x = random_matrix(input.num_tokens, kHidden, seed);
        for (uint32_t i = 0; i < input.num_tokens * kTopK; ++i) {
            const bool is_masked = random() % 5 == 0;
            const auto expert = static_cast<int32_t>(random() % kExperts);
            const int32_t dense = i % kTopK == 0 ? 0 : -1;
            ids.push_back(input.layer_id == 0 ? dense : is_masked ? -1 : expert);
            weights.push_back(static_cast<float>(random() % 100) / 100);
        }
        input.x = ops::make_rows<const ops::Bf16>(x.data(), input.num_tokens, kHidden);
        input.topk_ids = ids.data();
        input.topk_weights = weights.data();
    }
};

std::vector<uint16_t> bits_of(const Matrix& rows, size_t count) {
    std::vector<uint16_t> bits;
    for (size_t i = 0; i < count; ++i) bits.push_back(rows[i].bits);
    return bits;
}

ops::FusedMoeConfig moe_config(uint32_t num_micro_batches) {
    return {.hidden = kHidden,
            .num_experts = kExperts,
            .top_k = kTopK,
            .num_shared = 1,
            .max_num_tokens = kTokensMax,
            .num_micro_batches = num_micro_batches};
}

std::vector<uint16_t> local_result(const ops::ExpertTable& table, const Call& call) {
    ops::SerialParallel serial;
    ops::LocalPrepareFinalize prepare_finalize(moe_config(1), serial);
    ops::GroupedExperts experts(table, kPerLayer);
    auto moe = ops::FusedMoe::compose(prepare_finalize, experts, moe_config(1), serial);
    EXPECT_TRUE(moe.ok()) << moe.error().message;
    Matrix out(size_t{kTokensMax} * kHidden);
    const auto applied =
        moe.value().apply(call.input, ops::make_rows(out.data(), call.input.num_tokens, kHidden));
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    return bits_of(out, size_t{call.input.num_tokens} * kHidden);
}

// A session's thread: `num_calls` calls, all micro-batches in flight at once.
void run_session(schedule::LocalInstance& instance,
                 const schedule::ExpertPlacement& placement,
                 const ops::ExpertTable& table,
                 uint32_t session,
                 uint32_t num_calls) {
    const schedule::Geometry& geometry = instance.layout().geometry;
    const auto transport = instance.dispatch(session);
    WindowPrepareFinalize windows(*transport, geometry, placement, session);
    ops::RemoteExperts remote(ops::kGroupedBf16);
    ops::SerialParallel serial;
    auto moe =
        ops::FusedMoe::compose(windows, remote, moe_config(geometry.num_micro_batches), serial);
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
                ASSERT_EQ(bits_of(out, size_t{num_tokens} * kHidden),
                          local_result(table, *lane.call))
                    << "session " << session << ", call " << num_finished;
                lane.call.reset();
                ++num_finished;
                progressed = true;
            }
            if (!lane.call && num_started < num_calls && moe.value().slot_free(m)) {
                lane.call = std::make_unique<Call>(session * 100000 + num_started++);
                auto ticket = moe.value().start(lane.call->input, m);
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

void run_rank(schedule::LocalInstance& instance,
              const schedule::ExpertPlacement& placement,
              uint32_t rank,
              WorkerPort& port) {
    const auto transport = instance.returns(rank);
    const ops::ExpertTable table = shard(placement, rank);
    ops::GroupedExperts experts(table, placement.num_local_experts_per_layer(rank));
    ops::SerialParallel serial;
    alignas(128) std::array<std::byte, schedule::kMetricsBytes> metrics{};
    FfnLoop loop({.transport = transport.get(),
                  .layout = &instance.layout(),
                  .placement = &placement,
                  .experts = &experts,
                  .hidden = kHidden,
                  .parallel = &serial,
                  .port = &port,
                  .metrics = MetricsWriter(metrics.data())},
                 {.policy = schedule::FfnPolicy::kGather,
                  .num_sessions = instance.layout().geometry.num_sessions,
                  .num_micro_batches = instance.layout().geometry.num_micro_batches},
                 schedule::AdaptiveWait(transport->doorbell(), 20, false));
    loop.run();
}

struct Shape {
    uint32_t num_sessions;
    uint32_t num_ranks;
    uint32_t num_micro_batches;
};

class WindowMoe : public testing::TestWithParam<Shape> {};

TEST_P(WindowMoe, GivesTheBitsOfTheLocalComposition) {
    const Shape shape = GetParam();
    const schedule::ExpertPlacement placement =
        schedule::ExpertPlacement::round_robin(layers(), shape.num_ranks).value();
    schedule::LocalInstance instance({.num_sessions = shape.num_sessions,
                                      .num_micro_batches = shape.num_micro_batches,
                                      .micro_batch_size = kTokensMax,
                                      .selected_expert_num = kTopK + 1,
                                      .num_experts = kExperts + 1,
                                      .attn_to_ffn_token_bytes = 512,
                                      .ffn_to_attn_token_bytes = 512,
                                      .num_ffn_workers = shape.num_ranks});
    const ops::ExpertTable table = all_experts();

    std::vector<std::unique_ptr<WorkerPort>> ports;
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < shape.num_ranks; ++rank) {
        WorkerPort& port =
            *ports.emplace_back(std::make_unique<WorkerPort>(16, 16, instance.rank_doorbell(rank)));
        ranks.emplace_back([&, rank] { run_rank(instance, placement, rank, port); });
    }
    std::vector<std::thread> sessions;
    for (uint32_t session = 0; session < shape.num_sessions; ++session) {
        sessions.emplace_back(
            [&, session] { run_session(instance, placement, table, session, 150); });
    }
    for (std::thread& session : sessions) session.join();
    for (auto& port : ports) {
        ASSERT_TRUE(port->push_command({.kind = WorkerCommand::Kind::kShutdown}));
    }
    for (std::thread& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         WindowMoe,
                         testing::Values(Shape{1, 1, 1}, Shape{1, 2, 3}, Shape{3, 2, 2}),
                         [](const auto& shape) {
                             return "A" + std::to_string(shape.param.num_sessions) + "F" +
                                    std::to_string(shape.param.num_ranks) + "M" +
                                    std::to_string(shape.param.num_micro_batches);
                         });

}  // namespace
}  // namespace afd::daemon

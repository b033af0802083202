// SPDX-License-Identifier: Apache-2.0

#include "bench/moe_window_rank.h"

namespace afd::bench {
namespace {

constexpr uint32_t kSpinUs = 50;
constexpr uint32_t kRowAlignment = 512;

uint32_t row_bytes(const MoeSizes& sizes) {
    const auto bytes = static_cast<uint32_t>(sizes.hidden * sizeof(ops::Bf16));
    return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

schedule::Geometry geometry_of(const MoeSizes& sizes) {
    return {.num_sessions = 1,
            .num_micro_batches = 1,
            .micro_batch_size = sizes.num_tokens,
            .selected_expert_num = sizes.top_k,
            .num_experts = sizes.num_experts,
            .attn_to_ffn_token_bytes = row_bytes(sizes),
            .ffn_to_attn_token_bytes = row_bytes(sizes),
            .num_ffn_workers = 1};
}

schedule::InstanceIdentity identity() {
    return {static_cast<uint64_t>(::getpid()), "bench", "bench"};
}

}  // namespace

MoeWindowRank::MoeWindowRank(const MoeSubject& subject, const schedule::WindowLayout& layout)
    : subject_(subject),
      layout_(layout),
      placement_(schedule::ExpertPlacement::round_robin(
                     std::vector<schedule::LayerExperts>{{subject.sizes().num_experts, 0}}, 1)
                     .value()),
      prefix_("/afd-bench-moe-" + std::to_string(::getpid())),
      port_(16, 16, rank_doorbell_.fd) {}

Result<std::unique_ptr<MoeWindowRank>> MoeWindowRank::start(const MoeSubject& subject,
                                                            const ops::ExpertsEntry& experts,
                                                            ops::StageProfile* profile) {
    AFD_ASSIGN(const schedule::WindowLayout layout,
               schedule::WindowLayout::compute(geometry_of(subject.sizes())));
    std::unique_ptr<MoeWindowRank> rank(new MoeWindowRank(subject, layout));
    AFD_TRY(rank->attach());
    rank->thread_ =
        std::thread([made = rank.get(), &experts, profile] { made->run(experts, profile); });
    return rank;
}

Result<> MoeWindowRank::attach() {
    AFD_ASSIGN(schedule::InstanceSegments created,
               schedule::InstanceSegments::create(prefix_, layout_, identity()));
    segments_ = std::make_unique<schedule::InstanceSegments>(std::move(created));
    AFD_ASSIGN(dispatch_,
               schedule::ShmDispatchTransport::attach({.prefix = prefix_,
                                                       .layout = layout_,
                                                       .identity = identity(),
                                                       .own_doorbell = session_doorbell_.fd,
                                                       .peer_doorbells = {rank_doorbell_.fd}},
                                                      0));
    AFD_ASSIGN(returns_,
               schedule::ShmReturnTransport::attach({.prefix = prefix_,
                                                     .layout = layout_,
                                                     .identity = identity(),
                                                     .own_doorbell = rank_doorbell_.fd,
                                                     .peer_doorbells = {session_doorbell_.fd}},
                                                    0));
    windows_ = std::make_unique<daemon::WindowPrepareFinalize>(
        *dispatch_, layout_.geometry, placement_, 0);
    return {};
}

void MoeWindowRank::run(const ops::ExpertsEntry& experts, ops::StageProfile* profile) {
    const MoeSubject::Shard shard = subject_.shard(0, 1);
    const auto part = experts.make(shard.setup());
    ops::SerialParallel serial;
    alignas(128) std::array<std::byte, schedule::kMetricsBytes> metrics{};
    daemon::FfnLoop loop(
        {.transport = returns_.get(),
         .layout = &layout_,
         .placement = &placement_,
         .experts = part.get(),
         .hidden = subject_.sizes().hidden,
         .parallel = &serial,
         .port = &port_,
         .metrics = daemon::MetricsWriter(metrics.data()),
         .profile = profile},
        {.policy = schedule::FfnPolicy::kGather, .num_sessions = 1, .num_micro_batches = 1},
        schedule::AdaptiveWait(returns_->doorbell(), kSpinUs, false));
    loop.run();
}

MoeWindowRank::~MoeWindowRank() {
    if (!thread_.joinable()) return;
    port_.push_command({.kind = daemon::WorkerCommand::Kind::kShutdown});
    thread_.join();
}

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0

#include "bench/fused_moe/moe_rank.h"

#include "daemon/config/instance_geometry.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/layout/row_checksum.h"

namespace afd::bench {
namespace {

constexpr uint32_t kSpinUs = 50;
constexpr uint32_t kRowAlignment = 512;
constexpr uint32_t kBlockTokens = 1024;  // As two_phase_block by default.

uint32_t aligned(size_t bytes) {
    return static_cast<uint32_t>((bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment);
}

schedule::Geometry geometry_of(const MoeSizes& sizes, schedule::RouterPlacement router) {
    const size_t row_bytes = sizes.hidden * sizeof(ops::Bf16);
    const size_t weight_bytes = router == schedule::RouterPlacement::kFfn ? sizeof(float) : 0;
    const size_t seal_bytes = sizes.row_checksums ? schedule::kRowSealBytes : 0;
    return {.num_sessions = 1,
            .num_micro_batches = 1,
            .micro_batch_size = sizes.num_tokens,
            .selected_expert_num = sizes.top_k,
            .num_experts = sizes.num_experts,
            .attn_to_ffn_token_bytes =
                aligned(ops::sent_row_bytes(sizes.dispatch_dtype, sizes.hidden) + seal_bytes),
            .ffn_to_attn_token_bytes = aligned(row_bytes + weight_bytes + seal_bytes),
            .num_ffn_workers = 1};
}

schedule::InstanceIdentity identity() {
    return {static_cast<uint64_t>(::getpid()), "bench", "bench"};
}

}  // namespace

MoeRank::MoeRank(const MoeSubject& subject,
                 const schedule::WindowLayout& layout,
                 schedule::RouterPlacement router)
    : subject_(subject),
      layout_(layout),
      router_(router),
      placement_(schedule::ExpertPlacement::round_robin(
                     std::vector<schedule::LayerExperts>{{subject.sizes().num_experts, 0}}, 1)
                     .value()),
      prefix_("/afd-bench-moe-" + std::to_string(::getpid())),
      port_(16, 16, rank_doorbell_.fd) {}

Result<std::unique_ptr<MoeRank>> MoeRank::start(const MoeSubject& subject,
                                                const ops::MoePair& pair,
                                                ops::Parallel& threads,
                                                ops::StageProfile* profile) {
    const ops::PrepareFinalizeCapability& record = *pair.prepare_finalize->capability;
    const auto router =
        record.routes ? schedule::RouterPlacement::kFfn : schedule::RouterPlacement::kAttention;
    AFD_ASSIGN(const schedule::WindowLayout layout,
               schedule::WindowLayout::compute(geometry_of(subject.sizes(), router)));
    std::unique_ptr<MoeRank> rank(new MoeRank(subject, layout, router));
    AFD_TRY(rank->attach());
    if (record.name == ops::kAfdTwoPhaseCapability.name) {
        AFD_TRY(rank->attach_two_phase(threads));
    } else {
        auto windows =
            std::make_unique<daemon::WindowPrepareFinalize>(*rank->dispatch_,
                                                            layout.geometry,
                                                            rank->placement_,
                                                            0,
                                                            router,
                                                            subject.sizes().dispatch_dtype);
        if (subject.sizes().row_checksums) windows->use_checksums();
        rank->prepare_finalize_ = std::move(windows);
    }
    rank->thread_ = std::thread(
        [made = rank.get(), experts = pair.experts, profile] { made->run(*experts, profile); });
    return rank;
}

schedule::AttachConfig MoeRank::config_of(const Doorbell& own, const Doorbell& peer) const {
    return {.prefix = prefix_,
            .layout = layout_,
            .identity = identity(),
            .own_doorbell = own.fd,
            .peer_doorbells = {peer.fd}};
}

Result<> MoeRank::attach() {
    AFD_ASSIGN(schedule::InstanceSegments created,
               schedule::InstanceSegments::create(prefix_, layout_, identity()));
    segments_ = std::make_unique<schedule::InstanceSegments>(std::move(created));
    AFD_ASSIGN(dispatch_,
               schedule::attach_dispatch(config_of(session_doorbell_, rank_doorbell_), 0));
    AFD_ASSIGN(returns_, schedule::attach_returns(config_of(rank_doorbell_, session_doorbell_), 0));
    return {};
}

Result<> MoeRank::attach_two_phase(ops::Parallel& threads) {
    const MoeSizes& sizes = subject_.sizes();
    const schedule::TwoPhaseCall call{.num_tokens = sizes.num_tokens,
                                      .block_tokens = kBlockTokens,
                                      .selected_expert_num = sizes.top_k};
    const auto row_bytes =
        daemon::two_phase_row_bytes(sizes.dispatch_dtype, sizes.hidden, sizes.row_checksums);
    const schedule::TwoPhaseSizes sizes_max =
        schedule::two_phase_sizes_max(call, placement_.num_local_experts_max(), row_bytes);
    two_phase_.reset(new TwoPhase{.dispatch = nullptr,
                                  .returns = nullptr,
                                  .sender = nullptr,
                                  .receiver = nullptr,
                                  .segments = daemon::TwoPhaseSegments(prefix_, 1, 0, sizes_max)});
    TwoPhase& made = *two_phase_;
    AFD_ASSIGN(made.dispatch, dispatch_->two_phase());
    AFD_ASSIGN(made.returns, returns_->two_phase());
    made.sender = std::make_unique<schedule::TwoPhaseSender>(*made.dispatch);
    made.receiver = std::make_unique<schedule::TwoPhaseReceiver>(
        *made.returns,
        placement_,
        schedule::TwoPhaseReceiver::Limits{.num_experts = placement_.num_local_experts_max(),
                                           .row_bytes = row_bytes,
                                           .call = call});
    auto part = std::make_unique<daemon::RemoteTwoPhase>(
        daemon::RemoteTwoPhase::Settings{.hidden = sizes.hidden,
                                         .top_k = sizes.top_k,
                                         .num_tokens_max = sizes.num_tokens,
                                         .block_tokens = kBlockTokens,
                                         .dispatch_dtype = sizes.dispatch_dtype,
                                         .row_checksums = sizes.row_checksums},
        daemon::RemoteTwoPhase::Parts{
            .sender = made.sender.get(), .placement = &placement_, .parallel = &threads});
    two_phase_part_ = part.get();
    prepare_finalize_ = std::move(part);
    return {};
}

// What afdd does with a rank's requests.
void MoeRank::serve_segments() {
    for (daemon::WorkerEvent event; port_.pop_event(event);) {
        const auto& [session, round, receive_bytes, return_bytes] = event.segment;
        if (event.kind == daemon::WorkerEvent::Kind::kSegmentRelease) {
            two_phase_->segments.release(0, session, round);
            continue;
        }
        daemon::WorkerCommand answer{.kind = daemon::WorkerCommand::Kind::kSegment};
        answer.session = session;
        answer.round = round;
        const auto made =
            two_phase_->segments.acquire(0, session, round, {receive_bytes, return_bytes});
        if (!made.ok()) answer.code = made.error().code;
        while (!port_.push_command(std::move(answer))) std::this_thread::yield();
        [[maybe_unused]] const ssize_t rung = ::eventfd_write(rank_doorbell_.fd, 1);
    }
}

Result<> MoeRank::apply(ops::FusedMoe& moe,
                        const ops::MoeInput& input,
                        ops::Rows<ops::Bf16> out,
                        ops::StageProfile& profile) {
    if (two_phase_part_ == nullptr) return moe.apply(input, out);
    two_phase_part_->expect_output(out);
    AFD_ASSIGN(ops::MoeTicket ticket, moe.start(input, 0));
    while (!moe.ready(ticket)) {
        if (two_phase_part_->advance()) continue;
        const ops::StageTimer timer(&profile, ops::MoeStage::kWait);
        serve_segments();
        std::this_thread::yield();
    }
    return moe.finish(std::move(ticket), out);
}

void MoeRank::run(const ops::ExpertsEntry& experts, ops::StageProfile* profile) {
    const MoeSubject::Shard shard = subject_.shard(0, 1);
    const auto part = experts.make(shard.setup());
    const model::Router router = subject_.router();
    ops::SerialParallel serial;
    std::vector<std::byte> metrics(layout_.ffn_metrics_bytes);
    std::unique_ptr<daemon::TwoPhaseExperts> two_phase;
    if (two_phase_ != nullptr) {
        two_phase = std::make_unique<daemon::TwoPhaseExperts>(
            daemon::TwoPhaseExperts::Parts{.receiver = two_phase_->receiver.get(),
                                           .placement = &placement_,
                                           .experts = part.get(),
                                           .hidden = subject_.sizes().hidden,
                                           .dispatch_dtype = subject_.sizes().dispatch_dtype,
                                           .row_checksums = subject_.sizes().row_checksums,
                                           .parallel = &serial,
                                           .port = &port_,
                                           .profile = profile});
    }
    daemon::FfnLoop loop({.transport = returns_.get(),
                          .placement = &placement_,
                          .experts = part.get(),
                          .hidden = subject_.sizes().hidden,
                          .dispatch_dtype = subject_.sizes().dispatch_dtype,
                          .router = router_ == schedule::RouterPlacement::kFfn ? &router : nullptr,
                          .parallel = &serial,
                          .port = &port_,
                          .metrics = daemon::Metrics(metrics),
                          .profile = profile,
                          .row_checksums = subject_.sizes().row_checksums,
                          .two_phase = two_phase.get()},
                         std::make_unique<schedule::FfnScheduler>(schedule::FfnSchedulerConfig{}),
                         schedule::AdaptiveWait(returns_->doorbell(), kSpinUs, false));
    loop.run();
}

MoeRank::~MoeRank() {
    if (!thread_.joinable()) return;
    port_.push_command({.kind = daemon::WorkerCommand::Kind::kShutdown});
    thread_.join();
}

}  // namespace afd::bench

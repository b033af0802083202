// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_parts.h"

#include "daemon/lanes/layer_composition.h"

namespace afd::daemon {
namespace {

RemoteTwoPhase::Settings settings_of(const LaneSources& sources) {
    const WorkerSetup& setup = sources.setup;
    const model::ModelConfig& config = setup.files.config();
    return {.session = sources.attachment.transport->session(),
            .micro_batch = setup.layout.geometry.num_micro_batches,  // Behind those in the windows.
            .hidden = config.hidden,
            .top_k = config.top_k,
            .num_shared = setup.num_dispatched_shared,
            .num_tokens_max = sources.welcome.prefill_tokens_max(),
            .block_tokens = sources.welcome.two_phase_block(),
            .dispatch_dtype = setup.dispatch_dtype,
            .row_checksums = setup.row_checksums};
}

// One large call. The shared experts take it a micro-batch at a time, as attention does: between
// two of these the other lanes go on.
ops::FusedMoeConfig two_phase_config(const LaneSources& sources) {
    ops::FusedMoeConfig config = moe_config(sources.setup);
    config.max_shared_tokens = config.max_num_tokens;
    config.max_num_tokens = sources.welcome.prefill_tokens_max();
    config.num_micro_batches = 1;
    // The layout of a round is made from the ids, so with router = ffn, too, these rows are routed
    // before they leave.
    config.needs_routing = false;
    return config;
}

}  // namespace

TwoPhaseParts::TwoPhaseParts(const LaneSources& sources,
                             const schedule::LostRanks& lost_ranks,
                             std::unique_ptr<schedule::TwoPhaseDispatchTransport> rounds,
                             const model::SmoothScales* smooth)
    : two_phase_(std::move(rounds)),
      sender_(*two_phase_),
      rounds_(settings_of(sources),
              {.sender = &sender_,
               .memory = sources.setup.two_phase_memory.get(),
               .placement = &sources.setup.placement,
               .parallel = &sources.parallel,
               .smooth = smooth}),
      experts_(experts_record(sources.setup.files.config())),
      transport_(sources.attachment.transport.get()),
      lost_ranks_(&lost_ranks),
      metrics_(sources.setup.metrics()) {}

Result<std::unique_ptr<TwoPhaseParts>> TwoPhaseParts::make(const LaneSources& sources,
                                                           const schedule::LostRanks& lost_ranks,
                                                           const model::SmoothScales* smooth,
                                                           ops::Experts* shared_stage) {
    AFD_ASSIGN(std::unique_ptr<schedule::TwoPhaseDispatchTransport> rounds,
               sources.attachment.transport->two_phase());
    std::unique_ptr<TwoPhaseParts> made(
        new TwoPhaseParts(sources, lost_ranks, std::move(rounds), smooth));
    AFD_ASSIGN(made->moe_,
               ops::FusedMoe::compose(made->rounds_,
                                      made->experts_,
                                      two_phase_config(sources),
                                      sources.parallel,
                                      shared_stage));
    return made;
}

std::unique_ptr<ExpertLane> TwoPhaseParts::make_lane() {
    return std::make_unique<TwoPhaseLane>(
        TwoPhaseLane::Parts{&*moe_, &rounds_, transport_, lost_ranks_},
        metrics_,
        static_cast<uint32_t>(moe_->config().max_num_tokens));
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeRank: one FFN worker as a thread of this process, with real segments between it and one
// session, for bench_fused_moe. The PrepareFinalize of the session is the one whose record it is
// started with: over windows, with the gate on either side, or in two phases.

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "bench/fused_moe/moe_subject.h"
#include "daemon/ffn/ffn_loop.h"
#include "daemon/ffn/two_phase_experts.h"
#include "daemon/lanes/remote_two_phase.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/feature_matrix.h"
#include "schedule/shared_memory/attach.h"
#include "schedule/shared_memory/instance_segments.h"

namespace afd::bench {

class MoeRank {
  public:
    // `profile` gets the time of the rank's stages. REQUIRES: the pair's dispatch is remote.
    // Errors: those of the segments.
    static Result<std::unique_ptr<MoeRank>> start(const MoeSubject& subject,
                                                  const ops::MoePair& pair,
                                                  ops::Parallel& threads,
                                                  ops::StageProfile* profile);
    ~MoeRank();
    MoeRank(const MoeRank&) = delete;
    MoeRank& operator=(const MoeRank&) = delete;

    // The session's side.
    ops::PrepareFinalize& prepare_finalize() { return *prepare_finalize_; }

    // One call of the layer: moe.apply(), and what the parts need between its steps. Memory of a
    // round in two phases is made here, too, as afdd does: that time counts as wait.
    // REQUIRES: `moe` is composed with prepare_finalize(). `profile` is its own.
    Result<> apply(ops::FusedMoe& moe,
                   const ops::MoeInput& input,
                   ops::Rows<ops::Bf16> out,
                   ops::StageProfile& profile);

  private:
    struct Doorbell {
        int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        Doorbell() = default;
        Doorbell(const Doorbell&) = delete;
        Doorbell& operator=(const Doorbell&) = delete;
        ~Doorbell() { ::close(fd); }
    };
    // What each side of rounds in two phases works with.
    struct TwoPhase {
        std::unique_ptr<schedule::TwoPhaseDispatchTransport> dispatch;
        std::unique_ptr<schedule::TwoPhaseReturnTransport> returns;
        std::unique_ptr<schedule::TwoPhaseSender> sender;
        std::unique_ptr<schedule::TwoPhaseReceiver> receiver;
        daemon::TwoPhaseSegments segments;
    };

    MoeRank(const MoeSubject& subject,
            const schedule::WindowLayout& layout,
            schedule::RouterPlacement router);
    schedule::AttachConfig config_of(const Doorbell& own, const Doorbell& peer) const;
    Result<> attach();
    Result<> attach_two_phase(ops::Parallel& threads);
    void serve_segments();
    void run(const ops::ExpertsEntry& experts, ops::StageProfile* profile);

    const MoeSubject& subject_;
    schedule::WindowLayout layout_;
    schedule::RouterPlacement router_;
    schedule::ExpertPlacement placement_;
    std::string prefix_;
    Doorbell session_doorbell_;
    Doorbell rank_doorbell_;
    std::unique_ptr<schedule::InstanceSegments> segments_;
    std::unique_ptr<schedule::DispatchTransport> dispatch_;
    std::unique_ptr<schedule::ReturnTransport> returns_;
    std::unique_ptr<TwoPhase> two_phase_;  // Null: over windows.
    std::unique_ptr<ops::PrepareFinalize> prepare_finalize_;
    daemon::RemoteTwoPhase* two_phase_part_ = nullptr;  // The same, if it is one.
    daemon::WorkerPort port_;
    std::thread thread_;
};

}  // namespace afd::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeWindowRank: one FFN worker as a thread of this process, with real segments between it and one
// session, for bench_fused_moe.

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "bench/moe_subject.h"
#include "daemon/ffn_loop.h"
#include "daemon/window_prepare_finalize.h"
#include "schedule/instance_segments.h"

namespace afd::bench {

class MoeWindowRank {
  public:
    // `profile` gets the time of the rank's stages. Errors: those of InstanceSegments::create.
    static Result<std::unique_ptr<MoeWindowRank>> start(const MoeSubject& subject,
                                                        const ops::ExpertsEntry& experts,
                                                        ops::StageProfile* profile);
    ~MoeWindowRank();
    MoeWindowRank(const MoeWindowRank&) = delete;
    MoeWindowRank& operator=(const MoeWindowRank&) = delete;

    ops::PrepareFinalize& windows() { return *windows_; }

  private:
    struct Doorbell {
        int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        Doorbell() = default;
        Doorbell(const Doorbell&) = delete;
        Doorbell& operator=(const Doorbell&) = delete;
        ~Doorbell() { ::close(fd); }
    };

    MoeWindowRank(const MoeSubject& subject, const schedule::WindowLayout& layout);
    Result<> attach();
    void run(const ops::ExpertsEntry& experts, ops::StageProfile* profile);

    const MoeSubject& subject_;
    schedule::WindowLayout layout_;
    schedule::ExpertPlacement placement_;
    std::string prefix_;
    Doorbell session_doorbell_;
    Doorbell rank_doorbell_;
    std::unique_ptr<schedule::InstanceSegments> segments_;
    std::unique_ptr<schedule::ShmDispatchTransport> dispatch_;
    std::unique_ptr<schedule::ShmReturnTransport> returns_;
    std::unique_ptr<daemon::WindowPrepareFinalize> windows_;
    daemon::WorkerPort port_;
    std::thread thread_;
};

}  // namespace afd::bench

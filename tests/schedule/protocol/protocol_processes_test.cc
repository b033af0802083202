// SPDX-License-Identifier: Apache-2.0
//
// The protocol body as processes over segments attached by name, dying by SIGKILL; see
// protocol_body.h for goal, method and oracle.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <new>

#include "schedule/shared_memory/instance_segments.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/protocol/protocol_body.h"

namespace afd::schedule::stress {
namespace {

constexpr std::memory_order kUnordered = std::memory_order_relaxed;  // See Progress.
constexpr uint32_t kWatchdogSeconds = 240;

// A supervisor in small: it creates the segments, starts the roles, and starts a dead one anew.
class Processes {
  public:
    explicit Processes(const Params& params)
        : params_(params),
          instance_name_("stress" + std::to_string(::getpid())),
          prefix_(segment_prefix(instance_name_, test_identity().instance_id)),
          layout_(WindowLayout::compute(stress_geometry()).value()),
          segments_(InstanceSegments::create(prefix_, layout_, test_identity()).value()),
          session_doorbells_(stress_geometry().num_sessions),
          rank_doorbells_(stress_geometry().num_ffn_workers) {
        void* memory = ::mmap(
            nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        AFD_ASSERT(memory != MAP_FAILED, "no memory for the progress of the test");
        progress_ = new (memory) Progress;
    }
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;
    ~Processes() { ::munmap(progress_, sizeof(Progress)); }

    const Progress& progress() const { return *progress_; }

    void run() {
        ::alarm(kWatchdogSeconds);
        for (uint32_t f = 0; f < stress_geometry().num_ffn_workers; ++f) start(Role::kFfn, f);
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) start(Role::kAttention, s);
        num_sessions_left_ = stress_geometry().num_sessions;
        while (!children_.empty()) reap_one();
        ::alarm(0);
        EXPECT_EQ(progress_->failed.load(kUnordered), 0u);
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) {
            EXPECT_GE(progress_->rounds_done[s].load(kUnordered), params_.rounds_per_session);
        }
    }

    void age() {
        const Geometry geometry = stress_geometry();
        std::vector<Segment> windows;
        std::vector<Segment> controls;
        std::vector<Segment> session_windows;
        const auto attach = [&](Role role, uint32_t index, SegmentKind kind, uint64_t bytes) {
            return Segment::attach(
                       segment_name(prefix_, role, index, kind), bytes, Segment::Access::kReadWrite)
                .value();
        };
        for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) {
            windows.push_back(
                attach(Role::kFfn, f, SegmentKind::kWindow, layout_.ffn_window.total_bytes));
            controls.push_back(
                attach(Role::kFfn, f, SegmentKind::kControl, layout_.ffn_control.total_bytes));
        }
        for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
            session_windows.push_back(attach(
                Role::kAttention, s, SegmentKind::kWindow, layout_.attention_window.total_bytes));
        }
        const auto word = [](const Segment& segment, uint64_t offset) {
            return static_cast<int32_t*>(static_cast<void*>(segment.data() + offset));
        };
        age_rounds(
            geometry,
            [&](uint32_t f, uint32_t s, uint32_t m) {
                return word(windows[f], layout_.descriptor_offset(s, m));
            },
            [&](uint32_t f, uint32_t s, uint32_t m) {
                return word(controls[f], layout_.acknowledged_offset(s, m));
            },
            [&](uint32_t s, uint32_t m, uint32_t bs, uint32_t k) {
                return word(session_windows[s], layout_.result_flag_offset(m, bs, k));
            });
    }

  private:
    struct Child {
        Role role;
        uint32_t index;
    };

    void start(Role role, uint32_t index) {
        const pid_t pid = ::fork();
        AFD_ASSERT(pid >= 0, "fork failed");
        if (pid == 0) {
            ::alarm(kWatchdogSeconds);
            ::_exit(live(role, index) ? 0 : 1);
        }
        children_[pid] = {role, index};
    }

    // In the child. A life that dies does not return.
    bool live(Role role, uint32_t index) {
        const bool is_ffn = role == Role::kFfn;
        const EventFds& own = is_ffn ? rank_doorbells_ : session_doorbells_;
        const EventFds& peers = is_ffn ? session_doorbells_ : rank_doorbells_;
        const AttachConfig config{prefix_, layout_, test_identity(), own[index], peers.all()};
        Fate fate(params_, *progress_, true);
        if (is_ffn) {
            const auto real = ShmReturnTransport::attach(config, index);
            if (!real.ok()) return false;
            MortalReturn transport(*real.value(), fate);
            return run_ffn(transport, params_, *progress_, fate);
        }
        const auto real = ShmDispatchTransport::attach(config, index);
        if (!real.ok()) return false;
        MortalDispatch transport(*real.value(), fate);
        return run_attention(transport, params_, *progress_, fate);
    }

    void reap_one() {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, 0);
        AFD_ASSERT(pid > 0 && children_.count(pid) == 1, "reaped an unknown child %d", pid);
        const Child child = children_[pid];
        children_.erase(pid);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            ring_everybody();
            start(child.role, child.index);
            return;
        }
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "role " << static_cast<int>(child.role) << " " << child.index << ", status "
            << status;
        if (child.role == Role::kAttention && --num_sessions_left_ == 0) {
            progress_->stop.store(1, kUnordered);
            ring_everybody();
        }
    }

    // The dead one may have died between its flag and its ring (R9).
    void ring_everybody() {
        for (const int fd : session_doorbells_.all()) ring(fd);
        for (const int fd : rank_doorbells_.all()) ring(fd);
    }

    Params params_;
    std::string instance_name_;
    std::string prefix_;
    WindowLayout layout_;
    InstanceSegments segments_;
    EventFds session_doorbells_;
    EventFds rank_doorbells_;
    Progress* progress_ = nullptr;
    std::map<pid_t, Child> children_;
    uint32_t num_sessions_left_ = 0;
};

TEST(ProtocolProcesses, DeliverEveryRow) {
    Params params;
    Processes(params).run();
}

TEST(ProtocolProcesses, SurviveKillsAtEveryPoint) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params;
        params.mode = mode;
        params.crash_one_in = 100;
        params.seed = 5;
        Processes processes(params);
        processes.run();
        expect_every_point_killed(processes.progress());
        expect_refusals_explained(processes.progress());
    }
}

TEST(ProtocolProcesses, SurviveKillsWithOfferedTokens) {
    Params params;
    params.router = RouterPlacement::kFfn;
    params.crash_one_in = 100;
    params.seed = 7;
    Processes processes(params);
    processes.run();
    expect_every_point_killed(processes.progress());
    expect_refusals_explained(processes.progress());
}

TEST(ProtocolProcesses, SurviveKillsAroundTheWrapOfRoundNumbers) {
    Params params;
    params.rounds_per_session = 60;
    params.crash_one_in = 50;
    params.policy = FfnPolicy::kAll;
    Processes processes(params);
    processes.age();
    processes.run();
}

}  // namespace
}  // namespace afd::schedule::stress

// SPDX-License-Identifier: Apache-2.0
//
// The protocol over UCX, as processes.
//
// Goal: R1 ... R11 and R13 ... R16 hold between processes that share no window, whatever dies,
// whichever connection breaks, and whoever comes back. Method: the protocol body as processes that
// die by SIGKILL; every process breaks connections of its own at random; and some are stopped while
// a successor gets their place with the next epoch, and go on later, with all that they had on
// their way. Oracle: that of protocol_body.h. A process that UCX itself ends (child_output.h) is
// one that died; there are few of them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <thread>

#include "schedule/context/fresh_memory.h"
#include "schedule/ucx/ucx_dispatch.h"
#include "schedule/ucx/ucx_return.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/protocol/protocol_body.h"
#include "tests/schedule/ucx/child_output.h"

namespace afd::schedule::stress {
namespace {

constexpr std::memory_order kUnordered = std::memory_order_relaxed;  // See Progress.
// Less than ctest allows, and twice what the longest test takes under the thread sanitizer.
constexpr uint32_t kWatchdogSeconds = 1740;
constexpr size_t kPlacesMax = 8;
// One abort of UCX is forgiven for so many lives of processes; 1 in 150 is usual.
constexpr uint32_t kLivesPerAbort = 5;

struct Faults {
    uint32_t break_every_us = 0;  // Each process, a random connection; 0: none breaks.
    uint32_t num_returns = 0;     // Processes that are replaced while they are stopped.
    bool is_near = false;         // Messages go through memory of the host.
};

// Zeroed memory that children share.
template <typename T>
T* shared() {
    void* memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no shared memory for the test");
    return new (memory) T;
}

// What afdd tells its workers: who has a place, and where.
struct BoardPlace {
    std::atomic<uint64_t> epoch{0};        // By the supervisor.
    std::atomic<uint64_t> ready_epoch{0};  // By the process, after the address.
    std::atomic<uint32_t> address_bytes{0};
    std::array<std::byte, 128> address{};
};
struct Board {
    std::array<BoardPlace, kPlacesMax> sessions;
    std::array<BoardPlace, kPlacesMax> ranks;

    BoardPlace& at(Role role, uint32_t index) {
        return role == Role::kFfn ? ranks[index] : sessions[index];
    }
};

void read_place(BoardPlace& place, Role role, uint32_t index, UcxAddressBook& book) {
    // Acquire; partner: the release in publish_place().
    const uint64_t ready = place.ready_epoch.load(std::memory_order_acquire);
    UcxPlace read{place.epoch.load(std::memory_order_acquire), {}};
    if (ready == read.epoch) {
        const auto* first = place.address.data();
        read.address.assign(first, first + place.address_bytes.load(kUnordered));
    }
    // Somebody else got it meanwhile: the next look finds it.
    if (place.epoch.load(std::memory_order_acquire) == read.epoch && read.epoch != 0) {
        book.set(role, index, read);
    }
}

// A life's own copy of the board, and the breaking of connections.
class Watch {
  public:
    Watch(Board& board, UcxAddressBook& book) : board_(board), book_(book) { look(); }
    ~Watch() {
        is_over_.store(true, kUnordered);
        if (thread_.joinable()) thread_.join();
    }
    void start(UcxEnd& end, uint32_t num_peers, uint32_t break_every_us, uint64_t seed) {
        thread_ = std::thread([this, &end, num_peers, break_every_us, seed] {
            std::mt19937_64 random(seed);
            while (!is_over_.load(kUnordered)) {
                ::usleep(1000);
                look();
                if (break_every_us != 0 && random() % (break_every_us / 1000) == 0) {
                    end.fail_connection(static_cast<uint32_t>(random() % num_peers));
                }
            }
        });
    }

  private:
    void look() {
        const Geometry geometry = stress_geometry();
        for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
            read_place(board_.at(Role::kAttention, s), Role::kAttention, s, book_);
        }
        for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) {
            read_place(board_.at(Role::kFfn, f), Role::kFfn, f, book_);
        }
    }

    Board& board_;
    UcxAddressBook& book_;
    std::atomic<bool> is_over_{false};
    std::thread thread_;
};

// A supervisor in small, as in protocol_processes_test.cc.
class UcxProcesses {
  public:
    UcxProcesses(const Params& params, const Faults& faults)
        : params_(params),
          faults_(faults),
          layout_(WindowLayout::compute(stress_geometry()).value()),
          progress_(shared<Progress>()),
          board_(shared<Board>()) {}

    const Progress& progress() const { return *progress_; }

    void run() {
        ::alarm(kWatchdogSeconds);
        const Geometry geometry = stress_geometry();
        // A quick machine would be through before the last process came back.
        progress_->goes_on.store(faults_.num_returns != 0 ? 1 : 0, kUnordered);
        for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) start({Role::kFfn, f});
        for (uint32_t s = 0; s < geometry.num_sessions; ++s) start({Role::kAttention, s});
        num_sessions_left_ = geometry.num_sessions;
        while (!children_.empty()) {
            if (!reap_one()) {
                ::usleep(2000);
                stop_and_replace();
            }
        }
        ::alarm(0);
        EXPECT_EQ(progress_->failed.load(kUnordered), 0u);
        for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
            EXPECT_GE(progress_->rounds_done[s].load(kUnordered), params_.rounds_per_session);
        }
        EXPECT_EQ(num_returned_, faults_.num_returns);
        EXPECT_LE(num_aborted_ * kLivesPerAbort, progress_->num_incarnations.load(kUnordered))
            << "UCX aborts more often than a peer can die in the middle of a connection";
    }

  private:
    struct Child {
        Role role;
        uint32_t index;

        auto operator<=>(const Child&) const = default;
    };
    // What of a worker outlives its process, on one machine.
    struct Machine {
        std::byte* control;
        int doorbell;
    };

    Machine make_machine(const Child& child) {
        struct alignas(4096) Control {
            std::array<std::byte, 1 << 16> bytes{};
        };
        const bool is_ffn = child.role == Role::kFfn;
        AFD_ASSERT(layout_.ffn_control.total_bytes <= sizeof(Control), "a larger control area");
        std::byte* control = shared<Control>()->bytes.data();
        format_control(
            make_segment_header(layout_.geometry, test_identity(), child.role, child.index).value(),
            is_ffn ? ScheduleMode::kFfn : ScheduleMode::kAttention,
            control);
        return {control, ::eventfd(0, EFD_NONBLOCK)};
    }

    void start(const Child& child) {
        auto [machine, is_new] = machines_.try_emplace(child);
        if (is_new) machine->second = make_machine(child);
        const uint64_t epoch = board_->at(child.role, child.index).epoch.fetch_add(1) + 1;
        const pid_t pid = ::fork();
        AFD_ASSERT(pid >= 0, "fork failed");
        if (pid == 0) {
            ::alarm(kWatchdogSeconds);
            output_.take_over();
            ::_exit(live(child, machine->second, epoch) ? 0 : 1);
        }
        children_[pid] = child;
    }

    // In the child. A life that dies does not return.
    bool live(const Child& child, const Machine& machine, uint64_t epoch) {
        const Geometry geometry = stress_geometry();
        const bool is_ffn = child.role == Role::kFfn;
        UcxAddressBook book(geometry.num_sessions, geometry.num_ffn_workers);
        Watch watch(*board_, book);
        auto worker = UcxWorker::make(
            {.transports = "tcp", .devices = "lo", .near_by_memory = faults_.is_near}, is_ffn);
        if (!worker.ok()) return false;
        publish_place(child, epoch, worker.value()->address());
        const UcxEndConfig config{.role = child.role,
                                  .index = child.index,
                                  .instance_id = test_identity().instance_id,
                                  .epoch = epoch,
                                  .book = &book,
                                  .control = machine.control,
                                  .doorbell = machine.doorbell};
        Fate fate(params_, *progress_, true);
        const auto seed = static_cast<uint64_t>(::getpid());
        // Without the end of its objects: a process that ends is one that dies.
        if (is_ffn) {
            auto& real =
                *UcxReturn::make(config, layout_, std::move(worker).value()).value().release();
            watch.start(real.end(), geometry.num_sessions, faults_.break_every_us, seed);
            MortalReturn transport(real, fate);
            const bool is_done = run_ffn(transport, params_, *progress_, fate);
            ::_exit(is_done ? 0 : 1);
        }
        auto& real =
            *UcxDispatch::make(config, layout_, std::move(worker).value()).value().release();
        watch.start(real.end(), geometry.num_ffn_workers, faults_.break_every_us, seed);
        MortalDispatch transport(real, fate);
        const bool is_done = run_attention(transport, params_, *progress_, fate);
        ::_exit(is_done ? 0 : 1);
    }

    void publish_place(const Child& child, uint64_t epoch, const std::vector<std::byte>& address) {
        BoardPlace& place = board_->at(child.role, child.index);
        AFD_ASSERT(address.size() <= place.address.size(), "a longer address");
        std::copy(address.begin(), address.end(), place.address.begin());
        place.address_bytes.store(static_cast<uint32_t>(address.size()), kUnordered);
        // Release; partner: read_place().
        place.ready_epoch.store(epoch, std::memory_order_release);
    }

    bool reap_one() {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid == 0) return false;
        AFD_ASSERT(pid > 0 && children_.count(pid) == 1, "reaped an unknown child %d", pid);
        const Child child = children_[pid];
        const bool had_place = pid != stopped_ && replaced_.count(pid) == 0;
        children_.erase(pid);
        if (pid == stopped_) stopped_ = 0;
        const bool is_aborted =
            WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && output_.has_abort_of_ucx(pid);
        const bool is_killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || is_aborted;
        num_aborted_ += is_aborted ? 1 : 0;
        EXPECT_TRUE(is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
            << "role " << static_cast<int>(child.role) << " " << child.index << ", status "
            << status;
        if (!had_place) return true;
        if (is_killed) {
            start(child);
        } else if (child.role == Role::kAttention && --num_sessions_left_ == 0) {
            progress_->stop.store(1, kUnordered);
        }
        return true;
    }

    // Stops a process, gives its place away, and lets it go on a little later.
    void stop_and_replace() {
        const uint64_t now_us = steady_now_us();
        if (stopped_ != 0 && now_us >= act_us_) {
            ::kill(stopped_, SIGCONT);
            replaced_.insert({stopped_, true});
            stopped_ = 0;
            if (++num_returned_ == faults_.num_returns) progress_->goes_on.store(0, kUnordered);
            act_us_ = now_us + 20'000;
        } else if (stopped_ == 0 && num_returned_ < faults_.num_returns && now_us >= act_us_ &&
                   num_sessions_left_ == stress_geometry().num_sessions) {
            auto chosen = children_.begin();
            std::advance(chosen, random_() % children_.size());
            if (replaced_.count(chosen->first) != 0) return;
            const Child child = chosen->second;
            stopped_ = chosen->first;
            ::kill(stopped_, SIGSTOP);
            // On another machine: two processes with one place share nothing.
            machines_.erase(child);
            start(child);
            act_us_ = now_us + 5'000 + random_() % 40'000;
        }
    }

    Params params_;
    Faults faults_;
    WindowLayout layout_;
    Progress* progress_;
    Board* board_;
    std::map<Child, Machine> machines_;
    std::map<pid_t, Child> children_;
    std::map<pid_t, bool> replaced_;
    pid_t stopped_ = 0;
    uint64_t act_us_ = 0;
    uint32_t num_returned_ = 0;
    uint32_t num_aborted_ = 0;
    ChildOutput output_;
    uint32_t num_sessions_left_ = 0;
    std::mt19937_64 random_{11};
};

// Of both ways: over TCP, and through memory of the host.
class ProtocolUcxProcesses : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, ProtocolUcxProcesses, testing::Bool(), [](const auto& way) {
    return way.param ? "ThroughMemory" : "OverTcp";
});

TEST_P(ProtocolUcxProcesses, DeliverEveryRow) {
    UcxProcesses({}, {.is_near = GetParam()}).run();
}

TEST_P(ProtocolUcxProcesses, SurviveKillsAtEveryPoint) {
    for (const auto router : {RouterPlacement::kAttention, RouterPlacement::kFfn}) {
        Params params;
        params.rounds_per_session = 80;
        params.router = router;
        params.crash_one_in = 60;
        params.seed = 5;
        UcxProcesses processes(params, {.is_near = GetParam()});
        processes.run();
        expect_every_point_killed(processes.progress());
        expect_refusals_explained(processes.progress());
    }
}

TEST_P(ProtocolUcxProcesses, SurviveBrokenConnections) {
    Params params;
    params.rounds_per_session = 500;
    UcxProcesses(params, {.break_every_us = 20'000, .is_near = GetParam()}).run();
}

TEST_P(ProtocolUcxProcesses, SurviveProcessesThatComeBack) {
    Params params;
    params.rounds_per_session = 1000;
    UcxProcesses(params, {.break_every_us = 100'000, .num_returns = 12, .is_near = GetParam()})
        .run();
}

}  // namespace
}  // namespace afd::schedule::stress

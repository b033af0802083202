// SPDX-License-Identifier: Apache-2.0
//
// Goal: kill -9 of either side in any phase of a two-phase round loses nothing.
// Method: two sessions and two ranks as processes over segments in /dev/shm; this one makes the
// segments as afdd does, looks at the control areas, stops a process in a phase, kills it if the
// phase still stands, and starts its successor, until every role has died in every phase several
// times. Naps between the steps make every phase long enough to be met.
// Oracle: local_result of tests/daemon/lanes/random_moe.h for every call; at the end no round's
// memory is left. A rank that dies three times in one block is refused (R11): then the call is
// repeated.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <map>
#include <new>

#include "schedule/shared_memory/instance_segments.h"
#include "tests/daemon/lanes/two_phase_process.h"
#include "tests/daemon/lanes/two_phase_session.h"

namespace afd::daemon {
namespace {

using schedule::Order;
using schedule::Role;

constexpr uint32_t kSessions = 2;
constexpr uint32_t kRanks = 2;
constexpr uint32_t kKillsPerPhase = 3;
constexpr uint32_t kNapMaxUs = 150;
const schedule::InstanceIdentity kIdentity{1, "model", "class"};

enum class Phase { kIdle, kOffered, kGranted, kSent, kReturned, kCombined, kClosed, kRefused };
constexpr Phase kPhases[] = {Phase::kOffered,
                             Phase::kGranted,
                             Phase::kSent,
                             Phase::kReturned,
                             Phase::kCombined,
                             Phase::kClosed};

// What the words of a session and a rank say of the round between them.
Phase phase_of(const schedule::TwoPhaseSessionWords& s, const schedule::TwoPhaseRankWords& r) {
    const auto word = [](const int32_t& shared) { return observe(shared, Order::kAcquire); };
    const int32_t round = word(s.offer);
    if (word(s.closed) == round) {
        return word(r.acknowledged) == round ? Phase::kIdle : Phase::kClosed;
    }
    const int32_t granted = word(r.granted);
    if (granted == -round) return Phase::kRefused;
    if (granted != round) return Phase::kOffered;
    const int32_t sent = word(s.sent);
    if (sent == 0) return Phase::kGranted;
    const int32_t combined = word(s.combined);
    if (combined == word(s.num_blocks)) return Phase::kCombined;
    return word(r.returned) > combined ? Phase::kReturned : Phase::kSent;
}

constexpr schedule::TwoPhaseCall kCall{
    .num_tokens = kTwoPhaseTokensMax, .block_tokens = 16, .selected_expert_num = kTopK + 1};

// Shared by all processes, in memory that survives them. Relaxed everywhere: it orders nothing.
struct Progress {
    std::atomic<uint32_t> stop{0};
    std::array<std::atomic<uint32_t>, kSessions> num_calls{};
};

struct Place {
    Role role = Role::kFfn;
    uint32_t index = 0;

    auto operator<=>(const Place&) const = default;
};

// Sleeps for a random time.
void nap(std::mt19937& random) {
    ::usleep(static_cast<useconds_t>(random() % kNapMaxUs));
}

class TwoPhaseKills : public testing::Test {
  protected:
    TwoPhaseKills()
        : placement_(placement_of(kRanks)),
          layout_(schedule::WindowLayout::compute({.num_sessions = kSessions,
                                                   .num_micro_batches = 1,
                                                   .micro_batch_size = 1,
                                                   .selected_expert_num = kTopK + 1,
                                                   .num_experts = kPerLayer,
                                                   .attn_to_ffn_token_bytes = 512,
                                                   .ffn_to_attn_token_bytes = 512,
                                                   .num_ffn_workers = kRanks})
                      .value()),
          areas_layout_(schedule::TwoPhaseControlLayout::compute(layout_.geometry)),
          prefix_(schedule::segment_prefix("kills_test", static_cast<uint64_t>(::getpid()))),
          segments_(schedule::InstanceSegments::create(prefix_, layout_, kIdentity).value()),
          round_segments_(prefix_,
                          kSessions,
                          0,
                          schedule::two_phase_sizes_max(
                              kCall,
                              placement_.num_local_experts_max(),
                              two_phase_row_bytes(schedule::RowDtype::kBf16, kHidden))),
          session_fds_(kSessions),
          rank_fds_(kRanks) {
        void* memory = ::mmap(
            nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        AFD_ASSERT(memory != MAP_FAILED, "no memory for the progress of the test");
        progress_ = new (memory) Progress;
        all_experts();  // Made before the forks: children inherit them.
        shared_experts();
        for (uint32_t rank = 0; rank < kRanks; ++rank) tables_.push_back(shard(placement_, rank));
        for (uint32_t s = 0; s < kSessions; ++s) areas_[{Role::kAttention, s}] = attach(s, true);
        for (uint32_t r = 0; r < kRanks; ++r) areas_[{Role::kFfn, r}] = attach(r, false);
    }
    ~TwoPhaseKills() override {
        for (const auto& [place, pid] : pids_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        for (RankPipes& pipes : pipes_) pipes.close();
        ::munmap(progress_, sizeof(Progress));
    }

    schedule::Segment attach(uint32_t index, bool is_session) const {
        const Role role = is_session ? Role::kAttention : Role::kFfn;
        return schedule::Segment::attach(
                   segment_name(prefix_, role, index, schedule::SegmentKind::kTwoPhase),
                   is_session ? areas_layout_.session_bytes() : areas_layout_.rank_bytes(),
                   schedule::Segment::Access::kReadOnly)
            .value();
    }

    schedule::AttachConfig config(Place place) const {
        const bool is_ffn = place.role == Role::kFfn;
        return {prefix_,
                layout_,
                kIdentity,
                (is_ffn ? rank_fds_ : session_fds_)[place.index],
                (is_ffn ? session_fds_ : rank_fds_).all()};
    }

    void start(Place place) {
        if (place.role == Role::kFfn) {
            pipes_[place.index].close();
            AFD_ASSERT(pipes_[place.index].open(), "no pipes");
        }
        const pid_t pid = ::fork();
        AFD_ASSERT(pid >= 0, "fork failed");
        if (pid == 0) place.role == Role::kFfn ? run_rank(place.index) : run_session(place.index);
        pids_[place] = pid;
        // The dead one may have died between a word and its ring (R9).
        for (const schedule::EventFds* fds : {&session_fds_, &rank_fds_}) {
            for (const int fd : fds->all()) schedule::ring(fd);
        }
    }

    [[noreturn]] void run_rank(uint32_t rank) {
        ops::GroupedExperts experts(tables_[rank], placement_.num_local_experts_per_layer(rank));
        std::mt19937 random(static_cast<uint32_t>(::getpid()));
        run_rank_process({.config = config({Role::kFfn, rank}),
                          .placement = &placement_,
                          .rank = rank,
                          .hidden = kHidden,
                          .call = kCall,
                          .experts = &experts,
                          .pipes = pipes_[rank],
                          .wait =
                              [](const TwoPhaseExperts& part, schedule::Doorbell doorbell) {
                                  schedule::AdaptiveWait(doorbell, 20, false)
                                      .until(schedule::steady_now_us() + 1'000'000,
                                             true,
                                             [&](Order order) { return part.has_work(order); });
                              },
                          .stepped = [&] { nap(random); }});
    }

    // Calls until the end of the test; each once more if it was refused.
    [[noreturn]] void run_session(uint32_t index) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const auto windows =
            schedule::attach_dispatch(config({Role::kAttention, index}), index).value();
        TwoPhaseSession session({windows->two_phase().value(), windows->doorbell()},
                                placement_,
                                index,
                                kCall.block_tokens);
        std::mt19937 random(static_cast<uint32_t>(::getpid()));
        while (progress_->stop.load(std::memory_order_relaxed) == 0) {
            const uint32_t i = progress_->num_calls[index].load(std::memory_order_relaxed);
            const Call call(index * 100000 + i, kTwoPhaseTokensMax);
            ops::MoeTicket ticket = session.start(call);
            while (session.step(ticket)) nap(random);
            nap(random);
            const auto finished = session.finish(std::move(ticket), call);
            if (finished.ok()) {
                EXPECT_EQ(session.bits(call), local_result(call)) << "call " << i;
                progress_->num_calls[index].store(i + 1, std::memory_order_relaxed);
            } else {
                EXPECT_EQ(finished.error().code, Code::kResourceExhausted)
                    << finished.error().message;
            }
            if (HasFailure()) ::_exit(1);
        }
        ::_exit(session.idle() ? 0 : 2);
    }

    // What afdd does for the ranks.
    void serve() {
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            pollfd ready{pipes_[rank].requests[0], POLLIN, 0};
            WorkerEvent event;
            while (::poll(&ready, 1, 0) > 0) {
                ASSERT_EQ(::read(ready.fd, &event, sizeof(event)),
                          static_cast<ssize_t>(sizeof(event)));
                serve_rank(round_segments_, rank, event, pipes_[rank]);
            }
        }
    }

    bool stands(Place place, Phase phase) const {
        for (uint32_t s = 0; s < kSessions; ++s) {
            for (uint32_t r = 0; r < kRanks; ++r) {
                if (place.index != (place.role == Role::kFfn ? r : s)) continue;
                const void* session = areas_.at({Role::kAttention, s}).const_data() +
                                      r * areas_layout_.session_stripe_bytes;
                const void* rank =
                    areas_.at({Role::kFfn, r}).const_data() + s * areas_layout_.rank_stripe_bytes;
                if (phase_of(*static_cast<const schedule::TwoPhaseSessionWords*>(session),
                             *static_cast<const schedule::TwoPhaseRankWords*>(rank)) == phase) {
                    return true;
                }
            }
        }
        return false;
    }

    // Nobody ends by itself: a session does that when it has found wrong bits.
    void expect_all_live() {
        for (const auto& [place, pid] : pids_) {
            int status = 0;
            if (::waitpid(pid, &status, WNOHANG) == 0) continue;
            const Place gone = place;
            pids_.erase(gone);
            FAIL() << "role " << static_cast<int>(gone.role) << " " << gone.index
                   << " ended by itself, status " << status;
        }
    }

    // Kills the process if it is in the phase when it stands still. Returns whether it did.
    bool kill_in(Place place, Phase phase) {
        if (!stands(place, phase)) return false;
        const pid_t pid = pids_[place];
        int status = 0;
        ::kill(pid, SIGSTOP);
        EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
        EXPECT_TRUE(WIFSTOPPED(status)) << "it ended by itself, status " << status;
        if (!stands(place, phase)) {
            ::kill(pid, SIGCONT);
            return false;
        }
        ::kill(pid, SIGKILL);
        EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
        start(place);
        return true;
    }

    uint32_t num_calls() const {
        uint32_t count = 0;
        for (const auto& calls : progress_->num_calls) {
            count += calls.load(std::memory_order_relaxed);
        }
        return count;
    }

    const schedule::ExpertPlacement placement_;
    const schedule::WindowLayout layout_;
    const schedule::TwoPhaseControlLayout areas_layout_;
    const std::string prefix_;
    schedule::InstanceSegments segments_;
    TwoPhaseSegments round_segments_;
    schedule::EventFds session_fds_;
    schedule::EventFds rank_fds_;
    Progress* progress_ = nullptr;
    std::vector<ops::ExpertTable> tables_;
    std::map<Place, schedule::Segment> areas_;
    std::map<Place, pid_t> pids_;
    std::array<RankPipes, kRanks> pipes_;
};

TEST_F(TwoPhaseKills, InEveryPhaseOfEitherSideLoseNothing) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) start({Role::kFfn, rank});
    for (uint32_t session = 0; session < kSessions; ++session) start({Role::kAttention, session});
    const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
    std::mt19937 random(3);
    for (uint32_t kills = 0; kills < kKillsPerPhase; ++kills) {
        for (const Phase phase : kPhases) {
            for (const Role role : {Role::kAttention, Role::kFfn}) {
                const Place place{role, static_cast<uint32_t>(random()) % 2};
                // Something is finished between two deaths.
                const uint32_t calls_before = num_calls();
                while (num_calls() == calls_before || !kill_in(place, phase)) {
                    ASSERT_NO_FATAL_FAILURE(serve());
                    ASSERT_NO_FATAL_FAILURE(expect_all_live());
                    ASSERT_FALSE(HasFailure());
                    ASSERT_LT(schedule::steady_now_us(), deadline_us)
                        << "role " << static_cast<int>(role) << " was never found in phase "
                        << static_cast<int>(phase) << ", after " << num_calls() << " calls";
                }
            }
        }
    }
    progress_->stop.store(1, std::memory_order_relaxed);
    for (uint32_t session = 0; session < kSessions; ++session) {
        const pid_t pid = pids_[{Role::kAttention, session}];
        int status = 0;
        while (::waitpid(pid, &status, WNOHANG) == 0) {
            ASSERT_NO_FATAL_FAILURE(serve());
            ASSERT_LT(schedule::steady_now_us(), deadline_us) << "session " << session;
        }
        pids_.erase({Role::kAttention, session});
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        while (round_segments_.bytes_of(rank) > 0) {
            ASSERT_NO_FATAL_FAILURE(serve());
            ASSERT_LT(schedule::steady_now_us(), deadline_us) << "memory was not given back";
        }
    }
}

}  // namespace
}  // namespace afd::daemon

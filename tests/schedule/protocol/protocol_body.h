// SPDX-License-Identifier: Apache-2.0
#pragma once

// The body of the protocol stress tests: what an attention session and an FFN rank do, with every
// byte checked and with crash points. Two drivers run it: threads over one mapping (for the thread
// sanitizer; a crash abandons the role, its successor starts with fresh private state) and
// processes (a crash is SIGKILL).
//
// Goal: whatever dies, wherever, no stale or torn row is accepted, nothing is lost, every session
// finishes its rounds. Method: sessions publish rounds of random slots to random ranks at random
// layers, sometimes abandon one in flight; ranks gather, compute and return. Oracle: each row names
// its place and a sequence number never used twice, and every other word of it follows from these,
// so a rank detects a torn or foreign row; a result follows from row, rank, layer and local id, so
// the session knows every byte that it must accept. With router = ffn some tokens are offered: then
// rank and local id of each slot follow from the row, as from a gate.

#include <array>
#include <atomic>
#include <cstdint>
#include <random>

#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/layout/round.h"
#include "schedule/layout/window_layout.h"
#include "schedule/transport/transport.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::schedule::stress {

enum class Point {
    kRowPut,             // Attention: some rows of a round are stored.
    kBeforeFlag,         // Attention: rows stored, this rank's flag not; maybe another's is.
    kAfterFlag,          // Attention: this rank's flag stored, maybe not the next one's.
    kInFlight,           // Attention: waiting.
    kResultsAccepted,    // Attention: everything read.
    kScanned,            // FFN: listed, nothing read.
    kGathered,           // FFN: private copies made.
    kBetweenResults,     // FFN: some results are put.
    kResultsPut,         // FFN: all results put, nothing acknowledged.
    kBeforeAcknowledge,  // FFN: maybe some rounds of the pass acknowledged.
    kAcknowledged,       // FFN: the pass is over.
};
inline constexpr size_t kNumPoints = 11;
inline constexpr size_t kSessionsAtMost = 8;

struct Params {
    uint32_t rounds_per_session = 1000;
    uint32_t num_layers = 4;
    FfnPolicy policy = FfnPolicy::kGather;
    DispatchMode mode = DispatchMode::kAsync;
    RouterPlacement router = RouterPlacement::kAttention;
    uint32_t crash_one_in = 0;  // Visits of a point per crash; 0: nobody dies.
    uint64_t seed = 1;
};

// Shared by all roles, in memory that survives them. Lock-free atomics, so valid between
// processes; relaxed everywhere, because they order nothing: the windows must do that themselves.
struct Progress {
    std::atomic<uint64_t> next_sequence{1};
    std::atomic<uint32_t> stop{0};
    std::atomic<uint32_t> goes_on{0};  // While set, sessions do more rounds than they must.
    std::atomic<uint32_t> failed{0};
    std::atomic<uint32_t> num_incarnations{0};
    std::atomic<uint32_t> num_refused{0};  // Rounds that killed an FFN rank three times (R11).
    std::array<std::atomic<uint32_t>, kSessionsAtMost> rounds_done{};
    std::array<std::atomic<uint32_t>, kNumPoints> visits{};
    std::array<std::atomic<uint32_t>, kNumPoints> crashes{};
};

// Decides where a role dies.
class Fate {
  public:
    // `is_process`: dying is SIGKILL; otherwise died() becomes true.
    Fate(const Params& params, Progress& progress, bool is_process);

    // Visits a point: may nap, may die. Returns died().
    bool at(Point point);
    bool died() const { return died_; }

  private:
    const Params* params_;
    Progress* progress_;
    bool is_process_;
    bool died_ = false;
    std::mt19937_64 random_;
};

// Transports with crash points. After the role died no store goes through any more: as with a real
// crash, nothing later becomes visible.
class MortalDispatch final : public DispatchTransport {
  public:
    MortalDispatch(DispatchTransport& real, Fate& fate)
        : DispatchTransport(real), real_(&real), fate_(&fate) {}

    void put_row(uint32_t rank,
                 uint32_t micro_batch,
                 uint32_t token_idx,
                 uint32_t k,
                 std::span<const std::byte> row) override {
        if (!fate_->at(Point::kRowPut)) real_->put_row(rank, micro_batch, token_idx, k, row);
    }
    void publish(uint32_t rank,
                 uint32_t micro_batch,
                 int32_t layer_id,
                 std::span<const int32_t> ids,
                 int32_t round) override {
        if (fate_->at(Point::kBeforeFlag)) return;
        real_->publish(rank, micro_batch, layer_id, ids, round);
        fate_->at(Point::kAfterFlag);
    }
    bool can_fence() const override { return real_->can_fence(); }
    void fence(uint32_t rank, uint32_t micro_batch) override { real_->fence(rank, micro_batch); }
    void ring_peers() override { real_->ring_peers(); }

    Result<std::unique_ptr<TwoPhaseDispatchTransport>> two_phase() override {
        return real_->two_phase();
    }

  private:
    DispatchTransport* real_;
    Fate* fate_;
};

class MortalReturn final : public ReturnTransport {
  public:
    MortalReturn(ReturnTransport& real, Fate& fate)
        : ReturnTransport(real), real_(&real), fate_(&fate) {}

    void put_result(uint32_t session,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    std::span<const std::byte> row,
                    int32_t round) override {
        if (fate_->at(Point::kBetweenResults)) return;
        real_->put_result(session, micro_batch, token_idx, k, row, round);
    }
    void put_refusal(uint32_t session,
                     uint32_t micro_batch,
                     uint32_t token_idx,
                     uint32_t k,
                     int32_t round) override {
        if (!fate_->died()) real_->put_refusal(session, micro_batch, token_idx, k, round);
    }
    void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) override {
        if (!fate_->at(Point::kBeforeAcknowledge)) {
            real_->acknowledge(session, micro_batch, round);
        }
    }
    void ring_peers() override { real_->ring_peers(); }

    Result<std::unique_ptr<TwoPhaseReturnTransport>> two_phase() override {
        return real_->two_phase();
    }

  private:
    ReturnTransport* real_;
    Fate* fate_;
};

// Each role is one life of a worker, from attaching on.
// Returns whether it ended by itself: its rounds are done, or `stop` was set.
bool run_attention(DispatchTransport& transport,
                   const Params& params,
                   Progress& progress,
                   Fate& fate);
bool run_ffn(ReturnTransport& transport, const Params& params, Progress& progress, Fate& fate);

// The geometry of all stress tests.
inline Geometry stress_geometry() {
    return {.num_sessions = 3,
            .num_micro_batches = 2,
            .micro_batch_size = 3,
            .selected_expert_num = 2,
            .num_experts = 16,
            .attn_to_ffn_token_bytes = 512,
            .ffn_to_attn_token_bytes = 512,
            .num_ffn_workers = 2};
}

// Puts every lane a few rounds before the wrap-around, with result flags that are stale values of
// numbers soon to come. The three functions give the address of a word.
template <typename Descriptor, typename Acknowledged, typename ResultFlag>
void age_rounds(const Geometry& geometry,
                Descriptor&& descriptor,
                Acknowledged&& acknowledged,
                ResultFlag&& result_flag) {
    for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
        for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
            for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) {
                *descriptor(f, s, m) = kRoundMax - static_cast<int32_t>(3 * f + m);
                *acknowledged(f, s, m) = *descriptor(f, s, m);
            }
            for (uint32_t bs = 0; bs < geometry.micro_batch_size; ++bs) {
                for (uint32_t k = 0; k < geometry.selected_expert_num; ++k) {
                    *result_flag(s, m, bs, k) =
                        bs == 0 ? kRoundMax : static_cast<int32_t>(2 * bs + k);
                }
            }
        }
    }
}

// Whether every point was a place of death at least once.
void expect_every_point_killed(const Progress& progress);

// Fails the test if more rounds were refused than FFN ranks died of executions.
void expect_refusals_explained(const Progress& progress);

}  // namespace afd::schedule::stress

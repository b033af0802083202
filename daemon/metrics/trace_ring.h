// SPDX-License-Identifier: Apache-2.0
#pragma once

// TraceRing: the last kTraceEvents things that a worker's data thread did, in its metrics segment.
//
// Off, it costs the writer one load and a branch. One writer, one reader at a time (afdd), which
// turns it on and takes the events before they are overwritten, or counts those it missed.
//
// Ordering: the head says how many events were begun and how many ended. The words of an event
// are released and acquired, so a reader that saw a word of a newer event in a place also sees in
// the head that it was begun, and drops what it read.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/layout/metrics_layout.h"

namespace afd::daemon {

enum class TraceKind : uint8_t {
    kAttention = 0,  // Attention worker: the attention block of a layer, router included.
    kDispatch = 1,   // Rows into the windows, and publishing. Colocated: also the experts.
    kWait = 2,       // From the publishing to the first look that found all results.
    kCombine = 3,    // Weighted sum, shared experts, residual.
    kHead = 4,       // Head and sampling.
    kGather = 5,     // FFN worker: taking a pass, its rows sorted by expert.
    kExperts = 6,    // The experts of the pass.
    kReturn = 7,     // Result rows and flags.
    kBlock = 8,      // FFN worker: a step of two-phase rounds. Attention worker: no event, time.
    kBubble = 9,     // The data thread waits for the other side, which has the work. No round.
};
inline constexpr uint8_t kTraceKinds = 10;
std::string_view trace_kind_name(TraceKind kind);

struct TraceEvent {
    uint64_t start_ns = 0;  // CLOCK_MONOTONIC
    uint64_t duration_ns = 0;
    TraceKind kind = TraceKind::kAttention;
    uint8_t micro_batch = 0;  // M: the lane of two-phase rounds.
    uint16_t session = 0;
    uint32_t layer = 0;
    uint32_t num_rows = 0;  // FFN worker: of the whole pass.
    int32_t round = 0;      // 0: there is none.

    friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

class TraceRing {
  public:
    TraceRing() = default;
    explicit TraceRing(std::byte* segment);

    // The writer's. Relaxed: partner is turn(), which need only be seen some time.
    bool is_on() const { return load(*switch_, std::memory_order_relaxed) != 0; }
    void record(const TraceEvent& event);

    // The reader's.
    void turn(bool on);
    // Events that ended since the worker's segment was made. Pairs with the end of record().
    uint64_t num_ended() const { return load(head_[1], std::memory_order_acquire); }
    // Appends the events from number `next` on, `events_max` at most, and moves it behind the last.
    // Returns how many were overwritten before they could be taken. Events that name no kind count
    // as such.
    uint64_t take(uint64_t& next,
                  std::vector<TraceEvent>& events,
                  uint64_t events_max = schedule::kTraceEvents) const;

  private:
    static uint64_t load(const uint64_t& word, std::memory_order order) {
        return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(order);
    }
    uint64_t* place(uint64_t number) const {
        return &events_[number % schedule::kTraceEvents * (schedule::kTraceEventBytes / 8)];
    }

    uint64_t* switch_ = nullptr;
    uint64_t* head_ = nullptr;  // Begun, ended.
    uint64_t* events_ = nullptr;
};

}  // namespace afd::daemon

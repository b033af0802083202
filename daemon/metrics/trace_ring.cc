// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/trace_ring.h"

#include <algorithm>

namespace afd::daemon {
namespace {

constexpr size_t kEventWords = schedule::kTraceEventBytes / sizeof(uint64_t);
using EventWords = std::array<uint64_t, kEventWords>;
static_assert(kEventWords == 4);

EventWords to_words(const TraceEvent& event) {
    return {event.start_ns,
            event.duration_ns,
            uint64_t{static_cast<uint8_t>(event.kind)} | uint64_t{event.micro_batch} << 8 |
                uint64_t{event.session} << 16 | uint64_t{event.layer} << 32,
            uint64_t{event.num_rows} | uint64_t{static_cast<uint32_t>(event.round)} << 32};
}

TraceEvent from_words(const EventWords& words) {
    return {.start_ns = words[0],
            .duration_ns = words[1],
            .kind = static_cast<TraceKind>(words[2] & 0xff),
            .micro_batch = static_cast<uint8_t>(words[2] >> 8),
            .session = static_cast<uint16_t>(words[2] >> 16),
            .layer = static_cast<uint32_t>(words[2] >> 32),
            .num_rows = static_cast<uint32_t>(words[3]),
            .round = static_cast<int32_t>(words[3] >> 32)};
}

}  // namespace

std::string_view trace_kind_name(TraceKind kind) {
    constexpr std::array<std::string_view, kTraceKinds> kNames = {"attention",
                                                                  "dispatch",
                                                                  "wait",
                                                                  "combine",
                                                                  "head",
                                                                  "gather",
                                                                  "experts",
                                                                  "return",
                                                                  "two-phase block",
                                                                  "bubble"};
    const auto index = static_cast<uint8_t>(kind);
    return index < kTraceKinds ? kNames[index] : "unknown";
}

TraceRing::TraceRing(std::byte* segment)
    : switch_(reinterpret_cast<uint64_t*>(segment + schedule::kTraceSwitchOffset)),
      head_(reinterpret_cast<uint64_t*>(segment + schedule::kTraceHeadOffset)),
      events_(reinterpret_cast<uint64_t*>(segment + schedule::kTraceEventsOffset)) {}

void TraceRing::record(const TraceEvent& event) {
    // Relaxed: the own last store, or a predecessor's, whose unfinished event is written over.
    const uint64_t number = load(head_[1], std::memory_order_relaxed);
    // Relaxed: released by the words that follow.
    std::atomic_ref<uint64_t>(head_[0]).store(number + 1, std::memory_order_relaxed);
    const EventWords words = to_words(event);
    for (size_t i = 0; i < words.size(); ++i) {
        // Pairs with take()'s acquire of the same word.
        std::atomic_ref<uint64_t>(place(number)[i]).store(words[i], std::memory_order_release);
    }
    // Pairs with num_ended().
    std::atomic_ref<uint64_t>(head_[1]).store(number + 1, std::memory_order_release);
}

void TraceRing::turn(bool on) {
    // Relaxed: partner is is_on(), which needs to see it some time.
    std::atomic_ref<uint64_t>(*switch_).store(on ? 1 : 0, std::memory_order_relaxed);
}

uint64_t TraceRing::take(uint64_t& next,
                         std::vector<TraceEvent>& events,
                         uint64_t events_max) const {
    const uint64_t ended = num_ended();
    if (ended < next) next = ended;  // Only a worker that wrote nonsense gets here.
    const uint64_t oldest = ended - std::min(ended, schedule::kTraceEvents);
    uint64_t num_lost = std::max(next, oldest) - next;
    const uint64_t first = next + num_lost;
    const uint64_t end = first + std::min(ended - first, events_max);
    for (uint64_t number = first; number < end; ++number) {
        EventWords words;
        for (size_t i = 0; i < words.size(); ++i) {
            // Pairs with record()'s release: what it brings of a newer event is begun below.
            words[i] = load(place(number)[i], std::memory_order_acquire);
        }
        const TraceEvent event = from_words(words);
        // Relaxed: partner is record()'s store, ordered by the words above.
        const uint64_t begun = load(head_[0], std::memory_order_relaxed);
        const bool is_whole = begun <= number + schedule::kTraceEvents;
        if (is_whole && static_cast<uint8_t>(event.kind) < kTraceKinds) {
            events.push_back(event);
        } else {
            ++num_lost;
        }
    }
    next = end;
    return num_lost;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/trace_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

namespace afd::daemon {
namespace {

class TraceRingTest : public testing::Test {
  protected:
    // Every field follows from the number.
    static TraceEvent event_of(uint64_t number) {
        return {.start_ns = number,
                .duration_ns = number * 3,
                .kind = static_cast<TraceKind>(number % kTraceKinds),
                .micro_batch = static_cast<uint8_t>(number),
                .session = static_cast<uint16_t>(number * 5),
                .layer = static_cast<uint32_t>(number * 7),
                .num_rows = static_cast<uint32_t>(number * 11),
                .round = -static_cast<int32_t>(number)};
    }

    std::vector<uint64_t> words_ = std::vector<uint64_t>(schedule::kMetricsLanesOffset / 8);
    TraceRing ring_{std::as_writable_bytes(std::span(words_)).data()};
};

TEST_F(TraceRingTest, GivesEveryEventOnce) {
    EXPECT_FALSE(ring_.is_on());
    ring_.turn(true);
    EXPECT_TRUE(ring_.is_on());
    uint64_t next = 0;
    std::vector<TraceEvent> events;
    for (uint64_t number = 0; number < 10'000;) {
        for (int i = 0; i < 100; ++i) ring_.record(event_of(number++));
        EXPECT_EQ(ring_.take(next, events), 0u);
    }
    EXPECT_EQ(ring_.take(next, events), 0u);
    ASSERT_EQ(events.size(), 10'000u);
    for (uint64_t number = 0; number < events.size(); ++number) {
        EXPECT_EQ(events[number], event_of(number));
    }
}

TEST_F(TraceRingTest, CountsWhatWasOverwritten) {
    for (uint64_t number = 0; number < schedule::kTraceEvents + 17; ++number) {
        ring_.record(event_of(number));
    }
    uint64_t next = 5;
    std::vector<TraceEvent> events;
    EXPECT_EQ(ring_.take(next, events), 12u);
    ASSERT_EQ(events.size(), schedule::kTraceEvents);
    EXPECT_EQ(events.front(), event_of(17));
    EXPECT_EQ(next, schedule::kTraceEvents + 17);
}

TEST_F(TraceRingTest, GivesAPartAndTheRestLater) {
    for (uint64_t number = 0; number < 10; ++number) ring_.record(event_of(number));
    uint64_t next = 0;
    std::vector<TraceEvent> events;
    EXPECT_EQ(ring_.take(next, events, 7), 0u);
    EXPECT_EQ(events.size(), 7u);
    EXPECT_EQ(next, 7u);
    EXPECT_EQ(ring_.take(next, events, 7), 0u);
    ASSERT_EQ(events.size(), 10u);
    EXPECT_EQ(events.back(), event_of(9));
}

// A worker writes what it likes into its segment: it costs afdd nothing but its events.
TEST_F(TraceRingTest, NonsenseIsDroppedAndCounted) {
    ring_.record(event_of(1));
    words_[schedule::kTraceEventsOffset / 8 + 2] = 0xff;
    uint64_t next = 0;
    std::vector<TraceEvent> events;
    EXPECT_EQ(ring_.take(next, events), 1u);
    EXPECT_TRUE(events.empty());
    next = 100;
    EXPECT_EQ(ring_.take(next, events), 0u);
    EXPECT_EQ(next, 1u);
    words_[schedule::kTraceHeadOffset / 8 + 1] = ~uint64_t{0};
    ring_.take(next, events);
    EXPECT_LE(events.size(), schedule::kTraceEvents);
}

// Goal: a reader never takes an event that is half of another. Method: a writer that does not
// pause, so that places are overwritten while they are read. Oracle: each event's fields follow
// from its start; numbers rise; taken and lost add up.
TEST_F(TraceRingTest, EventsAreWholeWhileTheWriterGoesOn) {
    constexpr uint64_t kEvents = 400'000;
    std::thread writer([this] {
        for (uint64_t number = 0; number < kEvents; ++number) ring_.record(event_of(number));
    });
    uint64_t next = 0;
    uint64_t num_lost = 0;
    uint64_t num_taken = 0;
    uint64_t after = 0;
    std::vector<TraceEvent> events;
    while (next < kEvents) {
        events.clear();
        num_lost += ring_.take(next, events);
        num_taken += events.size();
        for (const TraceEvent& event : events) {
            ASSERT_EQ(event, event_of(event.start_ns));
            ASSERT_GE(event.start_ns, after);
            after = event.start_ns + 1;
        }
    }
    writer.join();
    EXPECT_EQ(num_taken + num_lost, kEvents);
    EXPECT_GE(num_taken, schedule::kTraceEvents / 2) << "the last look is at a still ring";
}

TEST(TraceKind, HasANameOfItsOwn) {
    EXPECT_EQ(trace_kind_name(TraceKind::kAttention), "attention");
    EXPECT_EQ(trace_kind_name(TraceKind::kBlock), "two-phase block");
    EXPECT_EQ(trace_kind_name(static_cast<TraceKind>(kTraceKinds)), "unknown");
}

}  // namespace
}  // namespace afd::daemon

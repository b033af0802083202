// SPDX-License-Identifier: Apache-2.0
//
// Goal: an FFN worker gets no more memory than a round can need, whatever it asks for. Method: real
// segments of a page or two. Oracle: the errors' words, and the bytes that are held.

#include "daemon/supervisor/two_phase_segments.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/segment.h"

namespace afd::daemon {
namespace {

constexpr schedule::TwoPhaseSizes kSizesMax{4096, 8192};

std::string test_prefix() {
    return schedule::segment_prefix("round_segments_test", static_cast<uint64_t>(::getpid()));
}

TEST(TwoPhaseSegments, AreAsLargeAsARoundCanBeAndNotLarger) {
    TwoPhaseSegments segments(test_prefix(), 2, 0, kSizesMax);
    const auto refusal = [&](uint32_t session, int32_t round, schedule::TwoPhaseSizes sizes) {
        const auto made = segments.acquire(0, session, round, sizes);
        if (made.ok()) return std::string("made");
        EXPECT_EQ(made.error().code, Code::kInvalidArgument);
        return made.error().message;
    };
    EXPECT_EQ(refusal(1, 1, {4097, 0}),
              "a two-phase round of session 1 asks for receive_bytes = 4097; allowed are 0 to "
              "4096");
    EXPECT_EQ(refusal(1, 1, {4096, UINT64_MAX}),
              "a two-phase round of session 1 asks for return_bytes = 18446744073709551615; "
              "allowed are 0 to 8192");
    EXPECT_EQ(refusal(1, 1, {0, 0}),
              "a two-phase round of session 1 asks for 0 + 0 bytes: no round needs nothing");
    EXPECT_EQ(refusal(2, 1, {1, 1}),
              "segments of round 1 with session 2: rounds begin with 1, the instance has 2 "
              "sessions");
    EXPECT_EQ(segments.bytes_of(0), 0U);
    EXPECT_EQ(refusal(1, 1, kSizesMax), "made");
    EXPECT_EQ(segments.bytes_of(0), 4096U + 8192U);
    EXPECT_NE(refusal(1, 1, {4097, 8192}), "made") << "of a round that has its segments, too";
    EXPECT_EQ(segments.bytes_of(0), 4096U + 8192U);
    segments.release(0, 1, 1);
    EXPECT_EQ(segments.bytes_of(0), 0U);
}

// Goal: a release that was lost with its process holds no memory once a later one came, and one
// that comes late takes nothing from the round that has it now.
TEST(TwoPhaseSegments, ALaterRoundsReleaseFreesThoseBefore) {
    TwoPhaseSegments segments(test_prefix(), 2, 0, kSizesMax);
    ASSERT_TRUE(segments.acquire(0, 1, 5, {64, 64}).ok());
    ASSERT_TRUE(segments.acquire(0, 0, 1, {64, 0}).ok());
    segments.release(0, 1, 6);
    EXPECT_EQ(segments.bytes_of(0), 64U) << "that of the other session";
    ASSERT_TRUE(segments.acquire(0, 1, 8, {64, 64}).ok());
    segments.release(0, 1, 7);
    EXPECT_EQ(segments.bytes_of(0), 3 * 64U);
}

// Goal: workers that share no windows get no memory, and no more than the limit; what a dead one
// had is free.
TEST(TwoPhaseSegments, AreOnlyCountedForWorkersThatShareNothing) {
    TwoPhaseSegments segments(test_prefix(), 2, 200, kSizesMax, schedule::Windows::kPrivate);
    const auto made = segments.acquire(1, 0, 1, {64, 64});
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made.value().receive, -1);
    EXPECT_EQ(made.value().results, -1);
    EXPECT_EQ(segments.bytes_of(1), 128U);
    const auto refused = segments.acquire(1, 1, 1, {64, 64});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "a two-phase round of session 1 needs 64 + 64 bytes; 72 of two_phase_memory_max = "
              "200 are free");
    ASSERT_TRUE(segments.acquire(0, 1, 1, {64, 64}).ok()) << "the limit is for each rank";
    segments.forget(1);
    EXPECT_EQ(segments.bytes_of(1), 0U);
    EXPECT_EQ(segments.bytes_of(0), 128U);
    EXPECT_TRUE(segments.acquire(1, 1, 1, {64, 64}).ok());
}

// What afdd has itself outlives the worker.
TEST(TwoPhaseSegments, AreKeptForASuccessor) {
    TwoPhaseSegments segments(test_prefix(), 1, 0, kSizesMax);
    ASSERT_TRUE(segments.acquire(0, 0, 1, {64, 64}).ok());
    segments.forget(0);
    EXPECT_EQ(segments.bytes_of(0), 128U);
}

TEST(TwoPhaseSegments, AreNotMadeWhereNoRoundsAre) {
    TwoPhaseSegments segments(test_prefix(), 1, 0, schedule::two_phase_sizes_max({}, 8, {64, 64}));
    EXPECT_FALSE(segments.acquire(0, 0, 1, {1, 0}).ok());
    EXPECT_EQ(segments.bytes_of(0), 0U);
}

}  // namespace
}  // namespace afd::daemon

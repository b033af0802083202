// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/worker_totals.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::daemon {
namespace {

// A segment as a worker of either role has it: two peers, or four experts.
struct WorkerSegment {
    std::vector<uint64_t> words = std::vector<uint64_t>(
        (schedule::kMetricsLanesOffset + 2 * schedule::kHistogramBytes) / sizeof(uint64_t));
    Metrics metrics() { return Metrics(std::as_writable_bytes(std::span(words))); }
};

// Goal: nobody sees a count fall or counts twice over the lives of three processes, the second of
// which dies before it serves. Oracle: sums by hand, at every step of a life.
TEST(WorkerTotals, AddUpOverTheLivesOfProcesses) {
    WorkerSegment segment;
    Metrics metrics = segment.metrics();
    WorkerTotals totals(metrics, 2, 0);
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 0u);
    metrics.start();
    totals.begin();
    metrics.add(Counter::kTokens, 5);
    metrics.peer_wait(1).record(100);
    metrics.histogram(Histogram::kStepNs).record(7000);
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 5u);
    metrics.add(Counter::kTokens, 1);
    totals.end();
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 6u);

    // One that begins with zeros and is gone before it serves: the segment is nobody's.
    metrics.start();
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 6u);
    totals.end();
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 6u);

    metrics.start();
    totals.begin();
    EXPECT_EQ(totals.read().counter(Counter::kTokens), 6u);
    metrics.add(Counter::kTokens, 10);
    metrics.peer_wait(1).record(300);
    metrics.histogram(Histogram::kStepNs).record(50);
    const WorkerCounts counts = totals.read();
    EXPECT_EQ(counts.counter(Counter::kTokens), 16u);
    ASSERT_EQ(counts.peer_waits.size(), 2u);
    EXPECT_EQ(counts.peer_waits[0].count, 0u);
    EXPECT_EQ(counts.peer_waits[1].count, 2u);
    EXPECT_EQ(counts.peer_waits[1].sum, 400u);
    EXPECT_EQ(counts.histogram(Histogram::kStepNs).count, 2u);
    EXPECT_EQ(counts.histogram(Histogram::kStepNs).largest, 7000u);
}

// Goal: a resize gives the worker another segment, and other peers: what was counted before stays.
// Oracle: sums by hand.
TEST(WorkerTotals, GoOnFromTheCountsOfAnotherSegment) {
    WorkerSegment old_segment;
    Metrics old_metrics = old_segment.metrics();
    WorkerTotals old_totals(old_metrics, 2, 0);
    old_metrics.start();
    old_totals.begin();
    old_metrics.add(Counter::kTokens, 5);
    old_metrics.peer_wait(1).record(100);
    old_totals.end();

    WorkerSegment segment;
    Metrics metrics = segment.metrics();
    WorkerTotals totals(metrics, 1, 0);
    metrics.start();
    totals.begin();
    metrics.add(Counter::kTokens, 2);
    metrics.peer_wait(0).record(7);
    totals.add_earlier(old_totals.read());
    const WorkerCounts counts = totals.read();
    EXPECT_EQ(counts.counter(Counter::kTokens), 7u);
    ASSERT_EQ(counts.peer_waits.size(), 2u);
    EXPECT_EQ(counts.peer_waits[0].sum, 7u);
    EXPECT_EQ(counts.peer_waits[1].sum, 100u);

    // Experts that the worker had before, and has no more.
    WorkerCounts before;
    before.expert_rows = {0, 3, 4};
    WorkerTotals of_ffn(metrics, 0, 1);
    of_ffn.add_earlier(before);
    EXPECT_EQ(of_ffn.read().expert_rows, (std::vector<uint64_t>{0, 3, 4}));
}

// A level is of the process that serves: the sequences of a dead one are nobody's.
TEST(WorkerTotals, DoNotAddUpLevels) {
    WorkerSegment segment;
    Metrics metrics = segment.metrics();
    WorkerTotals totals(metrics, 0, 4);
    totals.begin();
    metrics.set(Counter::kSequences, 3);
    metrics.set(Counter::kKvTokens, 640);
    metrics.add_expert_rows(2, 9);
    EXPECT_EQ(totals.read().counter(Counter::kSequences), 3u);
    totals.end();
    EXPECT_EQ(totals.read().counter(Counter::kSequences), 0u);
    EXPECT_EQ(totals.read().counter(Counter::kKvTokens), 0u);
    EXPECT_EQ(totals.read().expert_rows, (std::vector<uint64_t>{0, 0, 9, 0}));
}

TEST(Metrics, AWaitIsOfOneCauseAndOfOneKind) {
    WorkerSegment segment;
    Metrics metrics = segment.metrics();
    metrics.add_wait(100, /*is_idle=*/false, /*has_slept=*/false);
    metrics.add_wait(1000, /*is_idle=*/false, /*has_slept=*/true);
    metrics.add_wait(10'000, /*is_idle=*/true, /*has_slept=*/true);
    EXPECT_EQ(metrics.get(Counter::kSpun), 1u);
    EXPECT_EQ(metrics.get(Counter::kSlept), 2u);
    EXPECT_EQ(metrics.get(Counter::kBubbleNs), 1100u);
    EXPECT_EQ(metrics.get(Counter::kIdleNs), 10'000u);
    EXPECT_EQ(metrics.get(Counter::kSpinNs), 100u);
    EXPECT_EQ(metrics.get(Counter::kSleepNs), 11'000u);
}

}  // namespace
}  // namespace afd::daemon

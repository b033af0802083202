// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "daemon/metrics/metrics_status.h"
#include "proto/frame.h"

namespace afd::daemon {
namespace {

using Words = std::vector<uint64_t>;

struct Segment {
    Words words;

    explicit Segment(size_t num_lane_words)
        : words(schedule::kMetricsLanesOffset / sizeof(uint64_t) + num_lane_words) {}
    Metrics metrics() { return Metrics(std::as_writable_bytes(std::span(words))); }
};

// Oracle: the edges worked out from the description: 0, 1, 2, 3, then four a doubling.
TEST(MetricHistogram, HasFourBucketsAnOctave) {
    EXPECT_EQ(histogram_edge(3), 3u);
    EXPECT_EQ(histogram_edge(4), 4u);
    EXPECT_EQ(histogram_edge(7), 7u);
    EXPECT_EQ(histogram_edge(8), 8u);
    EXPECT_EQ(histogram_edge(9), 10u);
    EXPECT_EQ(histogram_edge(12), 16u);
    for (size_t bucket = 0; bucket < kHistogramBuckets; ++bucket) {
        EXPECT_EQ(histogram_bucket(histogram_edge(bucket)), bucket);
        EXPECT_EQ(histogram_bucket(histogram_edge(bucket + 1) - 1), bucket);
    }
    EXPECT_EQ(histogram_bucket(~uint64_t{0}), kHistogramBuckets - 1);
}

// Goal: quantiles are right to a bucket. Method: random values over ten octaves. Oracle: the
// sorted values.
TEST(MetricHistogram, QuantilesAreWithinABucketOfTheSortedValues) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> exponent(4, 14);
    Segment segment(0);
    const MetricHistogram histogram = segment.metrics().histogram(Histogram::kPassNs);
    std::vector<uint64_t> values(5000);
    uint64_t sum = 0;
    for (uint64_t& value : values) {
        value = static_cast<uint64_t>(std::exp2(exponent(random)));
        sum += value;
        histogram.record(value);
    }
    std::sort(values.begin(), values.end());
    const HistogramCounts counts = histogram.read();
    EXPECT_EQ(counts.count, values.size());
    EXPECT_EQ(counts.sum, sum);
    EXPECT_EQ(counts.largest, values.back());
    for (const double fraction : {0.01, 0.25, 0.5, 0.9, 0.99}) {
        const auto rank = static_cast<size_t>(fraction * static_cast<double>(values.size()));
        const auto exact = static_cast<double>(values[rank]);
        EXPECT_NEAR(counts.value_at(fraction), exact, exact / 4) << fraction;
    }
    EXPECT_EQ(counts.value_at(1), static_cast<double>(values.back()));
}

TEST(MetricHistogram, SmallNumbersAreExact) {
    Segment segment(0);
    const MetricHistogram histogram = segment.metrics().histogram(Histogram::kInFlight);
    EXPECT_EQ(histogram.read().value_at(0.5), 0);
    for (int i = 0; i < 99; ++i) histogram.record(2);
    histogram.record(7);
    EXPECT_EQ(histogram.read().value_at(0.5), 2);
    EXPECT_EQ(histogram.read().value_at(0.999), 7);
    EXPECT_DOUBLE_EQ(histogram.read().mean(), 2.05);
}

// Goal: a successor counts anew, and nothing else is touched: the trace's switch is afdd's, and
// its events go on with their numbers.
TEST(Metrics, StartForgetsCountsAndKeepsTheTrace) {
    Segment segment(2 * schedule::kHistogramBytes / sizeof(uint64_t));
    Metrics metrics = segment.metrics();
    metrics.add(Counter::kTimeouts, 3);
    metrics.histogram(Histogram::kReady).record(9);
    metrics.peer_wait(1).record(5);
    metrics.trace().turn(true);
    metrics.trace().record({.start_ns = 1});
    metrics.start();
    EXPECT_EQ(metrics.get(Counter::kTimeouts), 0u);
    EXPECT_EQ(metrics.histogram(Histogram::kReady).read().count, 0u);
    EXPECT_EQ(metrics.peer_wait(1).read().count, 0u);
    EXPECT_TRUE(metrics.trace().is_on());
    EXPECT_EQ(metrics.trace().num_ended(), 1u);
}

TEST(MetricsStatus, TellsWhatHappenedInMicrosecondsAndNothingElse) {
    Segment segment(2 * schedule::kHistogramBytes / sizeof(uint64_t));
    Metrics metrics = segment.metrics();
    metrics.add(Counter::kTimeouts, 2);
    metrics.set(Counter::kWeightBytesLeft, 4096);
    metrics.add(Counter::kPrefixQueries, 500);
    metrics.add(Counter::kPrefixHits, 320);
    metrics.peer_wait(1).record(48'000);
    metrics.add(phase_counter(TraceKind::kAttention), 7'000'000);
    metrics.add(phase_counter(TraceKind::kHead), 2'000'999);
    client::Worker worker;
    fill_attention_metrics(metrics, 2, worker);
    EXPECT_EQ(worker.busy_us(), 9000u);
    ASSERT_EQ(worker.stages_size(), 2);
    EXPECT_EQ(worker.stages(0).name(), trace_kind_name(TraceKind::kAttention));
    EXPECT_EQ(worker.stages(0).time_us(), 7000u);
    EXPECT_EQ(worker.stages(1).time_us(), 2000u);
    EXPECT_EQ(worker.num_timeouts(), 2u);
    EXPECT_EQ(worker.weight_bytes_left(), 4096u);
    EXPECT_EQ(worker.num_prefix_queries(), 500u);
    EXPECT_EQ(worker.num_prefix_hits(), 320u);
    ASSERT_EQ(worker.distributions_size(), 1);
    EXPECT_EQ(worker.distributions(0).name(), "wait for ffn 1");
    EXPECT_EQ(worker.distributions(0).unit(), "us");
    EXPECT_EQ(worker.distributions(0).max(), 48.0);
    EXPECT_EQ(worker.distributions(0).p99(), 48.0);
}

// Goal: the status of the largest instance fits into a frame. Method: an attention worker that has
// waited for each of 256 ranks, a link to each, all numbers large; times 1,024. Oracle: the bytes;
// the slowest ranks are among what is told, in their order, with the sum of all.
TEST(MetricsStatus, OfManyRanksTheSlowestAreToldAndItFitsIntoAFrame) {
    constexpr uint32_t kRanks = 256;
    Segment segment(kRanks * schedule::kHistogramBytes / sizeof(uint64_t));
    Metrics metrics = segment.metrics();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        for (const uint64_t ns : {40'000, 999'999'999}) metrics.peer_wait(rank).record(ns + rank);
    }
    metrics.peer_wait(7).record(10'000'000'000);
    client::Status status;
    client::Worker& worker = *status.add_workers();
    fill_attention_metrics(metrics, kRanks, worker);
    ASSERT_EQ(worker.distributions_size(), 1 + static_cast<int>(kPeerWaitsMax));
    EXPECT_EQ(worker.distributions(0).name(), "wait for all ffn");
    EXPECT_EQ(worker.distributions(0).count(), 2 * kRanks + 1);
    EXPECT_EQ(worker.distributions(1).name(), "wait for ffn 7");
    EXPECT_EQ(worker.distributions(2).name(), "wait for ffn 225");
    EXPECT_EQ(worker.distributions(kPeerWaitsMax).name(), "wait for ffn 255");
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        client::Link& link = *worker.add_links();
        link.set_is_open(true);
        link.set_is_near(true);
        link.set_latency_ns(100'000'000);
        link.set_bytes_per_s(10'000'000'000);
        link.set_bytes_sent(uint64_t{1} << 48);
        link.set_bytes_received(uint64_t{1} << 48);
    }
    for (int i = 1; i < 1024; ++i) *status.add_workers() = worker;
    EXPECT_TRUE(fits_frame(status)) << status.ByteSizeLong();
}

TEST(MetricsStatus, TellsTheRowsOfEachExpertThatTheRankHolds) {
    Segment segment(16);
    Metrics metrics = segment.metrics();
    metrics.add_expert_rows(1, 5);
    metrics.add_expert_rows(4, 7);
    client::Worker worker;
    fill_ffn_metrics(metrics, {1, 3, 4}, 4, worker);
    ASSERT_EQ(worker.expert_rows_size(), 3);
    EXPECT_EQ(worker.expert_rows(0).expert(), 1u);
    EXPECT_EQ(worker.expert_rows(0).rows(), 5u);
    EXPECT_FALSE(worker.expert_rows(0).is_shared());
    EXPECT_EQ(worker.expert_rows(1).rows(), 0u);
    EXPECT_EQ(worker.expert_rows(2).rows(), 7u);
    EXPECT_TRUE(worker.expert_rows(2).is_shared());
}

TEST(MetricsStatus, TellsWhatEachKindOfWorkTook) {
    Segment segment(16);
    Metrics metrics = segment.metrics();
    metrics.add(phase_counter(TraceKind::kExperts), 7'500);
    metrics.add(phase_counter(TraceKind::kGather), 2'000);
    metrics.add(phase_counter(TraceKind::kReturn), 999);  // Less than a microsecond.
    client::Worker worker;
    fill_ffn_metrics(metrics, {}, 4, worker);
    ASSERT_EQ(worker.stages_size(), 2);
    EXPECT_EQ(worker.stages(0).name(), "gather");
    EXPECT_EQ(worker.stages(0).time_us(), 2u);
    EXPECT_EQ(worker.stages(1).name(), "experts");
    EXPECT_EQ(worker.stages(1).time_us(), 7u);
    EXPECT_EQ(worker.busy_us(), 10u);
}

}  // namespace
}  // namespace afd::daemon

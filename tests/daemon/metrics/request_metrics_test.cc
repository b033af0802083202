// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/request_metrics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace afd::daemon {
namespace {

uint64_t count_of(const BucketHistogram& histogram) {
    return std::accumulate(histogram.counts().begin(), histogram.counts().end(), uint64_t{0});
}

client::Finished finished_of(client::FinishReason reason,
                             uint32_t num_prompt,
                             uint32_t num_output) {
    client::Finished finished;
    finished.set_reason(reason);
    finished.set_num_prompt_tokens(num_prompt);
    finished.set_num_output_tokens(num_output);
    return finished;
}

TEST(BucketHistogram, ABoundBelongsToTheBucketBelowIt) {
    BucketHistogram histogram({1, 2, 5});
    for (const double value : {0.5, 1.0, 1.5, 2.0, 5.0, 6.0}) histogram.record(value);
    EXPECT_EQ(histogram.counts(), (std::vector<uint64_t>{2, 2, 1, 1}));
    EXPECT_DOUBLE_EQ(histogram.sum(), 16);
}

// Goal: each time is from and to the moments that its name says. Oracle: by hand, from one request
// of 3 tokens whose moments are all different.
TEST(RequestMetrics, MeasuresARequestFromItsMoments) {
    RequestMetrics metrics(512);
    RequestMoments moments;
    moments.accepted_us = 1'000'000;
    moments.started_us = 1'500'000;
    metrics.on_started(moments, 11, 5);
    metrics.on_token(moments, 2'500'000);
    moments.first_token_us = moments.last_token_us = 2'500'000;
    metrics.on_token(moments, 2'600'000);
    moments.last_token_us = 2'600'000;
    metrics.on_token(moments, 2'900'000);
    moments.last_token_us = 2'900'000;
    metrics.on_finished(moments, 3'000'000, finished_of(client::LENGTH, 11, 3), 3);
    EXPECT_EQ(metrics.num_prompt_tokens, 11u);
    EXPECT_EQ(metrics.num_output_tokens, 3u);
    EXPECT_EQ(metrics.num_cached_tokens, 5u);
    EXPECT_DOUBLE_EQ(metrics.queue_s.sum(), 0.5);
    EXPECT_DOUBLE_EQ(metrics.first_token_s.sum(), 1.5);
    EXPECT_DOUBLE_EQ(metrics.inter_token_s.sum(), 0.4);
    EXPECT_EQ(count_of(metrics.inter_token_s), 2u);
    EXPECT_DOUBLE_EQ(metrics.time_per_token_s.sum(), 0.2);
    EXPECT_DOUBLE_EQ(metrics.prefill_s.sum(), 1.0);
    EXPECT_DOUBLE_EQ(metrics.decode_s.sum(), 0.4);
    EXPECT_DOUBLE_EQ(metrics.inference_s.sum(), 1.5);
    EXPECT_DOUBLE_EQ(metrics.total_s.sum(), 2.0);
    EXPECT_DOUBLE_EQ(metrics.prompt_tokens.sum(), 11);
    EXPECT_DOUBLE_EQ(metrics.max_tokens.sum(), 3);
    EXPECT_EQ(metrics.ends.at(client::LENGTH), 1u);
}

// Goal: the part of the prompts that a cache had is of the same requests as the prompts. Method: a
// request that fails, one that ends, and its end. Oracle: by hand.
TEST(RequestMetrics, CachedTokensCountHoweverARequestEnds) {
    RequestMetrics metrics(512);
    metrics.on_started({.accepted_us = 1, .started_us = 2}, 100, 64);
    metrics.on_failed(Code::kDeadlineExceeded);
    EXPECT_EQ(metrics.num_prompt_tokens, 100u);
    EXPECT_EQ(metrics.num_cached_tokens, 64u);
    metrics.on_started({.accepted_us = 3, .started_us = 4}, 50, 0);
    client::Finished finished = finished_of(client::STOP, 50, 1);
    finished.set_num_cached_tokens(7);
    metrics.on_finished({.accepted_us = 3, .started_us = 4}, 9, finished, 3);
    EXPECT_EQ(metrics.num_prompt_tokens, 150u);
    EXPECT_EQ(metrics.num_cached_tokens, 64u) << "an end counts none again";
}

// A request that was cancelled in the queue has a length and an end, and no times of work.
TEST(RequestMetrics, ARequestThatNeverStartedHasNoTimesOfWork) {
    RequestMetrics metrics(512);
    metrics.on_finished({.accepted_us = 5}, 9, finished_of(client::CANCELLED, 4, 0), 10);
    EXPECT_EQ(count_of(metrics.total_s), 1u);
    for (const auto* none : {&metrics.queue_s,
                             &metrics.inference_s,
                             &metrics.prefill_s,
                             &metrics.decode_s,
                             &metrics.time_per_token_s}) {
        EXPECT_EQ(count_of(*none), 0u);
    }
}

}  // namespace
}  // namespace afd::daemon

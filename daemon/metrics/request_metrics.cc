// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/request_metrics.h"

#include <initializer_list>

namespace afd::daemon {
namespace {

// Below vLLM's, for small models: further bounds break no dashboard.
constexpr std::initializer_list<double> kFine = {
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3};

std::vector<double> with_finer(std::initializer_list<double> bounds) {
    std::vector<double> all;
    for (const double bound : kFine) {
        if (bound < *bounds.begin()) all.push_back(bound);
    }
    all.insert(all.end(), bounds);
    return all;
}

// Those of vLLM 0.11, and what lies between the finer ones and its first.
BucketHistogram first_token_buckets() {
    return BucketHistogram(with_finer({.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                       1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}));
}

BucketHistogram token_buckets() {
    return BucketHistogram(with_finer(
        {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}));
}

BucketHistogram request_buckets() {
    return BucketHistogram(
        with_finer({.01, .025, .05, .1, .2, .3, .5, .8,  1,   1.5, 2,   2.5,  5,
                    10,  15,   20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}));
}

// 1, 2, 5, 10, ... up to the longest that there can be.
BucketHistogram length_buckets(uint32_t longest) {
    std::vector<double> bounds;
    for (double decade = 1; decade <= longest; decade *= 10) {
        for (const double step : {1.0, 2.0, 5.0}) {
            if (decade * step <= longest) bounds.push_back(decade * step);
        }
    }
    return BucketHistogram(std::move(bounds));
}

double seconds(uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? static_cast<double>(to_us - from_us) / 1e6 : 0.0;
}

// Of every code: increase() of Prometheus misses the first count of a series that begins with it.
std::map<Code, uint64_t> no_errors() {
    std::map<Code, uint64_t> counts;
    constexpr int kLast = static_cast<int>(Code::kUnimplemented);
    for (int code = static_cast<int>(Code::kOk) + 1; code <= kLast; ++code) {
        counts[static_cast<Code>(code)] = 0;
    }
    return counts;
}

}  // namespace

RequestMetrics::RequestMetrics(uint32_t context_length)
    : first_token_s(first_token_buckets()),
      inter_token_s(token_buckets()),
      time_per_token_s(token_buckets()),
      total_s(request_buckets()),
      queue_s(request_buckets()),
      inference_s(request_buckets()),
      prefill_s(request_buckets()),
      decode_s(request_buckets()),
      prompt_tokens(length_buckets(context_length)),
      output_tokens(length_buckets(context_length)),
      max_tokens(length_buckets(context_length)),
      // So that a reader finds every end, also one that did not happen yet.
      ends{{client::STOP, 0}, {client::LENGTH, 0}, {client::CANCELLED, 0}},
      failed(no_errors()),
      refused(no_errors()) {}

void RequestMetrics::on_started(const RequestMoments& moments,
                                uint32_t num_prompt_tokens_new,
                                uint32_t num_cached_tokens_new) {
    num_prompt_tokens += num_prompt_tokens_new;
    num_cached_tokens += num_cached_tokens_new;
    queue_s.record(seconds(moments.accepted_us, moments.started_us));
}

void RequestMetrics::on_token(const RequestMoments& moments, uint64_t now_us) {
    ++num_output_tokens;
    if (moments.first_token_us == 0) {
        first_token_s.record(seconds(moments.accepted_us, now_us));
    } else {
        inter_token_s.record(seconds(moments.last_token_us, now_us));
    }
}

void RequestMetrics::on_finished(const RequestMoments& moments,
                                 uint64_t now_us,
                                 const client::Finished& finished,
                                 uint32_t max_tokens_of_it) {
    const uint32_t num_output = finished.num_output_tokens();
    ++ends[finished.reason()];
    total_s.record(seconds(moments.accepted_us, now_us));
    prompt_tokens.record(finished.num_prompt_tokens());
    output_tokens.record(num_output);
    max_tokens.record(max_tokens_of_it);
    if (moments.started_us == 0) return;  // Cancelled in the queue.
    inference_s.record(seconds(moments.started_us, now_us));
    if (moments.first_token_us == 0) return;
    const double decode = seconds(moments.first_token_us, moments.last_token_us);
    prefill_s.record(seconds(moments.started_us, moments.first_token_us));
    decode_s.record(decode);
    if (num_output > 1) time_per_token_s.record(decode / (num_output - 1));
}

uint64_t RequestMetrics::num_refused() const {
    uint64_t sum = 0;
    for (const auto& [code, count] : refused) sum += count;
    return sum;
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// The parts of afd-load that need no server: histogram, workload and the parsing of values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "clients/load/histogram.h"
#include "clients/load/level_result.h"
#include "clients/load/level_table.h"
#include "clients/load/load_options.h"
#include "clients/load/result_file.h"
#include "clients/load/workload.h"
#include "tests/file_size_limit.h"
#include "tests/temporary_directory.h"

namespace afd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

TEST(Histogram, AgreesWithHdrHistogramAtThreeDigits) {
    // Oracle: an independent implementation of the same bucket scheme (hdr-histogram-js).
    Histogram histogram;
    for (int64_t i = 1; i <= 100'000; ++i) histogram.record(i * 7 % 1'000'003 + 1);
    EXPECT_EQ(histogram.count(), 100'000u);
    EXPECT_EQ(histogram.value_at(50), 350'207);
    EXPECT_EQ(histogram.value_at(99), 693'247);
    EXPECT_EQ(histogram.value_at(99.9), 699'391);
}

TEST(Histogram, IsExactBelow2048AndWithinATenthOfAPercentAbove) {
    // Oracle: a sorted array with the nearest-rank rule.
    std::vector<int64_t> values;
    Histogram histogram;
    for (int64_t i = 0; i < 20'000; ++i) {
        values.push_back(i % 3 == 0 ? i % 2048 : i * i * 37);
        histogram.record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const double percentile : {0.01, 1.0, 10.0, 33.0, 50.0, 75.0, 99.0, 99.99, 100.0}) {
        const double rank = std::ceil(percentile / 100 * static_cast<double>(values.size()) - 1e-6);
        const int64_t exact = values[static_cast<size_t>(rank) - 1];
        const int64_t got = histogram.value_at(percentile);
        if (exact < 2048) {
            EXPECT_EQ(got, exact) << percentile;
        } else {
            EXPECT_GE(got, exact) << percentile;
            EXPECT_LE(got, exact + exact / 1024) << percentile;
        }
    }
    EXPECT_EQ(histogram.min(), values.front());
    EXPECT_EQ(histogram.max(), values.back());
    EXPECT_EQ(histogram.value_at(100), values.back());
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    EXPECT_DOUBLE_EQ(histogram.mean(), sum / 20'000);
}

TEST(Histogram, EmptyAndExtremeValues) {
    Histogram histogram;
    EXPECT_EQ(histogram.value_at(99), 0);
    EXPECT_EQ(histogram.min(), 0);
    EXPECT_EQ(histogram.max(), 0);
    EXPECT_EQ(histogram.mean(), 0);
    histogram.record(-5);
    histogram.record(INT64_MAX);
    EXPECT_EQ(histogram.min(), 0);
    EXPECT_EQ(histogram.max(), Histogram::kValueMax);
    EXPECT_EQ(histogram.value_at(100), Histogram::kValueMax);
}

TEST(Histogram, MergeIsTheSameAsRecordingBoth) {
    Histogram left, right, both;
    for (int64_t i = 0; i < 1000; ++i) {
        (i % 2 == 0 ? left : right).record(i * 17, 2);
        both.record(i * 17, 2);
    }
    left.merge(right);
    EXPECT_EQ(left.buckets(), both.buckets());
    EXPECT_EQ(left.count(), 2000u);
    EXPECT_EQ(left.max(), both.max());
    EXPECT_DOUBLE_EQ(left.mean(), both.mean());
}

TEST(Histogram, BucketsListWhatWasRecorded) {
    Histogram histogram;
    histogram.record(0, 15);
    histogram.record(7);
    histogram.record(2048);
    EXPECT_THAT(histogram.buckets(), ElementsAre(Pair(0, 15u), Pair(7, 1u), Pair(2049, 1u)));
}

Workload three_prompts() {
    Workload workload;
    workload.prompts = {"a", "b", "c"};
    workload.max_tokens_low = 16;
    workload.max_tokens_high = 20;
    workload.seed = 9;
    return workload;
}

TEST(Workload, IsAFunctionOfSeedAndIndexAndUsesItsWholeRange) {
    const Workload workload = three_prompts();
    Workload other = workload;
    other.seed = 10;
    std::vector<uint64_t> prompts(3), lengths(21);
    size_t num_different = 0;
    for (uint64_t i = 0; i < 3000; ++i) {
        const PlannedRequest planned = plan_request(workload, i);
        const PlannedRequest again = plan_request(workload, i);
        EXPECT_EQ(planned.prompt_index, again.prompt_index);
        EXPECT_EQ(planned.max_tokens, again.max_tokens);
        EXPECT_EQ(planned.sampling_seed, again.sampling_seed);
        num_different += planned.sampling_seed != plan_request(other, i).sampling_seed;
        ++prompts.at(planned.prompt_index);
        ++lengths.at(planned.max_tokens);
    }
    EXPECT_EQ(num_different, 3000u);
    // Of 3,000 draws a third, or a fifth, give or take five standard deviations (26 and 22).
    for (const uint64_t count : prompts) EXPECT_NEAR(static_cast<double>(count), 1000, 130);
    for (size_t n = 16; n <= 20; ++n) EXPECT_NEAR(static_cast<double>(lengths[n]), 600, 110);
}

TEST(Workload, MessageCarriesWhatWasPlanned) {
    Workload workload = three_prompts();
    workload.temperature = 0.5F;
    workload.ignore_eos = true;
    const PlannedRequest planned{7, 2, 18, 123};
    const Generate message = to_message(workload, planned);
    EXPECT_EQ(message.text(), "c");
    EXPECT_EQ(message.max_tokens(), 18u);
    EXPECT_EQ(message.sampling().seed(), 123u);
    EXPECT_EQ(message.sampling().temperature(), 0.5F);
    EXPECT_TRUE(message.ignore_eos());
}

TEST(PoissonArrivals, HaveTheAskedRateAndExponentialGaps) {
    const auto arrivals = poisson_arrivals_us(10'000, 50, 1);
    ASSERT_EQ(arrivals.size(), 10'000u);
    EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
    // The last gap is as the others: of 5 ms in the mean.
    EXPECT_LT(arrivals.back(), 50'000'000);
    EXPECT_GT(arrivals.back(), 49'900'000);
    EXPECT_EQ(arrivals, poisson_arrivals_us(10'000, 50, 1));
    EXPECT_NE(arrivals, poisson_arrivals_us(10'000, 50, 2));

    // Of exponential gaps with mean m, 1 - 1/e are shorter than m; five deviations are 0.024.
    size_t num_short = 0;
    for (size_t i = 1; i < arrivals.size(); ++i) {
        num_short += arrivals[i] - arrivals[i - 1] < 5'000;
    }
    EXPECT_NEAR(static_cast<double>(num_short) / 10'000, 1 - std::exp(-1), 0.024);
}

// Goal: few arrivals lie anywhere in their time, and in it. Oracle: of a Poisson process of which
// the number is known, each is uniform.
TEST(PoissonArrivals, FewAreSpreadOverTheirTime) {
    double sum_s = 0;
    constexpr uint64_t kRuns = 1000;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
        const auto arrivals = poisson_arrivals_us(2, 5, seed);
        ASSERT_EQ(arrivals.size(), 2u);
        EXPECT_GE(arrivals[0], 0);
        EXPECT_LE(arrivals[0], arrivals[1]);
        EXPECT_LE(arrivals[1], 5'000'000);
        sum_s += static_cast<double>(arrivals[0] + arrivals[1]) / 1e6;
    }
    // The mean of 2,000 uniform ones in 5 s, give or take five standard deviations.
    EXPECT_NEAR(sum_s / (2 * kRuns), 2.5, 0.16);
}

TEST(Prompts, ReadsALineEachAndTellsWhatIsMissing) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("prompts.txt", "first\n\nsecond\r\nthird");
    const auto prompts = read_prompts(path);
    ASSERT_TRUE(prompts.ok());
    EXPECT_THAT(prompts.value(), ElementsAre("first", "second", "third"));

    directory.write("prompts.txt", "\n\n");
    EXPECT_THAT(read_prompts(path).error().message, HasSubstr("holds no prompt"));
    std::filesystem::remove(path);
    const auto missing = read_prompts(path);
    EXPECT_EQ(missing.error().code, Code::kNotFound);
    EXPECT_THAT(missing.error().message, HasSubstr("--prompts FILE"));
}

TEST(LoadOptions, Durations) {
    using std::chrono::microseconds;
    EXPECT_EQ(parse_duration("5s").value(), microseconds(5'000'000));
    EXPECT_EQ(parse_duration("500ms").value(), microseconds(500'000));
    EXPECT_EQ(parse_duration("1.5").value(), microseconds(1'500'000));
    EXPECT_EQ(parse_duration("2m").value(), microseconds(120'000'000));
    EXPECT_EQ(parse_duration("1h").value(), microseconds(3'600'000'000));
    for (const char* text :
         {"", "s", "25h", "5d", "5 s", "-1s", "0s", "1e9s", "1.2.3s", "25000m"}) {
        const auto result = parse_duration(text);
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_THAT(result.error().message, HasSubstr("from 1ms to 24h"));
    }
}

TEST(LoadOptions, TokenRanges) {
    EXPECT_EQ(parse_token_range("64").value(), std::pair(64u, 64u));
    EXPECT_EQ(parse_token_range("16:128").value(), std::pair(16u, 128u));
    for (const char* text : {"", "0", "8:4", "8:", ":8", "a", "8x", "-3", "99999999999"}) {
        EXPECT_FALSE(parse_token_range(text).ok()) << text;
    }
}

TEST(LevelResult, SaturationFollowsItsRule) {
    LevelResult result;
    EXPECT_EQ(result.saturation(), "");
    result.client.busy_ratio = 0.95;
    EXPECT_THAT(result.saturation(), HasSubstr("busy 95 % of the time"));
    result.client.busy_ratio = 0.1;
    result.ttft_us.record(100'000);
    result.client.lag_us.record(9'000);
    EXPECT_EQ(result.saturation(), "");
    result.client.lag_us.record(11'000, 10);
    EXPECT_THAT(result.saturation(), HasSubstr("11.0 ms late, more than 10.0 ms"));
}

// Goal: a disk that is full costs no more than it must. Method: room for result.json and not for
// the lines of 1,000 requests; then room for neither. Oracle: the message, and what is left.
TEST(ResultFiles, WhatFitsIsWrittenAndNothingHalf) {
    const test::TemporaryDirectory directory;
    LoadReport report;
    report.options.out_dir = directory.path("out");
    report.levels.emplace_back().requests.resize(1000);
    const auto write_within = [&](rlim_t bytes) {
        ASSERT_TRUE(prepare_result_directory(report.options.out_dir).ok());
        Result<> written;
        {
            const test::FileSizeLimit limit(bytes);
            written = write_result_files(report);
        }
        ASSERT_FALSE(written.ok());
        EXPECT_EQ(written.error().code, Code::kResourceExhausted);
        EXPECT_THAT(written.error().message, HasSubstr("/requests.csv': File too large; free "));
        EXPECT_THAT(written.error().message, HasSubstr("another disk with --out DIR"));
    };
    const auto files = [&] {
        std::vector<std::string> names;
        for (const auto& file : std::filesystem::directory_iterator(report.options.out_dir)) {
            names.push_back(file.path().filename());
        }
        return names;
    };
    ASSERT_LT(result_json(report).size(), 16'384u);
    ASSERT_GT(requests_csv(report).size(), 16'384u);
    write_within(100);
    EXPECT_THAT(files(), IsEmpty());
    write_within(16'384);
    EXPECT_THAT(files(), ElementsAre("result.json"));
    EXPECT_EQ(std::filesystem::file_size(report.options.out_dir + "/result.json"),
              result_json(report).size());
}

// Goal: an empty value takes nothing of the words behind it. Oracle: both options.
TEST(LoadOptions, TakeAnEmptyValueBehindTheEqualsSign) {
    std::vector<std::string> words = {
        "afd-load", "--url", "http://h:1", "--concurrency", "1", "--api-key=", "--model", "m"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    int exit_code = 0;
    const auto options = parse_load_options(static_cast<int>(argv.size()), argv.data(), exit_code);
    ASSERT_TRUE(options.has_value());
    EXPECT_EQ(options->http.api_key, "");
    EXPECT_EQ(options->http.model, "m");
}

// Goal: nobody takes a prompt from the cache for one that was computed. Oracle: by hand.
TEST(RunSummary, SaysWhatCameFromThePrefixCache) {
    std::vector<LevelResult> results(3);
    for (size_t i = 0; i < 3; ++i) {
        results[i].level = {static_cast<uint32_t>(i + 1), 0};
        RequestRecord& request = results[i].requests.emplace_back();
        request.outcome = Outcome::kOk;
        request.num_prompt_tokens = 1000;
    }
    EXPECT_THAT(run_summary(results), Not(HasSubstr("cache")));
    results[1].requests[0].num_cached_tokens = 4;
    results[2].requests[0].num_cached_tokens = 612;
    EXPECT_THAT(
        run_summary(results),
        HasSubstr("\nunder 1 % of the prompt tokens of c=2, 61 % of c=3 came from the server's "
                  "prefix cache; to measure without it, start the server without it (afdd: "
                  "--prefix-cache false)\n"));
}

// Goal: a run that ended early does not look complete. Method: of two levels the second broke.
TEST(RunSummary, SaysWhereAndWhyARunEndedEarly) {
    std::vector<LevelResult> results(2);
    results[0].level = {1, 0};
    results[1].level = {2, 0};
    EXPECT_THAT(run_summary(results), Not(HasSubstr("ended early")));
    results[1].broken = "afdd is gone";
    const std::string summary = run_summary(results);
    EXPECT_THAT(summary,
                HasSubstr("\nended early at c=2: afdd is gone; later levels were not run\n"));
    EXPECT_THAT(summary, Not(HasSubstr("c=1")));
}

}  // namespace
}  // namespace afd::client

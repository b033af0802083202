// SPDX-License-Identifier: Apache-2.0
//
// Goal: a scraper gets the format that it asks for. Oracle: the two formats, written by hand; a
// Prometheus server reads the second in tests/integration/http/prometheus_test.py.
#include "daemon/http/answer/metrics_answer.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

constexpr const char* kText =
    "# HELP a_total Of a\n"
    "# TYPE a_total counter\n"
    "a_total{b=\"c d_total \"} 3\n"
    "# HELP g_total_now No counter\n"
    "# TYPE g_total_now gauge\n"
    "g_total_now 1\n"
    "# HELP vllm:h_total Neither\n"
    "# TYPE vllm:h_total histogram\n"
    "vllm:h_total_bucket{le=\"+Inf\"} 2\n";

constexpr const char* kPlain = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kOpen = "application/openmetrics-text; version=1.0.0; charset=utf-8";

TEST(MetricsAnswer, IsWhatTheScraperPrefers) {
    // The third: of Prometheus 2.42.
    for (const auto& [accept, type] : std::initializer_list<std::pair<const char*, const char*>>{
             {"", kPlain},
             {"*/*", kPlain},
             {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
              "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
              kOpen},
             {" text/plain , application/openmetrics-text ; q=0.3", kPlain},
             {"application/openmetrics-text", kOpen},
             {"application/openmetrics-text;q=0", kPlain},
             {"application/openmetrics-text;q=x;;,,;", kOpen},
             {"application/openmetrics", kPlain}}) {
        EXPECT_EQ(answer_metrics(kText, accept).content_type, type) << accept;
    }
    EXPECT_EQ(answer_metrics(kText, "text/plain").body, kText);
}

TEST(MetricsAnswer, OfOpenMetricsNamesCountersWithoutTheirEnd) {
    EXPECT_EQ(answer_metrics(kText, "application/openmetrics-text").body,
              "# HELP a Of a\n"
              "# TYPE a counter\n"
              "a_total{b=\"c d_total \"} 3\n"
              "# HELP g_total_now No counter\n"
              "# TYPE g_total_now gauge\n"
              "g_total_now 1\n"
              "# HELP vllm:h_total Neither\n"
              "# TYPE vllm:h_total histogram\n"
              "vllm:h_total_bucket{le=\"+Inf\"} 2\n"
              "# EOF\n");
    EXPECT_EQ(answer_metrics("", "application/openmetrics-text").body, "# EOF\n");
    EXPECT_EQ(answer_metrics("# HELP\n# TYPE\nx", "application/openmetrics-text").body,
              "# HELP\n# TYPE\nx# EOF\n");
}

}  // namespace
}  // namespace afd::daemon

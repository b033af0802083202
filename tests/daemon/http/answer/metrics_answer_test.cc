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

// Goal: a bound has the one text that OpenMetrics has for it. Oracle: the examples of OpenMetrics
// 1.0.0, "Considerations: Canonical Numbers".
TEST(MetricsAnswer, OfOpenMetricsHasCanonicalBounds) {
    const auto line_of = [](const std::string& line) {
        std::string body = answer_metrics(line + "\n", "application/openmetrics-text").body;
        const size_t end = body.find("\n# EOF\n");
        return end == std::string::npos ? "no end" : body.substr(0, end);
    };
    for (const auto& [bound, canonical] :
         std::initializer_list<std::pair<std::string, std::string>>{{"0", "0.0"},
                                                                    {"1", "1.0"},
                                                                    {"10", "10.0"},
                                                                    {"100000", "100000.0"},
                                                                    {"131071", "131071.0"},
                                                                    {"1000000", "1e+06"},
                                                                    {"1048576", "1.048576e+06"},
                                                                    {"10000000000", "1e+10"},
                                                                    {"0.5", "0.5"},
                                                                    {"2.5", "2.5"},
                                                                    {"1.024e-06", "1.024e-06"},
                                                                    {"+Inf", "+Inf"},
                                                                    {"", ""}}) {
        EXPECT_EQ(line_of("h_bucket{le=\"" + bound + "\"} 2"),
                  "h_bucket{le=\"" + canonical + "\"} 2");
        EXPECT_EQ(line_of("h_bucket{a=\"1\",le=\"" + bound + "\"} 2"),
                  "h_bucket{a=\"1\",le=\"" + canonical + "\"} 2");
    }
    // What only looks like a bound.
    for (const char* line : {"g{handle=\"1\"} 2",
                             "g{le=\"1\",worker=\"0\"} 2",
                             "g{a=\",le=\"} 1",
                             "g{a=\",le=\\\"1\"} 1",
                             "g{a=\"1\"} 1",
                             "g 1",
                             "\"} 1"}) {
        EXPECT_EQ(line_of(line), line);
    }
    EXPECT_EQ(line_of("# HELP a_total Has {le=\"1\"} \n# TYPE a_total counter"),
              "# HELP a Has {le=\"1\"} \n# TYPE a counter");
    EXPECT_EQ(line_of("# HELP g Has {le=\"1\"} \n# TYPE g gauge"),
              "# HELP g Has {le=\"1\"} \n# TYPE g gauge");
}

}  // namespace
}  // namespace afd::daemon

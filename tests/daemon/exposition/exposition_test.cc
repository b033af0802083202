// SPDX-License-Identifier: Apache-2.0
#include "daemon/exposition/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>

#include "daemon/exposition/family_list.h"
#include "tests/promtool.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An instance of one worker of each role, with a value of everything that is counted.
class ExpositionTest : public testing::Test {
  protected:
    ExpositionTest() : requests_(4096) {
        client::Status& status = snapshot_.status;
        status.set_instance("blue");
        status.set_state("ready");
        status.set_version("0.1.0");
        status.set_num_running(3);
        for (const char* role : {"attention", "ffn"}) {
            client::Worker& worker = *status.add_workers();
            worker.set_role(role);
            worker.set_state("ready");
            worker.set_num_restarts(2);
        }
        status.mutable_workers(0)->set_kv_tokens_total(1000);
        status.mutable_workers(0)->set_kv_tokens_used(250);
        status.mutable_workers(0)->set_kv_tokens_held(128);
        snapshot_.requests = &requests_;
        snapshot_.workers.resize(2);
        for (WorkerCounts& counts : snapshot_.workers) {
            for (uint64_t& counter : counts.counters) counter = 2'000'000'000;
            for (HistogramCounts& histogram : counts.histograms) histogram.record(1500);
        }
        snapshot_.workers[0].peer_waits.resize(1);
        snapshot_.workers[0].peer_waits[0].record(1500);
        snapshot_.workers[1].expert_rows = {10, 30, 0, 0, 99};
        snapshot_.hops.a2f.record(2000);
        snapshot_.model_name = "a \"model\"";
        snapshot_.num_routed_experts = 4;
        snapshot_.kv_block_tokens = 64;
        snapshot_.http = &http_;
        http_.on_answered("/v1/completions", "POST", 429, 0.002);
        http_.on_answered("none", "BREW", 404, 0);
        requests_.on_failed(Code::kDeadlineExceeded);
        requests_.on_refused(Code::kResourceExhausted);
        requests_.on_deadly();
        for (int i = 0; i < 3; ++i) requests_.on_preempted();
    }

    std::string text(bool vllm_names = false) const {
        return exposition_text(snapshot_, vllm_names);
    }

    MetricsSnapshot snapshot_;
    HttpMetrics http_;
    RequestMetrics requests_;
};

TEST_F(ExpositionTest, IsCleanForPrometheus) {
    const test::Verdict verdict = test::promtool_check(text());
    EXPECT_EQ(verdict.exit_status, 0) << verdict.output;
    EXPECT_EQ(verdict.output, "");
    EXPECT_TRUE(text().ends_with('\n'));
}

// Goal: the test above can fail. Oracle: a name that is against the conventions.
TEST_F(ExpositionTest, PromtoolSeesWhatIsWrong) {
    EXPECT_EQ(test::promtool_check("# TYPE a_total gauge\na_total 1\n").exit_status, 3);
    EXPECT_EQ(test::promtool_check("a{ 1\n").exit_status, 1);
}

TEST_F(ExpositionTest, HasLevelsTimesAndWorkers) {
    const std::string all = text();
    const std::string labels = R"(model_name="a \"model\"",engine="blue")";
    const auto line = [&](const std::string& name, const std::string& more, const char* value) {
        return "\n" + name + "{" + labels + more + "} " + value + "\n";
    };
    EXPECT_THAT(all, HasSubstr(line("afd_num_requests_running", "", "3")));
    EXPECT_THAT(all, HasSubstr(line("afd_kv_cache_usage_perc", "", "0.25")));
    EXPECT_THAT(all, HasSubstr(line("afd_state", R"(,state="ready")", "1")));
    EXPECT_THAT(all, HasSubstr(line("afd_state", R"(,state="failed")", "0")));
    EXPECT_THAT(all,
                HasSubstr(line("afd_request_failures_total", R"(,code="deadline exceeded")", "1")));
    EXPECT_THAT(all, HasSubstr(line("afd_deadly_requests_total", "", "1")));
    EXPECT_THAT(all, HasSubstr(line("afd_preemptions_total", "", "3")));
    const char* attention = R"(,role="attention",worker="0")";
    const auto kv_tokens = [&](const char* kind) {
        return std::string(attention) + R"(,kind=")" + kind + "\"";
    };
    EXPECT_THAT(all, HasSubstr(line("afd_kv_tokens", kv_tokens("reserved"), "250")));
    EXPECT_THAT(all, HasSubstr(line("afd_kv_tokens", kv_tokens("held"), "128")));
    EXPECT_THAT(all, HasSubstr(line("afd_worker_restarts_total", attention, "2")));
    EXPECT_THAT(all, HasSubstr(line("afd_bubble_seconds_total", attention, "2")));
    EXPECT_THAT(all,
                HasSubstr(line(
                    "afd_busy_seconds_total", R"(,role="ffn",worker="0",phase="experts")", "2")));
    // 1500 ns lie above the first bound and below the second.
    EXPECT_THAT(
        all,
        HasSubstr(
            line("afd_step_seconds_bucket", std::string(attention) + R"(,le="1.024e-06")", "0")));
    EXPECT_THAT(
        all,
        HasSubstr(
            line("afd_step_seconds_bucket", std::string(attention) + R"(,le="2.048e-06")", "1")));
    EXPECT_THAT(all, HasSubstr(line("afd_handoff_seconds_count", R"(,direction="a2f")", "1")));
}

// Goal: increase() sees the first error, too, which needs a sample before it. Oracle: all codes
// that have a name; one of each family happened.
TEST_F(ExpositionTest, HasEveryCodeOfAnErrorBeforeItHappens) {
    const std::string all = text();
    for (int i = 1; code_name(static_cast<Code>(i)) != "unknown"; ++i) {
        const auto code = static_cast<Code>(i);
        const auto sample = [&](const std::string& family, Code happened) {
            return "\n" + family + R"({model_name="a \"model\"",engine="blue",code=")" +
                   std::string(code_name(code)) + "\"} " + (code == happened ? "1" : "0") + "\n";
        };
        EXPECT_THAT(all, HasSubstr(sample("afd_request_failures_total", Code::kDeadlineExceeded)));
        EXPECT_THAT(all, HasSubstr(sample("afd_requests_refused_total", Code::kResourceExhausted)));
    }
}

// A counter must not fall, and its parts are read at different times: none follows from another.
TEST_F(ExpositionTest, WaitsOfOneKindDoNotDependOnThoseOfTheOther) {
    const auto with_sleeps = [&](uint64_t num_sleeps) {
        auto& counters = snapshot_.workers[0].counters;
        counters[static_cast<size_t>(Counter::kSpun)] = 7;
        counters[static_cast<size_t>(Counter::kSlept)] = num_sleeps;
        return text();
    };
    for (const uint64_t num_sleeps : {5, 9}) {
        const std::string all = with_sleeps(num_sleeps);
        EXPECT_THAT(all, HasSubstr("role=\"attention\",worker=\"0\",kind=\"spin\"} 7\n"));
        EXPECT_THAT(all,
                    HasSubstr("role=\"attention\",worker=\"0\",kind=\"sleep\"} " +
                              std::to_string(num_sleeps) + "\n"));
    }
}

TEST_F(ExpositionTest, CountsAnswersOfHttpAndTokensOfThePrefixCache) {
    const std::string all = text();
    EXPECT_THAT(all,
                HasSubstr("engine=\"blue\",handler=\"/v1/completions\",method=\"POST\",status="
                          "\"4xx\",code=\"429\"} 1\n"));
    // Clients choose neither handler nor method.
    EXPECT_THAT(all,
                HasSubstr("handler=\"none\",method=\"other\",status=\"4xx\",code=\"404\"} 1\n"));
    EXPECT_THAT(all, HasSubstr("handler=\"/v1/completions\",le=\"0.001\"} 0\n"));
    EXPECT_THAT(all, HasSubstr("handler=\"/v1/completions\",le=\"0.0025\"} 1\n"));
    // Of the attention worker alone.
    EXPECT_THAT(all,
                HasSubstr("\nafd_prefix_cache_hits_total{model_name=\"a \\\"model\\\"\",engine="
                          "\"blue\"} 2000000000\n"));
    snapshot_.http = nullptr;
    EXPECT_THAT(text(), HasSubstr("# TYPE afd_http_requests_total counter\n"));
}

// Oracle: by hand: 10 and 30 rows of four routed experts, mean 10, the busiest 30.
TEST_F(ExpositionTest, TellsRowsOfExpertsAndHowUnevenTheyAre) {
    const std::string all = text();
    EXPECT_THAT(all, HasSubstr("expert=\"1\"} 30\n"));
    EXPECT_THAT(all, HasSubstr("expert=\"shared\"} 99\n"));
    EXPECT_THAT(all,
                HasSubstr("afd_expert_imbalance_ratio{model_name=\"a \\\"model\\\"\",engine="
                          "\"blue\"} 3\n"));
}

// The names that dashboards for vLLM ask for; the list is vLLM's.
TEST_F(ExpositionTest, HasVllmsNamesOnlyWhenAsked) {
    EXPECT_THAT(text(), Not(HasSubstr("vllm:")));
    const std::string all = text(true);
    for (const char* name : {"num_requests_running",
                             "num_requests_waiting",
                             "kv_cache_usage_perc",
                             "cache_config_info",
                             "num_preemptions_total",
                             "prompt_tokens_total",
                             "prompt_tokens_cached_total",
                             "prefix_cache_queries_total",
                             "request_params_n",
                             "request_max_num_generation_tokens",
                             "prefix_cache_hits_total",
                             "generation_tokens_total",
                             "request_success_total",
                             "time_to_first_token_seconds",
                             "inter_token_latency_seconds",
                             "request_time_per_output_token_seconds",
                             "e2e_request_latency_seconds",
                             "request_queue_time_seconds",
                             "request_inference_time_seconds",
                             "request_prefill_time_seconds",
                             "request_decode_time_seconds",
                             "request_prompt_tokens",
                             "request_generation_tokens",
                             "request_params_max_tokens",
                             "iteration_tokens_total"}) {
        EXPECT_THAT(all, HasSubstr(std::string("# TYPE vllm:") + name + " ")) << name;
    }
    // vLLM's own names break two rules of the linter; nothing else may.
    std::istringstream complaints(test::promtool_check(all).output);
    for (std::string complaint; std::getline(complaints, complaint);) {
        const bool is_theirs = complaint.find("should not contain ':'") != std::string::npos ||
                               complaint.starts_with("vllm:iteration_tokens_total ");
        EXPECT_TRUE(is_theirs) << complaint;
    }
}

// vLLM's bounds are all there, so that its quantiles can be compared bucket by bucket.
TEST_F(ExpositionTest, HasVllmsBuckets) {
    const auto has_all = [](const BucketHistogram& histogram, const std::set<double>& bounds) {
        const std::set<double> mine(histogram.bounds().begin(), histogram.bounds().end());
        EXPECT_EQ(mine.size(), histogram.bounds().size()) << "a bound twice";
        EXPECT_TRUE(std::is_sorted(histogram.bounds().begin(), histogram.bounds().end()));
        for (const double bound : bounds) EXPECT_EQ(mine.count(bound), 1u) << bound;
    };
    has_all(requests_.first_token_s, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560});
    has_all(requests_.inter_token_s,
            {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80});
    has_all(requests_.total_s, {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680});
    has_all(requests_.prompt_tokens, {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000});
}

// The exception that docs/metrics.md names: what workers count in cannot be cut at vLLM's.
TEST_F(ExpositionTest, StepsHaveBucketsBelowPowersOfTwo) {
    std::istringstream lines(text());
    std::vector<double> bounds;
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("afd_iteration_tokens_bucket{")) continue;
        constexpr std::string_view kBound = ",le=\"";
        bounds.push_back(std::stod(line.substr(line.find(kBound) + kBound.size())));
    }
    std::vector<double> wanted;
    for (int power = 2; power <= 8192; power *= 2) wanted.push_back(power - 1);
    wanted.push_back(std::numeric_limits<double>::infinity());
    EXPECT_EQ(bounds, wanted);
}

// Goal: where workers run, which host is missing and which link is down can be asked of Prometheus.
TEST_F(ExpositionTest, KnowsHostsAndLinks) {
    client::Status& status = snapshot_.status;
    EXPECT_THAT(text(), Not(HasSubstr("host=\"")));
    EXPECT_THAT(text(), Not(HasSubstr("\nafd_certificate_expiry_seconds{")));
    for (const char* name : {"b", "c"}) status.add_hosts()->set_name(name);
    status.mutable_hosts(0)->set_address("10.0.0.2:41000");
    status.set_certificate_expires_s(1'900'000'000);
    status.mutable_workers(1)->set_host("b");
    client::Worker& session = *status.mutable_workers(0);
    session.add_links()->set_is_open(true);
    session.add_links();
    const std::string all = text();
    for (const char* wanted : {"afd_host_joined\\{[^\n]*host=\"b\"\\} 1\n",
                               "afd_host_joined\\{[^\n]*host=\"c\"\\} 0\n",
                               "afd_worker_up\\{[^\n]*role=\"ffn\",worker=\"0\",host=\"b\"\\} 1\n",
                               "afd_link_up\\{[^\n]*peer=\"0\"\\} 1\n",
                               "afd_link_up\\{[^\n]*peer=\"1\"\\} 0\n"}) {
        EXPECT_THAT(all, testing::ContainsRegex(wanted));
    }
    EXPECT_THAT(all, HasSubstr("\nafd_certificate_expiry_seconds{"));
    EXPECT_EQ(test::promtool_check(all).exit_status, 0);
}

}  // namespace
}  // namespace afd::daemon

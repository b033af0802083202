// SPDX-License-Identifier: Apache-2.0
//
// The metrics of a live instance: that Prometheus takes them, what they say after known work, and
// that no counter falls, whatever dies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/promtool.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Values by series: name and labels as they stand there.
using Series = std::map<std::string, double>;

std::string exposition_of(const Instance& instance) {
    auto client = instance.connect();
    const Result<std::string> text = client.metrics();
    EXPECT_TRUE(text.ok()) << text.error().message;
    return text.ok() ? text.value() : "";
}

Series series_of(const std::string& exposition) {
    Series series;
    std::istringstream lines(exposition);
    for (std::string line; std::getline(lines, line);) {
        const size_t blank = line.rfind(' ');
        if (line.empty() || line[0] == '#' || blank == std::string::npos) continue;
        EXPECT_TRUE(series.emplace(line.substr(0, blank), std::atof(&line[blank])).second)
            << "twice: " << line;
    }
    return series;
}

// The sum over all series of a name whose labels contain `label`.
double sum_of(const Series& series, const std::string& name, const std::string& label = "") {
    double sum = 0;
    for (const auto& [key, value] : series) {
        const bool is_it = key.starts_with(name + "{") && key.find(label) != std::string::npos;
        if (is_it) sum += value;
    }
    return sum;
}

// Counters, and the counts and buckets of histograms.
bool only_grows(const std::string& key) {
    const std::string name = key.substr(0, key.find('{'));
    for (const char* end : {"_total", "_bucket", "_count", "_sum"}) {
        if (name.ends_with(end)) return true;
    }
    return false;
}

void expect_grown(const Series& before, const Series& after) {
    for (const auto& [key, value] : before) {
        if (!only_grows(key)) continue;
        const auto found = after.find(key);
        ASSERT_NE(found, after.end()) << key << " is gone";
        EXPECT_GE(found->second, value) << key;
    }
}

// Goal: counters go on through a resize, also those of workers that were away for a while, and the
// number of workers is that of now. Oracle: each value before, and numbers by hand.
TEST(MetricsOfAnInstance, NeverFallInAResize) {
    Instance instance(
        {"--attention-workers", "2", "--ffn-workers", "2", "--prefix-cache", "false"});
    instance.wait_ready();
    const auto resize = [&](uint32_t attention, uint32_t ffn) {
        client::Resize asked;
        asked.set_attention_workers(attention);
        asked.set_ffn_workers(ffn);
        const auto resized = instance.connect().resize(asked, nullptr, kPatience);
        ASSERT_TRUE(resized.ok()) << resized.error().message;
    };
    constexpr int kNumRequests = 3;
    constexpr int kNumTokens = 20;
    const auto work = [&] {
        for (int i = 0; i < kNumRequests; ++i) {
            ASSERT_TRUE(instance.connect().generate(long_request(kNumTokens)).ok());
        }
    };
    work();
    // Every position but the last token's was computed, as 4 (top_k) rows and that of the shared
    // expert, in each of 5 MoE layers.
    const int num_prompt = long_request(kNumTokens).token_ids().ids_size();
    const int num_rows = kNumRequests * (num_prompt + kNumTokens - 1) * (4 + 1) * 5;
    // A worker counts rows behind the answer to them.
    Series at_first;
    wait_until("all rows are counted", [&] {
        at_first = series_of(exposition_of(instance));
        return sum_of(at_first, "afd_expert_rows_total") >= num_rows;
    });
    resize(1, 1);
    const Series small = series_of(exposition_of(instance));
    EXPECT_EQ(sum_of(small, "afd_worker_up"), 2);
    // Rows are of experts, whoever computed them.
    EXPECT_EQ(sum_of(small, "afd_expert_rows_total"), sum_of(at_first, "afd_expert_rows_total"));
    work();
    resize(3, 2);
    const Series large = series_of(exposition_of(instance));
    EXPECT_EQ(sum_of(large, "afd_worker_up"), 5);
    const auto restarts = [&](const std::string& worker) {
        return sum_of(large, "afd_worker_restarts_total", "role=\"attention\",worker=" + worker);
    };
    EXPECT_EQ(restarts("\"0\""), 2);
    EXPECT_EQ(restarts("\"1\""), 1) << "it was away once";
    EXPECT_EQ(restarts("\"2\""), 0);
    expect_grown(at_first, large);
    expect_grown(small, large);
    EXPECT_GT(sum_of(large, "afd_expert_rows_total"), sum_of(small, "afd_expert_rows_total"));
    EXPECT_EQ(instance.stop(), 0);
}

// Of each worker.
std::vector<uint64_t> rounds_of(const client::Status& status) {
    std::vector<uint64_t> rounds;
    for (const client::Worker& worker : status.workers()) rounds.push_back(worker.num_rounds());
    return rounds;
}

// Goal: the figures of a live instance are those of its work. Oracle: the request itself, and the
// status, which reads the same words another way.
TEST(MetricsOfAnInstance, AreCleanAndTellWhatItDid) {
    Instance instance({"--ffn-workers", "2", "--metrics-compat", "vllm"});
    instance.wait_ready();
    auto client = instance.connect();
    const auto generation = client.generate(long_request(40));
    ASSERT_TRUE(generation.ok()) << generation.error().message;
    // A worker counts a round behind the answer to it.
    Outcome printed;
    client::Status status;
    wait_until("all three tell of the same rounds", [&] {
        const std::vector<uint64_t> before = rounds_of(instance.status());
        printed = instance.afdctl({"metrics"});
        status = instance.status();
        return rounds_of(status) == before;
    });
    ASSERT_EQ(printed.exit_status, 0) << printed.output;
    const size_t theirs = printed.output.find("# HELP vllm:");
    ASSERT_NE(theirs, std::string::npos);
    const Verdict verdict = promtool_check(printed.output.substr(0, theirs));
    EXPECT_EQ(verdict.exit_status, 0) << verdict.output;

    const Series series = series_of(printed.output);
    const double num_prompt = generation.value().finished.num_prompt_tokens();
    EXPECT_EQ(sum_of(series, "afd_generation_tokens_total"), 40);
    EXPECT_EQ(sum_of(series, "vllm:generation_tokens_total"), 40);
    EXPECT_EQ(sum_of(series, "afd_prompt_tokens_total"), num_prompt);
    EXPECT_EQ(sum_of(series, "afd_request_success_total", "length"), 1);
    EXPECT_EQ(sum_of(series, "afd_time_to_first_token_seconds_count"), 1);
    EXPECT_EQ(sum_of(series, "afd_inter_token_latency_seconds_count"), 39);
    EXPECT_EQ(sum_of(series, "afd_iteration_tokens_sum"), num_prompt + 39);
    EXPECT_EQ(sum_of(series, "afd_worker_up"), 3);
    for (const client::Worker& worker : status.workers()) {
        const std::string label =
            "role=\"" + worker.role() + "\",worker=\"" + std::to_string(worker.index()) + "\"";
        EXPECT_EQ(sum_of(series, "afd_rounds_total", label),
                  static_cast<double>(worker.num_rounds()));
        EXPECT_GT(sum_of(series, "afd_busy_seconds_total", label), 0) << label;
        EXPECT_GT(sum_of(series, "afd_bubble_seconds_total", label), 0) << label;
        EXPECT_GT(sum_of(series, "afd_idle_seconds_total", label), 0) << label;
    }
    EXPECT_GE(sum_of(series, "afd_expert_imbalance_ratio"), 1);
    EXPECT_EQ(instance.stop(), 0);
}

// The page has the list that a live instance gives; to renew it: afdctl metrics --list.
TEST(MetricsOfAnInstance, AreListedInTheDocument) {
    Instance instance({"--metrics-compat", "vllm"});
    instance.wait_ready();
    const Outcome list = instance.afdctl({"metrics", "--list"});
    ASSERT_EQ(list.exit_status, 0) << list.output;
    EXPECT_THAT(list.output, HasSubstr("* `afd_bubble_seconds_total` (counter): "));
    std::ifstream file(AFD_DEMO_MODEL "/../docs/metrics.md");
    std::stringstream page;
    page << file.rdbuf();
    EXPECT_THAT(page.str(), HasSubstr(list.output));
    EXPECT_EQ(instance.stop(), 0);
}

// Names and label names of all series.
struct Vocabulary {
    std::set<std::string> names;
    std::set<std::string> labels;
};

Vocabulary vocabulary_of(const std::string& exposition) {
    Vocabulary words;
    std::istringstream lines(exposition);
    const std::regex label("([a-z_]+)=\"");
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        if (line[0] == '#') {
            // A family that has no value yet.
            std::istringstream parts(line.substr(7));
            std::string name;
            std::string type;
            parts >> name >> type;
            words.names.insert(name);
            if (!line.starts_with("# TYPE ") || type != "histogram") continue;
            for (const char* part : {"_bucket", "_sum", "_count"}) words.names.insert(name + part);
            continue;
        }
        words.names.insert(line.substr(0, line.find('{')));
        for (std::sregex_iterator it(line.begin(), line.end(), label), end; it != end; ++it) {
            words.labels.insert((*it)[1]);
        }
    }
    return words;
}

// Every "expr" and "query" below a node.
void collect_queries(const json& node, std::vector<std::string>& queries) {
    for (const auto& [key, value] : node.items()) {
        const bool is_query = (key == "expr" || key == "query") && value.is_string();
        if (is_query) queries.push_back(value);
        if (value.is_structured()) collect_queries(value, queries);
    }
}

// Goal: the dashboard asks for nothing that is not there. Oracle: the exposition of an instance
// that has finished, failed and refused a request.
TEST(MetricsOfAnInstance, AreAllThatTheDashboardAsksFor) {
    Instance instance;
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(5)).ok());
    const Vocabulary words = vocabulary_of(exposition_of(instance));
    std::ifstream file(AFD_DEMO_MODEL "/../deploy/grafana.json");
    const json dashboard = json::parse(file, nullptr, false);
    ASSERT_FALSE(dashboard.is_discarded()) << "not JSON";
    std::vector<std::string> queries;
    collect_queries(dashboard, queries);
    size_t num_names = 0;
    const std::regex name("\\b((?:afd|process|vllm)_[a-z0-9_]+)");
    const std::regex grouping("\\bby \\(([a-z_, ]+)\\)");
    const std::regex word("[a-z_]+");
    // Of errors, which this instance had none of.
    const std::set<std::string> absent = {"code"};
    for (const std::string& query : queries) {
        for (std::sregex_iterator it(query.begin(), query.end(), name), end; it != end; ++it) {
            EXPECT_TRUE(words.names.contains((*it)[1])) << (*it)[1] << " in " << query;
            ++num_names;
        }
        for (std::sregex_iterator it(query.begin(), query.end(), grouping), end; it != end; ++it) {
            const std::string labels = (*it)[1];
            for (std::sregex_iterator one(labels.begin(), labels.end(), word); one != end; ++one) {
                const std::string label = one->str();
                EXPECT_TRUE(words.labels.contains(label) || absent.contains(label))
                    << label << " in " << query;
            }
        }
    }
    EXPECT_GT(num_names, 40u);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: busy, bubble and idle time of a worker are parts of its time, and nearly all of it.
// Method: the growth over a span of load and idleness. Oracle: the clock.
TEST(MetricsOfAnInstance, BusyBubbleAndIdleTimeAddUpToTheTime) {
    Instance instance;
    instance.wait_ready();
    const auto client = [&] { return instance.connect(); };
    ASSERT_TRUE(client().generate(long_request(20)).ok());
    const auto start = std::chrono::steady_clock::now();
    const Series before = series_of(exposition_of(instance));
    ASSERT_TRUE(client().generate(long_request(600)).ok());
    // Waits are counted at their end, at the latest a second after their begin.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const Series after = series_of(exposition_of(instance));
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const char* role : {"role=\"attention\"", "role=\"ffn\""}) {
        double sum = 0;
        for (const char* part :
             {"afd_busy_seconds_total", "afd_bubble_seconds_total", "afd_idle_seconds_total"}) {
            sum += sum_of(after, part, role) - sum_of(before, part, role);
        }
        EXPECT_LE(sum, elapsed + 1.5) << role;
        EXPECT_GE(sum, 0.75 * (elapsed - 1.5)) << role;
    }
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: the status shares each worker's time among the stages of its part of a layer. Oracle: their
// names, and that they are no more than its busy time.
TEST(MetricsOfAnInstance, TheStatusSharesBusyTimeAmongStages) {
    Instance instance;
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(200)).ok());
    const auto stages_of = [](const client::Worker& worker) {
        std::set<std::string> names;
        for (const client::StageTime& stage : worker.stages()) names.insert(stage.name());
        return names;
    };
    instance.wait_for("stages are counted", [&](const client::Status& status) {
        return stages_of(status.workers(0)).contains("head") &&
               stages_of(status.workers(1)).contains("return");
    });
    const client::Status status = instance.status();
    using ::testing::IsSupersetOf;
    EXPECT_THAT(stages_of(status.workers(0)),
                IsSupersetOf({"attention", "dispatch", "combine", "head"}));
    EXPECT_THAT(stages_of(status.workers(1)), IsSupersetOf({"gather", "experts", "return"}));
    for (const client::Worker& worker : status.workers()) {
        uint64_t sum_us = 0;
        for (const client::StageTime& stage : worker.stages()) sum_us += stage.time_us();
        EXPECT_LE(sum_us, worker.busy_us());
    }
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: to a reader of the counters a worker is one, however many processes it had. Method: kill
// -9 of each worker in mid-stream, reading all the time. Oracle: no counter ever falls; rows and
// tokens are those of the work of all processes.
TEST(MetricsOfAnInstance, NoCounterFallsWhenWorkersAreKilled) {
    Instance instance({"--stop-timeout-ms", "0"});
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(30)).ok());
    Series last = series_of(exposition_of(instance));
    uint32_t num_begun = 0;
    for (const char* role : {"ffn", "attention"}) {
        const pid_t killed = instance.worker_pids(role).at(0);
        BackgroundGeneration background(instance, long_request(900));
        // Stopped, so that the request outlasts the reading.
        background.stop_amid(20, killed);
        const Series before = series_of(exposition_of(instance));
        expect_grown(last, before);
        kill(killed, SIGKILL);
        for (int i = 0; i < 20; ++i) {
            const Series now = series_of(exposition_of(instance));
            expect_grown(last, now);
            last = now;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        ASSERT_TRUE(background.finish().ok());
        num_begun += background.num_begun();
        last = series_of(exposition_of(instance));
        const std::string label = std::string("role=\"") + role + "\"";
        EXPECT_EQ(sum_of(last, "afd_worker_restarts_total", label), 1);
        EXPECT_GT(sum_of(last, "afd_rounds_total", label),
                  sum_of(before, "afd_rounds_total", label));
    }
    EXPECT_EQ(sum_of(last, "afd_replays_total"), 1);
    EXPECT_EQ(sum_of(last, "afd_generation_tokens_total"), 30 + num_begun * 900);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: hops of both directions show up while requests run, without anybody tracing.
TEST(MetricsOfAnInstance, HopsAreSampledWhileRequestsRun) {
    Instance instance;
    instance.wait_ready();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    Series series;
    do {
        ASSERT_TRUE(instance.connect().generate(long_request(900)).ok());
        series = series_of(exposition_of(instance));
    } while ((sum_of(series, "afd_handoff_seconds_count", "a2f") == 0 ||
              sum_of(series, "afd_handoff_seconds_count", "f2a") == 0) &&
             std::chrono::steady_clock::now() < deadline);
    EXPECT_GT(sum_of(series, "afd_handoff_seconds_count", "a2f"), 0);
    EXPECT_GT(sum_of(series, "afd_handoff_seconds_count", "f2a"), 0);
    EXPECT_GT(sum_of(series, "afd_handoff_seconds_sum", "a2f"), 0);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test

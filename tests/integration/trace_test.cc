// SPDX-License-Identifier: Apache-2.0
//
// What a running system tells about itself: distributions in the status, and a trace of every
// worker through afdctl.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

using Round = std::tuple<int, int, int>;  // Session, micro-batch, round.

struct Span {
    double start_us = 0;
    double end_us = 0;
    int layer = 0;
};

Span span_of(const json& event) {
    const double start_us = event["ts"];
    return {start_us, start_us + event["dur"].get<double>(), event["args"]["layer"]};
}

// Worker by process id of the file.
std::map<int, std::string> names_of(const json& trace) {
    std::map<int, std::string> names;
    for (const json& event : trace["traceEvents"]) {
        if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    }
    return names;
}

// Every event of this name, by round.
std::multimap<Round, Span> spans_of(const json& trace, const std::string& name) {
    std::multimap<Round, Span> spans;
    for (const json& event : trace["traceEvents"]) {
        if (event["name"] != name) continue;
        const json& args = event["args"];
        spans.emplace(Round(args["session"], args["micro_batch"], args["round"]), span_of(event));
    }
    return spans;
}

// How many rounds are there from their dispatch to their combine, with their experts.
size_t num_whole_rounds(const json& trace) {
    const auto combines = spans_of(trace, "combine");
    const auto waits = spans_of(trace, "wait");
    const auto experts = spans_of(trace, "experts");
    const auto gathers = spans_of(trace, "gather");
    size_t count = 0;
    for (const auto& [round, dispatch] : spans_of(trace, "dispatch")) {
        count += combines.contains(round) && waits.contains(round) && experts.contains(round) &&
                 gathers.contains(round);
    }
    return count;
}

bool has_all(const json& trace, std::initializer_list<const char*> names) {
    return std::ranges::all_of(names,
                               [&](const char* name) { return !spans_of(trace, name).empty(); });
}

// Workers that have waited.
std::set<std::string> with_bubbles(const json& trace) {
    std::map<int, std::string> names = names_of(trace);
    std::set<std::string> workers;
    for (const json& event : trace["traceEvents"]) {
        if (event["name"] == "bubble") workers.insert(names.at(event["pid"]));
    }
    return workers;
}

// The data thread's slices of each worker, in the order of their starts.
std::map<int, std::vector<Span>> data_threads_of(const json& trace) {
    std::map<int, std::vector<Span>> threads;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] == "X" && event["tid"] == 0) {
            threads[event["pid"]].push_back(span_of(event));
        }
    }
    for (auto& [process, spans] : threads) {
        std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
            return a.start_us < b.start_us;
        });
    }
    return threads;
}

// Whether a moment lies within one of the spans.
bool is_within(const std::vector<Span>& spans, double moment_us) {
    const auto after = std::upper_bound(
        spans.begin(), spans.end(), moment_us, [](double moment, const Span& span) {
            return moment < span.start_us;
        });
    return after != spans.begin() && moment_us <= std::prev(after)->end_us;
}

// Requests without an end: one after the other in each of its threads, until the end of the object.
class Load {
  public:
    Load(const Instance& instance, size_t num_at_once) : num_tokens_(num_at_once) {
        for (std::atomic<uint32_t>& num_tokens : num_tokens_) {
            threads_.emplace_back([this, &instance, &num_tokens] {
                client::Client client = instance.connect();
                const auto on_chunk = [&](const client::Chunk& chunk) {
                    num_tokens += chunk.num_tokens();
                    return !is_over_;
                };
                while (!is_over_) {
                    const auto generation = client.generate(long_request(900), on_chunk);
                    ASSERT_TRUE(generation.ok()) << generation.error().message;
                }
            });
        }
        for (const std::atomic<uint32_t>& num_tokens : num_tokens_) {
            const auto deadline = client::Clock::now() + kPatience;
            while (num_tokens < 5 && client::Clock::now() < deadline) {
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
            EXPECT_GE(num_tokens, 5U) << "a request without tokens";
        }
    }
    ~Load() {
        is_over_ = true;
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    std::vector<std::atomic<uint32_t>> num_tokens_;
    std::atomic<bool> is_over_{false};
    std::vector<std::thread> threads_;
};

// A trace that has lost nothing, which it does where afdd has no turn for long, and that has enough
// events: a slow machine takes its time for them.
json trace_of(const Instance& instance, const std::function<bool(const json&)>& is_enough) {
    const std::string file = make_directory() + "/trace.json";
    const auto deadline = client::Clock::now() + kPatience;
    double seconds = 0.2;
    while (true) {
        const Outcome outcome =
            instance.afdctl({"trace", "--seconds", std::to_string(seconds), "-o", file});
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        std::ifstream stream(file);
        json trace = json::parse(stream, nullptr, false);
        const bool is_whole = outcome.output.find(" 0 lost;") != std::string::npos;
        const bool is_done = is_whole && !trace.is_discarded() && is_enough(trace);
        if (is_done || testing::Test::HasFailure() || client::Clock::now() >= deadline) {
            EXPECT_THAT(outcome.output, HasSubstr(" 0 lost; open it at ui.perfetto.dev"));
            return trace;
        }
        // A longer one would lose more.
        if (is_whole) seconds *= 2;
    }
}

// Goal: a trace shows each round's way. Method: two sessions and two FFN workers under load, a
// trace by afdctl. Oracle: the protocol: experts begin after the dispatch began and end before
// the combine begins, in the same layer; the wait lies between.
TEST(Trace, ShowsEveryRoundFromDispatchOverExpertsToCombine) {
    Instance instance({"--attention-workers", "2", "--ffn-workers", "2", "--micro-batches", "2"});
    instance.wait_ready();
    std::optional<Load> load(std::in_place, instance, 4);
    const json trace = trace_of(instance, [](const json& now) {
        return num_whole_rounds(now) >= 50 && names_of(now).size() == 4 &&
               has_all(now, {"attention", "head", "return"});
    });
    load.reset();
    ASSERT_FALSE(trace.is_discarded()) << "not JSON";

    std::vector<std::string> workers;
    for (const auto& [process, name] : names_of(trace)) workers.push_back(name);
    EXPECT_THAT((std::vector<std::string>{"attention 0", "attention 1", "ffn 0", "ffn 1"}),
                IsSubsetOf(workers));

    const auto dispatches = spans_of(trace, "dispatch");
    const auto combines = spans_of(trace, "combine");
    const auto waits = spans_of(trace, "wait");
    const auto experts = spans_of(trace, "experts");
    for (const auto& [round, dispatch] : dispatches) {
        const auto combine = combines.find(round);
        const auto wait = waits.find(round);
        if (combine == combines.end() || wait == waits.end()) continue;  // The trace's end.
        EXPECT_EQ(combine->second.layer, dispatch.layer);
        EXPECT_NEAR(wait->second.start_us, dispatch.end_us, 0.01);
        EXPECT_NEAR(wait->second.end_us, combine->second.start_us, 0.01);
        const auto [first, last] = experts.equal_range(round);
        for (auto it = first; it != last; ++it) {
            EXPECT_EQ(it->second.layer, dispatch.layer);
            EXPECT_GE(it->second.start_us, dispatch.start_us);
            EXPECT_LE(it->second.end_us, combine->second.start_us);
        }
    }
    EXPECT_GE(num_whole_rounds(trace), 50u);
    EXPECT_TRUE(has_all(trace, {"attention", "head", "return"}));
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: what a person sees: one lane for each data thread, on which one thing follows the other;
// bubbles; and an arrow for each hop. Oracle: no two slices of a lane overlap; both ends of every
// arrow lie in slices, the first before the second, of workers of different roles.
TEST(Trace, HasALaneForEachDataThreadBubblesAndAnArrowForEachHop) {
    Instance instance({"--ffn-workers", "2"});
    instance.wait_ready();
    std::optional<Load> load(std::in_place, instance, 1);
    const json trace = trace_of(instance, [](const json& now) {
        return data_threads_of(now).size() == 3 && with_bubbles(now).size() == 3 &&
               spans_of(now, "gather").size() > 50;
    });
    load.reset();
    ASSERT_FALSE(trace.is_discarded()) << "not JSON";
    const auto names = names_of(trace);
    const auto threads = data_threads_of(trace);
    ASSERT_EQ(threads.size(), 3u);
    for (const auto& [process, spans] : threads) {
        for (size_t i = 1; i < spans.size(); ++i) {
            // Times are written to the nanosecond.
            ASSERT_LE(spans[i - 1].end_us, spans[i].start_us + 0.002)
                << names.at(process) << " does two things at once";
        }
    }
    std::map<int, json> starts;
    size_t num_arrows = 0;
    for (const json& event : trace["traceEvents"]) {
        const std::string phase = event["ph"];
        if (event["name"] == "bubble") {
            EXPECT_EQ(event["cname"], "terrible");
        }
        if (phase == "s") starts[event["id"]] = event;
        if (phase != "f") continue;
        const json& start = starts.at(event["id"]);
        EXPECT_EQ(event["name"], start["name"]);
        const bool is_to_experts = event["name"] == "to the experts";
        EXPECT_TRUE(names.at(start["pid"]).starts_with(is_to_experts ? "attention" : "ffn"));
        EXPECT_TRUE(names.at(event["pid"]).starts_with(is_to_experts ? "ffn" : "attention"));
        EXPECT_TRUE(is_within(threads.at(start["pid"]), start["ts"]));
        EXPECT_TRUE(is_within(threads.at(event["pid"]), event["ts"]));
        ++num_arrows;
    }
    EXPECT_EQ(with_bubbles(trace).size(), 3u) << "not every worker waited";
    // Two for each pass, but for those across the trace's edges.
    const size_t num_passes = spans_of(trace, "gather").size();
    EXPECT_GT(num_passes, 50u);
    EXPECT_LE(num_arrows, 2 * num_passes);
    EXPECT_GE(num_arrows + 8, 2 * num_passes);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: colocated and idle instances can be traced, too.
TEST(Trace, OfAColocatedWorkerHasNoWaits) {
    Instance instance({"--topology", "colocated"});
    instance.wait_ready();
    std::optional<Load> load(std::in_place, instance, 1);
    const auto has_rounds = [](const json& now) { return has_all(now, {"dispatch", "combine"}); };
    const json trace = trace_of(instance, has_rounds);
    load.reset();
    ASSERT_FALSE(trace.is_discarded()) << "not JSON";
    EXPECT_TRUE(has_rounds(trace));
    EXPECT_TRUE(spans_of(trace, "wait").empty());
    EXPECT_TRUE(spans_of(trace, "experts").empty());
    EXPECT_EQ(instance.stop(), 0);
}

TEST(Trace, RefusesWhatCannotBeWrittenAndWhatDoesNotRun) {
    Instance instance;
    instance.wait_ready();
    const auto trace = [&](const std::string& name, const std::string& file) {
        return run_program(
            {program("afdctl"), "--instance", name, "trace", "--seconds", "0.01", "-o", file},
            instance.runtime_directory());
    };
    const Outcome bad_file = trace(instance.name(), "/no/such/directory/trace.json");
    EXPECT_EQ(bad_file.exit_status, 2);
    EXPECT_THAT(bad_file.output,
                HasSubstr("-o /no/such/directory/trace.json: cannot be written: No such file"));
    const std::string file = make_directory() + "/trace.json";
    const Outcome nobody = trace("nobody", file);
    EXPECT_EQ(nobody.exit_status, 5);
    EXPECT_THAT(nobody.output, HasSubstr("nobody"));
    EXPECT_FALSE(std::ifstream(file).is_open()) << "made although nothing could be traced";
    const Outcome idle = trace(instance.name(), file);
    EXPECT_EQ(idle.exit_status, 0) << idle.output;
    EXPECT_THAT(idle.output, HasSubstr("0 events of 2 workers, 0 lost; nothing ran meanwhile"));
    EXPECT_EQ(instance.stop(), 0);
}

// How many values the distributions of all workers have, by name.
std::map<std::string, uint64_t> counts_of(const client::Status& status) {
    std::map<std::string, uint64_t> counts;
    for (const client::Worker& worker : status.workers()) {
        for (const client::Distribution& what : worker.distributions()) {
            counts[what.name()] += what.count();
        }
    }
    return counts;
}

// Routed rows of all FFN workers.
uint64_t num_rows_of(const client::Status& status) {
    uint64_t num_rows = 0;
    for (const client::Worker& worker : status.workers()) {
        for (const client::ExpertRows& expert : worker.expert_rows()) {
            if (!expert.is_shared()) num_rows += expert.rows();
        }
    }
    return num_rows;
}

// Goal: the status has a value for each peer and stage, and each row is counted once. Oracle: the
// routed rows of all FFN workers are positions times top_k.
TEST(Distributions, TellWaitsPerPeerAndRowsPerExpert) {
    Instance instance({"--ffn-workers", "2"});
    instance.wait_ready();
    auto client = instance.connect();
    const auto generation = client.generate(long_request(40));
    ASSERT_TRUE(generation.ok()) << generation.error().message;
    // Every position but the last token's was computed, as 4 (top_k) rows in each MoE layer.
    const uint64_t num_positions = generation.value().finished.num_prompt_tokens() + 40 - 1;
    const auto num_rows_expected = [&](const client::Status& now) {
        const client::Worker& attention = now.workers(0);
        // One layer is dense.
        return num_positions * (attention.num_rounds() / counts_of(now)["step"] - 1) * 4;
    };
    // An FFN worker counts a pass when its rows are away, and the reply may be here before.
    instance.wait_for("the last pass is counted", [&](const client::Status& now) {
        return counts_of(now)["step"] >= 40 && num_rows_of(now) >= num_rows_expected(now);
    });
    const client::Status status = instance.status();
    std::map<std::string, uint64_t> counts = counts_of(status);
    for (const client::Worker& worker : status.workers()) {
        for (const client::Distribution& what : worker.distributions()) {
            EXPECT_LE(what.p50(), what.p99());
            EXPECT_LE(what.p99(), what.max());
            EXPECT_GE(what.p50(), 0);
        }
        EXPECT_EQ(worker.num_timeouts(), 0u);
    }
    const uint64_t num_steps = counts["step"];
    EXPECT_GE(num_steps, 40u);
    EXPECT_GT(counts["wait for ffn 0"], num_steps);
    EXPECT_GT(counts["wait for ffn 1"], num_steps);
    EXPECT_EQ(counts["pass"], counts["rows of a pass"]);
    EXPECT_EQ(counts["descriptor age"], counts["wait for ffn 0"] + counts["wait for ffn 1"]);
    ASSERT_EQ(status.workers(0).role(), "attention");
    EXPECT_EQ(num_rows_of(status), num_rows_expected(status));
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a wait that was given up is counted. Method: an FFN worker that is stopped.
TEST(Distributions, CountWaitsThatWereGivenUp) {
    Instance instance(
        {"--wait-report-ms", "100", "--round-timeout-ms", "200", "--stop-timeout-ms", "0"});
    instance.wait_ready();
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    kill(ffn, SIGSTOP);
    const auto generation = instance.connect().generate(long_request(4));
    kill(ffn, SIGCONT);
    ASSERT_FALSE(generation.ok());
    EXPECT_EQ(generation.error().code, Code::kDeadlineExceeded) << generation.error().message;
    EXPECT_EQ(instance.status().workers(0).num_timeouts(), 1u);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
//
// What the real afdctl shows of an instance, which is the mock: status, top and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/clients/afdctl_run.h"
#include "tests/clients/example_status.h"
#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"

namespace afd::client {
namespace {

using afd::test::afdctl;
using afd::test::example_status;
using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::ProgramOptions;
using afd::test::ProgramResult;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Afdctl, MetricsPrintsWhatPrometheusScrapesOrWhatThereIs) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    const ProgramResult text = afdctl(server, {"metrics"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_EQ(text.out, "# HELP afd_x Things\n# TYPE afd_x gauge\nafd_x{engine=\"default\"} 1\n");
    const ProgramResult object = afdctl(server, {"metrics", "--json"});
    EXPECT_EQ(nlohmann::json::parse(object.out)["text"], text.out);
    EXPECT_EQ(afdctl(server, {"metrics", "--list"}).out, "* `afd_x` (gauge): Things.\n");
}

TEST(Afdctl, TopPrintsOneSecondForScripts) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    const ProgramResult text = afdctl(server, {"top", "--once"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("requests: 2 running, 3 waiting, 120 finished, 1 failed"));
    EXPECT_THAT(text.out, Not(HasSubstr("\033")));
    const ProgramResult object = afdctl(server, {"top", "--once", "--json"});
    EXPECT_EQ(object.exit_code, 0) << object.err;
    EXPECT_EQ(nlohmann::json::parse(object.out)["workers"].size(), 2u);
}

TEST(Afdctl, StatusSaysOverWhatRowsTravelIfNotOverSharedMemory) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    status.set_transport("ucx");
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out, HasSubstr("   rows int8 over ucx   avx2   "));
    const ProgramResult object = afdctl(server, {"status", "--json"});
    EXPECT_EQ(nlohmann::json::parse(object.out)["transport"], "ucx");
}

TEST(Afdctl, StatusSaysWhoSchedulesPassesAndPlacesExperts) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out,
                HasSubstr("\npasses    gather   placement round_robin\n"));
    status.set_ffn_policy("library");
    status.set_ffn_scheduler("turns");
    status.set_expert_placement("file");
    status.set_segment_prefix("/afd-default-0123456789abcdef");
    status.mutable_workers(1)->set_num_bad_choices(3);
    status.mutable_workers(1)->set_num_overruled(2);
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out,
                HasSubstr("\npasses    library 'turns': 3 bad choices, overruled 2 times   "
                          "placement file\n"));
    const auto object = nlohmann::json::parse(afdctl(server, {"status", "--json"}).out);
    EXPECT_EQ(object["ffn_policy"], "library");
    EXPECT_EQ(object["ffn_scheduler"], "turns");
    EXPECT_EQ(object["expert_placement"], "file");
    EXPECT_EQ(object["segment_prefix"], "/afd-default-0123456789abcdef");
    EXPECT_EQ(object["workers"][1]["num_bad_choices"], 3);
    EXPECT_EQ(object["workers"][1]["num_overruled"], 2);
    // Colocated workers have no passes.
    status.set_ffn_policy("");
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out, Not(HasSubstr("passes")));
}

TEST(Afdctl, StatusShowsLinks) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    Worker& attention = *status.mutable_workers(0);
    attention.set_num_positions(1000);
    Worker& other = *status.add_workers();
    other.set_role("ffn");
    other.set_index(1);
    other.set_host("node12");
    for (const bool is_open : {true, false}) attention.add_links()->set_is_open(is_open);
    attention.mutable_links(0)->set_is_near(true);
    Link& measured = *attention.mutable_links(1);
    measured.set_latency_ns(28'400);
    measured.set_bytes_per_s(1'234'000'000);
    measured.set_bytes_sent(29'696'000);
    measured.set_bytes_received(14'336'000);
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out,
                HasSubstr("\n\n"
                          "LINK FROM    TO     HOST   TO HOST  STATE  BY       ONE WAY   CARRIES  "
                          "SENT A TOKEN  RECEIVED\n"
                          "attention 0  ffn 0  local  local    open   memory         -         -  "
                          "     0.0 KiB   0.0 KiB\n"
                          "attention 0  ffn 1  local  node12   down   -       0.028 ms  1.2 GB/s  "
                          "    29.0 KiB  14.0 KiB\n"));
    const ProgramResult object = afdctl(server, {"status", "--json"});
    const auto links = nlohmann::json::parse(object.out)["workers"][0]["links"];
    ASSERT_EQ(links.size(), 2u);
    EXPECT_EQ(links[1]["bytes_per_s"], 1'234'000'000);
    EXPECT_EQ(links[1]["latency_ns"], 28'400);
    EXPECT_EQ(links[0]["is_near"], true);
    EXPECT_EQ(links[1]["is_near"], false);
}

TEST(Afdctl, StatusIsATable) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out,
              "instance  default   ready   pid 4100   up 3m 12s   version 0.1.0\n"
              "model     /models/demo   disaggregated   router ffn   shared experts attention   "
              "rows int8   avx2   context 512\n"
              "passes    gather   placement round_robin\n"
              "requests  2 running   3 queued   120 finished   1 failed\n"
              "tokens    8123   412.0/s\n"
              "two-phase 24 rounds   1 batches failed and went by windows\n"
              "\n"
              "ROLE       INDEX   PID  STATE     SEQS      KV TOKENS  TOKENS  ROUNDS  RESTARTS  "
              "HEARTBEAT      UP\n"
              "attention      0  4101  ready        2  128/8192 (1%)    8123   33000         0  "
              "     4 ms  3m 10s\n"
              "ffn            0     -  back-off     -              -  0 rows       0         3  "
              "        -       -\n"
              "\n"
              "wait      attention 0 (pid 4101) waits for ffn 0, micro-batch 1, layer 3\n");
}

// Goal: a worker can be found on the host that it runs on. Oracle: the columns with and without
// one.
TEST(Afdctl, StatusHasTheHostsOfWorkersWhereThereAreOthers) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    status.mutable_workers(1)->set_host("node12");
    server.set_status(status);
    const std::string text = afdctl(server, {"status"}).out;
    EXPECT_THAT(text, HasSubstr("  HEARTBEAT      UP  HOST\n"));
    EXPECT_THAT(text, HasSubstr("     4 ms  3m 10s  local\n"));
    EXPECT_THAT(text, HasSubstr("        -       -  node12\n"));
}

TEST(Afdctl, StatusCountsRequestsThatWereRefusedOrGaveWay) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    status.set_num_refused(76);
    status.set_num_preemptions(5);
    server.set_status(status);
    EXPECT_THAT(afdctl(server, {"status"}).out,
                HasSubstr("   120 finished   1 failed   76 refused   5 gave way\n"));
    const auto object = nlohmann::json::parse(afdctl(server, {"status", "--json"}).out);
    EXPECT_EQ(object["num_refused"], 76);
    EXPECT_EQ(object["num_preemptions"], 5);
}

Status measured_status() {
    Status status;
    Worker& attention = *status.add_workers();
    attention.set_role("attention");
    attention.set_num_timeouts(2);
    attention.set_weight_bytes_left(3 << 20);
    attention.set_busy_us(2'500'000);
    attention.set_bubble_us(400'000);
    attention.set_idle_us(7'000'000);
    for (const auto& [name, us] : {std::pair("attention", 2'000'000), std::pair("head", 500'000)}) {
        StageTime& stage = *attention.add_stages();
        stage.set_name(name);
        stage.set_time_us(static_cast<uint64_t>(us));
    }
    Distribution& wait = *attention.add_distributions();
    wait.set_name("wait for ffn 0");
    wait.set_unit("us");
    wait.set_count(1200);
    wait.set_mean(48.2);
    wait.set_p50(43.3);
    wait.set_p99(1060);
    wait.set_max(2190);
    Worker& ffn = *status.add_workers();
    ffn.set_role("ffn");
    ffn.set_index(1);
    Distribution& rows = *ffn.add_distributions();
    rows.set_name("rows of a pass");
    rows.set_count(7);
    rows.set_p50(2.5);
    for (const uint32_t expert : {3, 5, 16}) {
        ExpertRows& of = *ffn.add_expert_rows();
        of.set_expert(expert);
        of.set_rows(expert * 10);
        of.set_is_shared(expert == 16);
    }
    return status;
}

TEST(Afdctl, StatusShowsWhatWasMeasured) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(measured_status());
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                HasSubstr("timeouts  2 micro-batches were given up waiting for a round\n"
                          "weights   attention 0 serves, and reads: 3.0 MiB of its experts are "
                          "left\n"));
    EXPECT_THAT(
        result.out,
        HasSubstr("WORKER       WHAT                 COUNT  MEAN   P50   P99   MAX\n"
                  "attention 0  wait for ffn 0 (us)   1200    48    43  1060  2190\n"
                  "ffn 1        rows of a pass           7  0.00  2.50  0.00  0.00\n"
                  "\n"
                  "time      attention 0: 2.5 s busy (attention 80 %, head 20 %), 0.4 s for "
                  "the other side, 7.0 s idle\n"
                  "\n"
                  "experts   ffn 1: 80 rows, 40 for each of 2 routed experts; most: "
                  "expert 5 with 50\n"));

    const ProgramResult as_json = afdctl(server, {"status", "--json"});
    const nlohmann::json workers = nlohmann::json::parse(as_json.out)["workers"];
    EXPECT_EQ(workers[0]["num_timeouts"], 2);
    EXPECT_EQ(workers[0]["weight_bytes_left"], 3 << 20);
    EXPECT_EQ(workers[0]["stages"][1]["name"], "head");
    EXPECT_EQ(workers[0]["stages"][1]["time_us"], 500'000);
    EXPECT_EQ(workers[0]["busy_us"], 2'500'000);
    EXPECT_EQ(workers[0]["distributions"][0]["name"], "wait for ffn 0");
    EXPECT_EQ(workers[0]["distributions"][0]["p99"], 1060.0);
    EXPECT_EQ(workers[1]["expert_rows"][2]["expert"], 16);
    EXPECT_EQ(workers[1]["expert_rows"][2]["is_shared"], true);
}

TEST(Afdctl, StatusSaysWhyNobodyIsServed) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status = example_status();
    status.set_state("failed");
    status.set_reason("ffn worker 0 exited with status 1: tensor x is missing");
    server.set_status(status);
    const ProgramResult result = afdctl(server, {"status"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("instance  default   failed   pid 4100"));
    EXPECT_THAT(result.out,
                HasSubstr("reason    ffn worker 0 exited with status 1: tensor x is missing\n"));
    const ProgramResult as_json = afdctl(server, {"status", "--json"});
    EXPECT_EQ(nlohmann::json::parse(as_json.out)["reason"], status.reason());
}

TEST(Afdctl, StatusJsonHasTheFieldsOfTheProtocol) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    const ProgramResult result = afdctl(server, {"status", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json object = nlohmann::json::parse(result.out);
    EXPECT_EQ(object["num_queued"], 3);
    EXPECT_EQ(object["workers"].size(), 2u);
    EXPECT_EQ(object["workers"][0]["kv_tokens_total"], 8192);
    EXPECT_EQ(object["workers"][0]["num_two_phase_rounds"], 24);
    EXPECT_EQ(object["workers"][0]["num_two_phase_fallbacks"], 1);
    EXPECT_EQ(object["workers"][1]["num_restarts"], 3);
    EXPECT_EQ(object["waits"].size(), 1u);
}

TEST(Afdctl, StatusWatchRepeatsUntilInterrupted) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.set_status(example_status());
    ProgramOptions options;
    options.interrupt_when = [](const std::string& out) {
        return std::count(out.begin(), out.end(), '{') == 6;  // Two objects with two workers each.
    };
    const ProgramResult result = afdctl(server, {"status", "--watch", "--json"}, options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);
    EXPECT_THAT(result.out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace afd::client

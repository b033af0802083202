// SPDX-License-Identifier: Apache-2.0
//
// transport = ucx: workers share no windows, and rows travel as messages: over TCP on loopback, and
// through memory of the host, as they do unless somebody says otherwise.
//
// Goal: an instance over UCX gives what one over shared memory gives, whatever happens to its
// workers. Oracle: the tokens and log probabilities of the other, or of before, to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> through_memory(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--transport", "ucx", "--ucx-devices", "lo"});
    return flags;
}

std::vector<std::string> over_tcp(std::vector<std::string> flags) {
    flags = through_memory(std::move(flags));
    flags.insert(flags.end(), {"--ucx-neighbours", "ucx"});
    return flags;
}

const std::vector<client::Generate>& requests() {
    static const std::vector<client::Generate> made = mixed_requests(12, 512, 7);
    return made;
}

struct Way {
    const char* name;
    std::vector<std::string> flags;
    bool has_rounds = false;  // In two phases.
    bool is_near = false;
};

void PrintTo(const Way& way, std::ostream* out) {
    *out << way.name;
}

struct TwoPhaseCounts {
    uint64_t num_rounds = 0;
    uint64_t num_fallbacks = 0;
};

TwoPhaseCounts two_phase_counts(const Instance& instance) {
    TwoPhaseCounts counts;
    const client::Status status = instance.status();
    for (const client::Worker& worker : status.workers()) {
        counts.num_rounds += worker.num_two_phase_rounds();
        counts.num_fallbacks += worker.num_two_phase_fallbacks();
    }
    return counts;
}

class OverUcx : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(
    Ways,
    OverUcx,
    testing::Values(
        Way{"A1F1", {}},
        Way{"A2F2", {"--attention-workers", "2", "--ffn-workers", "2"}},
        Way{"A1F3M2", {"--ffn-workers", "3", "--micro-batches", "2", "--micro-batch-size", "32"}},
        Way{"RouterFfn", {"--ffn-workers", "2", "--router", "ffn"}},
        Way{"ByLength", {"--ffn-workers", "2", "--two-phase-threshold", "64"}, true},
        Way{"TwoPhase",
            {"--attention-workers",
             "2",
             "--ffn-workers",
             "2",
             "--dispatch",
             "two_phase",
             "--two-phase-block",
             "16"},
            true},
        Way{"SharedStageAndChecksums",
            {"--ffn-workers", "2", "--shared-experts", "attention", "--row-checksums", "true"}},
        Way{.name = "A2F2ThroughMemory",
            .flags = {"--attention-workers", "2", "--ffn-workers", "2"},
            .is_near = true},
        Way{.name = "TwoPhaseThroughMemory",
            .flags = {"--ffn-workers", "2", "--dispatch", "two_phase", "--two-phase-block", "16"},
            .has_rounds = true,
            .is_near = true}),
    [](const auto& way) { return way.param.name; });

TEST_P(OverUcx, GivesTheBitsOfSharedMemory) {
    static const std::vector<Reply> expected = [] {
        Instance shared;
        shared.wait_ready();
        auto replies = run_one_after_another(shared, requests());
        EXPECT_EQ(shared.stop(), 0);
        return replies;
    }();
    const Way& way = GetParam();
    Instance instance(way.is_near ? through_memory(way.flags) : over_tcp(way.flags));
    instance.wait_ready();
    // An offer without a connection is refused at once (R17).
    instance.wait_for("every link is open", [&](const client::Status& status) {
        return std::ranges::all_of(status.workers(), [&](const client::Worker& worker) {
            const bool has_links = worker.role() != "attention" || worker.links_size() > 0;
            return has_links && std::ranges::all_of(worker.links(), [&](const client::Link& link) {
                       return link.is_open() && link.is_near() == way.is_near;
                   });
        });
    });
    expect_same_bits(expected, run_one_after_another(instance, requests()), "one by one");
    expect_same_bits(expected, run_all_at_once(instance, requests()), "all at once");
    const TwoPhaseCounts counts = two_phase_counts(instance);
    EXPECT_EQ(counts.num_rounds > 16, way.has_rounds) << counts.num_rounds;
    EXPECT_EQ(counts.num_fallbacks, 0U);
    EXPECT_EQ(instance.stop(), 0);
}

// Through memory, or over TCP.
class DisturbedOverUcx : public testing::TestWithParam<bool> {
  protected:
    DisturbedOverUcx() { instance_.wait_ready(); }

    static std::vector<std::string> flags() {
        const std::vector<std::string> two = {
            "--attention-workers", "2", "--ffn-workers", "2", "--stop-timeout-ms", "0"};
        return GetParam() ? through_memory(two) : over_tcp(two);
    }
    Instance instance_{flags()};
};

INSTANTIATE_TEST_SUITE_P(Ways, DisturbedOverUcx, testing::Bool(), [](const auto& way) {
    return way.param ? "ThroughMemory" : "OverTcp";
});

// Of an instance, which the FFN worker of rank 1 maps.
std::set<std::string> segments_of(pid_t ffn) {
    std::ifstream maps("/proc/" + std::to_string(ffn) + "/maps");
    std::set<std::string> segments;
    for (std::string line; std::getline(maps, line);) {
        const size_t name = line.find("/memfd:afd-");
        if (name == std::string::npos) continue;
        const std::string segment = line.substr(name, line.find(' ', name) - name);
        const size_t own = segment.find("ffn1-");
        segments.insert(own == std::string::npos ? segment : segment.substr(own));
    }
    return segments;
}

// What a worker maps of an instance's segments: its own control segment, its own metrics.
TEST_P(DisturbedOverUcx, WorkersShareNoWindows) {
    EXPECT_EQ(instance_.status().transport(), "ucx");
    const pid_t ffn = instance_.worker_pids("ffn")[1];
    if (GetParam()) {
        // A neighbour is taken in by and by.
        wait_until("memory is shared with a neighbour",
                   [&] { return segments_of(ffn).contains("/memfd:afd-near"); });
        EXPECT_THAT(segments_of(ffn),
                    ElementsAre("/memfd:afd-near", "ffn1-control", "ffn1-metrics"));
    } else {
        EXPECT_THAT(segments_of(ffn), ElementsAre("ffn1-control", "ffn1-metrics"));
    }
}

// Goal: no handler of UCX stands between a crash and the end of the worker. Oracle: the kernel's
// list of the signals that the process catches, and what afdd sees of its end.
TEST_P(DisturbedOverUcx, ACrashEndsAWorkerAtOnce) {
    for (const std::string role : {"attention", "ffn"}) {
        std::ifstream status("/proc/" + std::to_string(instance_.worker_pids(role)[0]) + "/status");
        uint64_t caught = ~uint64_t{0};
        for (std::string word; status >> word;) {
            if (word == "SigCgt:") status >> std::hex >> caught;
        }
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
            EXPECT_EQ(caught >> (signal - 1) & 1, 0U) << role << " catches " << strsignal(signal);
        }
        instance_.replace_worker(role, 0, SIGSEGV);
    }
    EXPECT_THAT(instance_.log(), HasSubstr("killed by signal 11"));
}

TEST_P(DisturbedOverUcx, KilledWorkersAreReplacedAndTheBitsAreTheSame) {
    expect_same_bits_through_kills(
        instance_, long_request(900), {{"ffn", 0}, {"attention", 0}, {"ffn", 1}, {"attention", 1}});
    EXPECT_EQ(instance_.stop(), 0);
}

// A worker is killed when `prompts` have had a few rounds and have not all ended.
void expect_same_bits_through_a_kill(const Instance& instance,
                                     const std::vector<client::Generate>& prompts,
                                     const std::vector<Reply>& expected,
                                     const WorkerPlace& killed) {
    constexpr uint64_t kRoundsBefore = 3;
    std::atomic<bool> is_over{false};
    bool is_in_time = false;
    for (int attempt = 0; !is_in_time; ++attempt) {
        ASSERT_LT(attempt, kAttemptsToBeInTime) << "the prompts were always over before";
        is_over = false;
        const pid_t pid = instance.worker_pids(killed.role).at(killed.index);
        const uint64_t num_rounds = two_phase_counts(instance).num_rounds + kRoundsBefore;
        std::thread killer([&] {
            wait_until(
                "the prompts have rounds",
                [&] { return two_phase_counts(instance).num_rounds >= num_rounds; },
                std::chrono::milliseconds(1));
            send_signal(pid, SIGKILL);
            is_in_time = !is_over;
            instance.wait_for_successor(killed.role, killed.index, pid);
        });
        const std::vector<Reply> found = run_all_at_once(instance, prompts);
        is_over = true;
        killer.join();
        expect_same_bits(expected, found, killed.role + " killed");
    }
}

// Goal: R17. A prompt that loses a worker amid a two-phase round is whole all the same. Method:
// long prompts run while each worker is killed in turn, as soon as they have had a few rounds.
// Oracle: the bits of before, and that there are rounds behind the last kill.
TEST(TwoPhaseOverUcx, PromptsSurviveTheirWorkers) {
    Instance instance(over_tcp({"--attention-workers",
                                "2",
                                "--ffn-workers",
                                "2",
                                "--dispatch",
                                "two_phase",
                                "--two-phase-block",
                                "64",
                                "--prefix-cache",
                                "false"}));
    instance.wait_ready();
    const std::vector<client::Generate> prompts = mixed_requests(10, 512, 3);
    const std::vector<Reply> expected = run_one_after_another(instance, prompts);
    for (const std::string role : {"ffn", "attention", "ffn"}) {
        for (const size_t index : {0U, 1U}) {
            expect_same_bits_through_a_kill(instance, prompts, expected, {role, index});
        }
    }
    const uint64_t before = two_phase_counts(instance).num_rounds;
    expect_same_bits(expected, run_all_at_once(instance, prompts), "afterwards");
    EXPECT_GT(two_phase_counts(instance).num_rounds, before);
    EXPECT_EQ(instance.stop(), 0);
}

TEST_P(DisturbedOverUcx, OtherNumbersOfWorkersAndTheBitsAreTheSame) {
    const auto resize = [&] {
        client::Resize asked;
        asked.set_attention_workers(1);
        asked.set_ffn_workers(3);
        const auto resized = instance_.connect().resize(
            asked, [](const std::string&) {}, kPatience);
        ASSERT_TRUE(resized.ok()) << resized.error().message;
        EXPECT_EQ(resized.value().ffn_workers(), 3U);
    };
    expect_same_bits_through(instance_, {resize});
    EXPECT_EQ(instance_.stop(), 0);
}

TEST(OverUcxBadInput, WhatCannotBeIsRefusedAndSaid) {
    const std::string directory = make_directory();
    const auto refusal = [&](const std::vector<std::string>& flags) {
        std::vector<std::string> arguments = {
            program("afdd"), "--model", test_model(), "--instance", fresh_instance_name()};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const Outcome outcome = run_program(arguments, directory);
        EXPECT_NE(outcome.exit_status, 0);
        return outcome.output;
    };
    EXPECT_THAT(refusal({"--transport", "ucx", "--topology", "colocated"}),
                HasSubstr("transport = 'ucx': topology = 'colocated' has no rows that travel"));
    EXPECT_THAT(refusal({"--transport", "carrier_pigeon"}),
                HasSubstr("transport = 'carrier_pigeon'"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ucx-transports", "pigeon"}),
                HasSubstr("UCX has no transport 'pigeon' on device"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ucx-host", "nowhere"}),
                HasSubstr("ucx_host = 'nowhere': must be an address of this host"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ucx-host", "192.0.2.1"}),
                HasSubstr("ucx_host = '192.0.2.1': no network device of this host has this"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ucx-devices", "none7"}),
                HasSubstr("ucx_devices = 'none7': this host has no network device 'none7'"));
}

}  // namespace
}  // namespace afd::test

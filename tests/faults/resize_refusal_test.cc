// SPDX-License-Identifier: Apache-2.0
//
// Resizes that cannot be: numbers that an instance cannot have, machines that have no room, workers
// that do not start. Nothing has changed behind them.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <thread>

#include "tests/faults/resize_fixture.h"
#include "tests/faults/steady_load.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Of an attention worker of the demo model with 524,288 tokens.
constexpr uint64_t kCacheMib = 480;

TEST_F(Resize, WhatCannotBeIsRefusedAndChangesNothing) {
    const std::vector<pid_t> before = pids();
    const std::vector<std::string> segments = instance_.segments();
    const Outcome many = resize(1, 17);
    EXPECT_EQ(many.exit_status, 1);
    EXPECT_THAT(many.output,
                HasSubstr("ffn_workers = 17: must be at most 16, the routed experts of a layer"));
    client::Client client = instance_.connect();
    client::Resize asked;
    asked.set_attention_workers(1025);
    const auto too_many = client.resize(asked, nullptr, kPatience);
    ASSERT_FALSE(too_many.ok());
    EXPECT_EQ(too_many.error().code, Code::kInvalidArgument);
    EXPECT_THAT(too_many.error().message, HasSubstr("attention_workers"));
    // With its FFN worker one more than a resize starts.
    const uint32_t crowd = 32 * std::thread::hardware_concurrency();
    if (crowd <= 1024) {
        asked.set_attention_workers(crowd);
        const auto crowded = client.resize(asked, nullptr, kPatience);
        ASSERT_FALSE(crowded.ok());
        EXPECT_EQ(crowded.error().code, Code::kInvalidArgument);
        EXPECT_THAT(crowded.error().message, HasSubstr("a resize starts at most 32 for each core"));
    }
    const Outcome same = resize(1, 1);
    EXPECT_EQ(same.exit_status, 0);
    EXPECT_THAT(same.output, HasSubstr("1 attention and 1 ffn workers serve now; 0 requests"));
    EXPECT_EQ(pids(), before);
    EXPECT_EQ(instance_.segments(), segments);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, OneAtATimeAndNobodyDrainsAWorkerMeanwhile) {
    hook_.hold();
    auto first = resize_beside(2, 1);
    wait_for_step("to 2 attention and 1 ffn workers: workers start");
    const Outcome second = resize(1, 2);
    EXPECT_EQ(second.exit_status, 1);
    EXPECT_THAT(second.output,
                HasSubstr("a resize to 2 attention and 1 ffn workers is under way; try again when "
                          "it has ended (afdctl status)"));
    for (const char* command : {"restart-worker", "drain-worker"}) {
        const Outcome refused = instance_.afdctl({command, "--worker", "ffn0"});
        EXPECT_EQ(refused.exit_status, 1) << command;
        EXPECT_THAT(refused.output, HasSubstr("is under way"));
    }
    EXPECT_THAT(instance_.afdctl({"status"}).output,
                HasSubstr("resize    to 2 attention and 1 ffn"));
    EXPECT_EQ(instance_.status().state(), "ready") << "the old ones serve";
    expect_undisturbed_replies();
    hook_.let_go();
    expect_resized(first.get(), 2, 1);
    hook_.set("");
    EXPECT_EQ(instance_.afdctl({"restart-worker", "--worker", "ffn0"}).exit_status, 0);
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, WorkersThatCannotStartLeaveTheOldOnesServing) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    const std::vector<pid_t> before = pids();
    const std::vector<std::string> segments = instance_.segments();
    hook_.set("case \"$*\" in *'--index 1'*) exit 9;; esac");
    const Outcome outcome = resize(2, 2);
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("the new workers cannot start: "));
    EXPECT_THAT(outcome.output, HasSubstr("exited with status 9"));
    EXPECT_THAT(outcome.output, HasSubstr("1 attention and 1 ffn workers serve on"));
    EXPECT_EQ(pids(), before);
    EXPECT_EQ(instance_.segments(), segments);
    load.wait_for_replies(6);
    hook_.set("");
    expect_resized(resize(2, 2), 2, 2);
    load.finish();
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(Resize, WithStopFirstWorkersThatCannotStartGiveWayToTheOldOnes) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    const std::vector<std::string> segments = instance_.segments();
    hook_.set("case \"$*\" in *'--index 1'*) exit 9;; esac");
    const Outcome outcome = resize(2, 2, {"--stop-first"});
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("exited with status 9"));
    EXPECT_THAT(outcome.output,
                HasSubstr("1 attention and 1 ffn workers start again, and requests go on"));
    load.wait_for_replies(6);
    instance_.wait_ready();
    EXPECT_EQ(instance_.segments(), segments) << "those of the old ones, as they were";
    EXPECT_EQ(pids().size(), 2U);
    load.finish();
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    // Both ways again: what went back is as good as new.
    hook_.set("");
    expect_resized(resize(2, 2, {"--stop-first"}), 2, 2);
    expect_resized(resize(1, 1), 1, 1);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// Goal: the log level of a SIGHUP is that of workers which start because a resize failed, too.
// Method: a SIGHUP while the new workers of a resize cannot start. Oracle: how the old ones are
// started again.
TEST(ResizeOfAnInstance, KeepsTheLogLevelOfAReload) {
    const Hook hook;
    const std::string file = make_directory() + "/afd.toml";
    std::ofstream(file) << "log_level = \"info\"\n";
    std::vector<std::string> flags = resize_flags("attention", "2");
    flags.insert(flags.end(), {"--config", file});
    Instance instance(flags, with_hook(hook));
    instance.wait_ready();
    hook.hold("case \"$*\" in *'--index 1'*) exit 9;; esac");
    client::Client client = instance.connect();
    client::Resize asked;
    asked.set_attention_workers(2);
    asked.set_stop_first(true);
    auto outcome = std::async(std::launch::async,
                              [&] { return client.resize(asked, nullptr, kPatience).ok(); });
    instance.wait_for("workers start", [](const client::Status& status) {
        return status.resize().find("workers start") != std::string::npos;
    });
    std::ofstream(file) << "log_level = \"debug\"\n";
    instance.signal(SIGHUP);
    instance.wait_for("the log level is another", [&](const client::Status& /*status*/) {
        return instance.log().find("log_level is debug") != std::string::npos;
    });
    hook.let_go();
    EXPECT_FALSE(outcome.get());
    instance.wait_ready();
    for (const char* role : {"attention", "ffn"}) {
        for (const pid_t pid : instance.worker_pids(role)) {
            std::ifstream in("/proc/" + std::to_string(pid) + "/cmdline");
            const std::string flags_of_it{std::istreambuf_iterator<char>(in), {}};
            EXPECT_THAT(flags_of_it, HasSubstr(std::string("--log-level\0debug", 17))) << role;
        }
    }
    EXPECT_EQ(instance.stop(), 0);
}

TEST(ResizeOfAnInstance, ThatIsNotForItSaysSo) {
    Instance colocated({"--topology", "colocated"});
    colocated.wait_ready();
    client::Resize asked;
    asked.set_attention_workers(2);
    const auto found = colocated.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(found.error().message, HasSubstr("topology = colocated"));
    EXPECT_EQ(colocated.stop(), 0);

    Instance small({"--attention-workers", "1"}, "ulimit -n 90");
    small.wait_ready();
    asked.set_attention_workers(40);
    const auto many = small.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(many.ok());
    EXPECT_EQ(many.error().code, Code::kResourceExhausted);
    EXPECT_THAT(many.error().message, HasSubstr("raise the limit of open files (ulimit -n)"));
    EXPECT_EQ(small.stop(), 0);

    // More cache than this machine has memory.
    Instance large({"--attention-workers", "1", "--kv-tokens", "524288"});
    large.wait_ready();
    const uint64_t memory_mib =
        static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) >> 20;
    const auto num_workers = static_cast<uint32_t>(memory_mib / kCacheMib + 2);
    ASSERT_LE(num_workers, 1024U) << "an instance has no more: let each have a larger cache";
    asked.set_attention_workers(num_workers);
    const auto larger = large.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(larger.ok());
    EXPECT_EQ(larger.error().code, Code::kResourceExhausted);
    EXPECT_THAT(
        larger.error().message,
        HasSubstr(fmt::format(
            "KV caches of {} attention workers {} MiB", num_workers, num_workers * kCacheMib)));
    EXPECT_THAT(larger.error().message, HasSubstr(" MiB of memory beside those that serve ("));
    EXPECT_THAT(larger.error().message, HasSubstr("with --stop-first those end before"));
    EXPECT_EQ(large.stop(), 0);

    // Windows of 40 GiB and more; the old ones are not ended before there are others.
    Instance wide(
        {"--attention-workers", "1", "--micro-batch-size", "4096", "--micro-batches", "16"});
    wide.wait_ready();
    const std::vector<std::string> segments = wide.segments();
    const std::vector<pid_t> before = wide.worker_pids("ffn");
    asked.set_ffn_workers(16);
    // No more than a resize starts.
    const unsigned num_cores = std::thread::hardware_concurrency();
    asked.set_attention_workers(num_cores > 1 ? 48 : 16);
    asked.set_stop_first(true);
    const auto wider = wide.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(wider.ok());
    EXPECT_EQ(wider.error().code, Code::kResourceExhausted) << wider.error().message;
    EXPECT_EQ(wide.segments(), segments);
    EXPECT_EQ(wide.worker_pids("ffn"), before);
    EXPECT_EQ(wide.stop(), 0);

    Instance drained({"--attention-workers", "1"});
    drained.wait_ready();
    ASSERT_TRUE(drained.connect().drain(kPatience).ok());
    const auto late = drained.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(late.ok());
    EXPECT_THAT(late.error().message, HasSubstr("afdd is draining"));
    EXPECT_EQ(drained.stop(), 0);
}

}  // namespace
}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
//
// Other numbers of workers while an instance serves (daemon/afdd/resizer.h).
//
// Method: the real programs under a load that has requests in flight at every moment, short ones,
// long prompts and two phases; `afdctl resize` in all directions; kills, refusals, and workers that
// cannot start, by programs that the test puts in the place of the workers.
// Oracle: the replies of the undisturbed instance, token ids and log probabilities to the last bit;
// what afdctl says; processes, segments and descriptors that are there before and behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <random>

#include "tests/faults/fault_requests.h"
#include "tests/faults/footprint.h"
#include "tests/faults/steady_load.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Programs in the place of the workers, that do what `hook` says before they become them.
class Programs {
  public:
    Programs() {
        for (const std::string name : {"afd-attention-worker", "afd-ffn-worker"}) {
            const std::string file = directory_ + "/" + name;
            std::ofstream(file) << "#!/bin/sh\n. " << directory_ << "/hook\nexec " << program(name)
                                << " \"$@\"\n";
            std::filesystem::permissions(file, std::filesystem::perms(0700));
        }
        set_hook("");
    }
    // Shell; "$*" has the flags of the worker.
    void set_hook(const std::string& text) {
        std::ofstream(directory_ + "/hook.new") << text << "\n";
        std::filesystem::rename(directory_ + "/hook.new", directory_ + "/hook");
    }
    std::string environment() const { return "export AFD_WORKER_DIRECTORY=" + directory_; }

  private:
    const std::string directory_ = make_directory();
};

std::vector<std::string> resize_flags(const std::string& router,
                                      const std::string& start_attempts) {
    return {"--attention-workers",
            "1",
            "--ffn-workers",
            "1",
            "--router",
            router,
            "--two-phase-block",
            "64",
            "--start-attempts",
            start_attempts,
            "--restart-first-ms",
            "1",
            "--restart-max-ms",
            "1"};
}

class Resize : public testing::Test {
  protected:
    explicit Resize(const std::string& router = "attention",
                    const std::string& start_attempts = "2")
        : instance_(resize_flags(router, start_attempts), programs_.environment()) {
        instance_.wait_ready();
        expected_ = run_all_at_once(instance_, requests_);
    }

    Outcome afdctl(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), program("afdctl"));
        arguments.insert(arguments.end(), {"--instance", instance_.name()});
        return run_program(arguments, instance_.runtime_directory());
    }
    Outcome resize(int attention, int ffn, std::vector<std::string> more = {}) const {
        more.insert(
            more.begin(),
            {"resize", "--attention", std::to_string(attention), "--ffn", std::to_string(ffn)});
        return afdctl(more);
    }
    std::future<Outcome> resize_beside(int attention, int ffn, std::vector<std::string> more = {}) {
        return std::async(std::launch::async,
                          [this, attention, ffn, more] { return resize(attention, ffn, more); });
    }

    void expect_resized(const Outcome& outcome, int attention, int ffn) const {
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        const std::string size =
            std::to_string(attention) + " attention and " + std::to_string(ffn) + " ffn workers";
        EXPECT_THAT(outcome.output, HasSubstr(size + " serve now; "));
        EXPECT_EQ(instance_.worker_pids("attention").size(), static_cast<size_t>(attention));
        EXPECT_EQ(instance_.worker_pids("ffn").size(), static_cast<size_t>(ffn));
        EXPECT_EQ(instance_.status().resize(), "");
    }

    std::vector<pid_t> pids() const {
        std::vector<pid_t> all = instance_.worker_pids("attention");
        for (const pid_t pid : instance_.worker_pids("ffn")) all.push_back(pid);
        return all;
    }

    void wait_for_step(const std::string& step) const {
        instance_.wait_for("a resize is at: " + step, [&](const client::Status& status) {
            return status.resize().find(step) != std::string::npos;
        });
    }

    void wait_for_queued() const {
        instance_.wait_for("a request is queued",
                           [](const client::Status& status) { return status.num_queued() > 0; });
    }

    void expect_undisturbed_replies() const {
        expect_same_bits(expected_, run_all_at_once(instance_, requests_), "behind the resizes");
    }

    Programs programs_;
    Instance instance_;
    const std::vector<client::Generate> requests_ = fault_requests();
    std::vector<Reply> expected_;
};

class ResizeWithRoutersAtTheExperts : public Resize {
  protected:
    ResizeWithRoutersAtTheExperts() : Resize("ffn") {}
};

// Whose workers may be killed as often as a test likes.
class ResizeWithKills : public Resize {
  protected:
    ResizeWithKills() : Resize("attention", "1000") {}
};

struct Size {
    int attention = 0;
    int ffn = 0;
};
// Up and down in each role and in both; 4 FFN workers have four experts each.
constexpr Size kSizes[] = {{2, 1}, {2, 3}, {1, 4}, {3, 2}, {2, 2}, {1, 1}};

TEST_F(Resize, UpAndDownUnderLoadChangesNoBit) {
    // Once before, so that what is made at the first time is made.
    expect_resized(resize(1, 2), 1, 2);
    expect_resized(resize(1, 1), 1, 1);
    const std::vector<std::string> segments = instance_.segments();
    const Footprint before = footprint_of(instance_.pid());
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : kSizes) {
        const Outcome outcome = resize(size.attention, size.ffn);
        expect_resized(outcome, size.attention, size.ffn);
        EXPECT_THAT(outcome.output, HasSubstr("starting " + std::to_string(size.attention)));
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    const client::Status status = instance_.status();
    EXPECT_EQ(status.num_failed(), 0U);
    EXPECT_EQ(status.state(), "ready");
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.segments().size(), segments.size());
    EXPECT_NE(instance_.segments(), segments) << "they are made anew";
    const Footprint after = footprint_of(instance_.pid());
    EXPECT_LE(after.num_descriptors, before.num_descriptors + 2) << descriptors_of(instance_.pid());
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(ResizeWithRoutersAtTheExperts, UpAndDownUnderLoadChangesNoBit) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : kSizes) {
        expect_resized(resize(size.attention, size.ffn), size.attention, size.ffn);
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, StopFirstEndsTheOldOnesBeforeAndLosesNothing) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : {Size{2, 2}, Size{1, 3}, Size{1, 1}}) {
        const Outcome outcome = resize(size.attention, size.ffn, {"--stop-first"});
        expect_resized(outcome, size.attention, size.ffn);
        const size_t ending = outcome.output.find("ending ");
        EXPECT_LT(ending, outcome.output.find("starting ")) << outcome.output;
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

// A kill at any moment of a resize, of a worker that serves or of one that is to.
TEST_F(ResizeWithKills, AtRandomMomentsOfItChangeNoBit) {
    std::minstd_rand random(20261124);
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (int i = 0; i < 8; ++i) {
        const Size size = kSizes[static_cast<size_t>(i) % std::size(kSizes)];
        std::vector<std::string> more;
        if (i % 3 == 2) more.push_back("--stop-first");
        const std::vector<pid_t> old = pids();
        auto outcome = resize_beside(size.attention, size.ffn, more);
        for (int kills = 0; kills < 2; ++kills) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
            // Children of afdd, of both crews.
            std::vector<pid_t> all;
            const std::string pid = std::to_string(instance_.pid());
            std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
            for (pid_t child = 0; children >> child;) all.push_back(child);
            if (!all.empty()) kill(all[random() % all.size()], SIGKILL);
        }
        expect_resized(outcome.get(), size.attention, size.ffn);
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    instance_.wait_ready();
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

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
    const Outcome same = resize(1, 1);
    EXPECT_EQ(same.exit_status, 0);
    EXPECT_THAT(same.output, HasSubstr("1 attention and 1 ffn workers serve now; 0 requests"));
    EXPECT_EQ(pids(), before);
    EXPECT_EQ(instance_.segments(), segments);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, OneAtATimeAndNobodyDrainsAWorkerMeanwhile) {
    programs_.set_hook("sleep 2");
    auto first = resize_beside(2, 1);
    wait_for_step("to 2 attention and 1 ffn workers: workers start");
    const Outcome second = resize(1, 2);
    EXPECT_EQ(second.exit_status, 1);
    EXPECT_THAT(second.output,
                HasSubstr("a resize to 2 attention and 1 ffn workers is under way; try again when "
                          "it has ended (afdctl status)"));
    for (const char* command : {"restart-worker", "drain-worker"}) {
        const Outcome refused = afdctl({command, "--worker", "ffn0"});
        EXPECT_EQ(refused.exit_status, 1) << command;
        EXPECT_THAT(refused.output, HasSubstr("is under way"));
    }
    EXPECT_THAT(afdctl({"status"}).output, HasSubstr("resize    to 2 attention and 1 ffn"));
    EXPECT_EQ(instance_.status().state(), "ready") << "the old ones serve";
    expect_undisturbed_replies();
    expect_resized(first.get(), 2, 1);
    programs_.set_hook("");
    EXPECT_EQ(afdctl({"restart-worker", "--worker", "ffn0"}).exit_status, 0);
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, WorkersThatCannotStartLeaveTheOldOnesServing) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    const std::vector<pid_t> before = pids();
    const std::vector<std::string> segments = instance_.segments();
    programs_.set_hook("case \"$*\" in *'--index 1'*) exit 9;; esac");
    const Outcome outcome = resize(2, 2);
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("the new workers cannot start: "));
    EXPECT_THAT(outcome.output, HasSubstr("exited with status 9"));
    EXPECT_THAT(outcome.output, HasSubstr("1 attention and 1 ffn workers serve on"));
    EXPECT_EQ(pids(), before);
    EXPECT_EQ(instance_.segments(), segments);
    load.wait_for_replies(6);
    programs_.set_hook("");
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
    programs_.set_hook("case \"$*\" in *'--index 1'*) exit 9;; esac");
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
    programs_.set_hook("");
    expect_resized(resize(2, 2, {"--stop-first"}), 2, 2);
    expect_resized(resize(1, 1), 1, 1);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(Resize, ATermMeanwhileFinishesWhatWasAcceptedAndEnds) {
    programs_.set_hook("sleep 2");
    BackgroundGeneration generation(instance_, long_request(900));
    generation.wait_for_tokens(5);
    auto outcome = resize_beside(2, 2);
    wait_for_step("workers start");
    instance_.signal(SIGTERM);
    const Outcome ended = outcome.get();
    EXPECT_EQ(ended.exit_status, 1);
    EXPECT_THAT(ended.output, HasSubstr("afdd "));
    EXPECT_TRUE(generation.finish().ok());
    EXPECT_EQ(instance_.wait_exit(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(Resize, ATermWhileRequestsStandStillFinishesThem) {
    programs_.set_hook("sleep 2");
    auto outcome = resize_beside(2, 2, {"--stop-first"});
    wait_for_step("workers start");
    BackgroundGeneration generation(instance_, long_request(900));
    wait_for_queued();
    instance_.signal(SIGTERM);
    const auto found = generation.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), 900U);
    EXPECT_EQ(instance_.wait_exit(), 0);
    outcome.get();
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// Who drains and goes on running has what it asked for, with the workers that it asked for.
TEST_F(Resize, ADrainMeanwhileEndsAndSoDoesTheResize) {
    programs_.set_hook("sleep 1");
    BackgroundGeneration generation(instance_, long_request(900));
    generation.wait_for_tokens(5);
    auto outcome = resize_beside(2, 2);
    wait_for_step("workers start");
    const Outcome drained = afdctl({"drain"});
    EXPECT_EQ(drained.exit_status, 0) << drained.output;
    EXPECT_TRUE(generation.finish().ok());
    expect_resized(outcome.get(), 2, 2);
    EXPECT_EQ(instance_.status().state(), "draining");
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// Nothing waits for a worker that will not be there.
TEST_F(Resize, ASecondTermEndsItAtOnce) {
    programs_.set_hook("sleep 20");
    auto outcome = resize_beside(2, 2, {"--stop-first"});
    wait_for_step("workers start");
    BackgroundGeneration generation(instance_, long_request(900));
    wait_for_queued();
    instance_.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    instance_.signal(SIGTERM);
    EXPECT_EQ(instance_.wait_exit(), 6) << "a request was not finished";
    EXPECT_FALSE(generation.finish().ok());
    EXPECT_NE(outcome.get().exit_status, 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// The client goes, the resize does not; and a request that outlives its connection goes on, too.
TEST_F(Resize, ItsClientMayGoAndAResumableRequestIsFoundAgain) {
    const auto expected = instance_.connect().generate(long_request(900));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    programs_.set_hook("sleep 1");
    {
        client::Request asked;
        asked.set_request_id(1);
        asked.mutable_resize()->set_attention_workers(2);
        client::Connection hasty = instance_.open_connection();
        ASSERT_TRUE(hasty.send(asked).ok());
        wait_for_step("workers start");
    }
    client::Generate wish = long_request(900);
    wish.set_resumable_ms(60'000);
    std::string id;
    {
        // Its connection ends with the object, in the middle of the reply.
        client::Connection connection = instance_.open_connection();
        client::Request request;
        request.set_request_id(1);
        *request.mutable_generate() = wish;
        ASSERT_TRUE(connection.send(request).ok());
        std::vector<client::Response> responses;
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (id.empty() && std::chrono::steady_clock::now() < deadline) {
            ASSERT_TRUE(connection.receive(responses).ok());
            for (const client::Response& response : responses) {
                if (response.has_accepted()) id = response.accepted().resume_id();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    ASSERT_FALSE(id.empty());
    instance_.wait_for("the resize has ended", [](const client::Status& status) {
        return status.resize().empty() && status.workers_size() == 3;
    });
    client::Resume resume;
    resume.set_id(id);
    const auto found = instance_.connect().resume(resume);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
    EXPECT_EQ(found.value().logprobs, expected.value().logprobs);
    EXPECT_EQ(instance_.stop(), 0);
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

    // More cache than there is memory.
    Instance large({"--attention-workers", "1", "--kv-tokens", "524288"});
    large.wait_ready();
    asked.set_attention_workers(200);
    const auto larger = large.connect().resize(asked, nullptr, kPatience);
    ASSERT_FALSE(larger.ok());
    EXPECT_EQ(larger.error().code, Code::kResourceExhausted);
    EXPECT_THAT(larger.error().message,
                HasSubstr("the KV caches of 200 attention workers take 96000 MiB beside those that "
                          "serve, and "));
    EXPECT_THAT(larger.error().message, HasSubstr("with --stop-first those end before"));
    EXPECT_EQ(large.stop(), 0);

    // Windows of 130 GiB and more; the old ones are not ended before there are others.
    Instance wide({"--attention-workers", "1", "--micro-batch-size", "4096"});
    wide.wait_ready();
    const std::vector<std::string> segments = wide.segments();
    const std::vector<pid_t> before = wide.worker_pids("ffn");
    asked.set_ffn_workers(16);
    asked.set_attention_workers(800);
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

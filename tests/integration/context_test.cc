// SPDX-License-Identifier: Apache-2.0
//
// The ScheduleContext of live workers: run_flag ends them and lets them come back, if it is afdd
// that has set it, and the live loops keep its words up to date.
//
// Oracle of the generations: the same request before, token ids compared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "schedule/context/schedule_context.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr uint32_t kTokens = 60;
constexpr uint32_t kBusyTokens = 900;

// A worker's context, as anyone of the same user may map it.
schedule::ScheduleContext* map_context(const Instance& instance, const std::string& worker) {
    for (const std::string& name : instance.segments()) {
        if (name.find("-" + worker + "-control") == std::string::npos) continue;
        const int fd = ::open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC);
        void* address = ::mmap(
            nullptr, sizeof(schedule::ScheduleContext), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        return address == MAP_FAILED ? nullptr : static_cast<schedule::ScheduleContext*>(address);
    }
    return nullptr;
}

std::string state_of(const client::Status& status, const std::string& role) {
    for (const client::Worker& worker : status.workers()) {
        if (worker.role() == role) return worker.state();
    }
    return "";
}

TEST(ScheduleContext, RunFlagEndsAWorkerAndLetsItComeBackWithTheSameBits) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1"});
    instance.wait_ready();
    const auto before = instance.connect().generate(long_request(kTokens));
    ASSERT_TRUE(before.ok()) << before.error().message;

    auto* context = map_context(instance, "ffn0");
    ASSERT_NE(context, nullptr);
    EXPECT_EQ(context->control.run_flag, 1);
    const Outcome ended = instance.afdctl({"context", "--worker", "ffn0", "--set-run-flag", "0"});
    EXPECT_EQ(ended.exit_status, 0) << ended.output;
    EXPECT_EQ(context->control.run_flag, 0);
    instance.wait_for("the FFN worker is halted", [](const client::Status& status) {
        return state_of(status, "ffn") == "halted";
    });
    const Outcome shown = instance.afdctl({"context", "--worker", "ffn0"});
    EXPECT_EQ(shown.exit_status, 0) << shown.output;
    EXPECT_NE(shown.output.find("control.run_flag"), std::string::npos) << shown.output;

    const Outcome set = instance.afdctl({"context", "--worker", "ffn0", "--set-run-flag", "1"});
    EXPECT_EQ(set.exit_status, 0) << set.output;
    EXPECT_EQ(context->control.run_flag, 1);
    instance.wait_for("the FFN worker is back", [](const client::Status& status) {
        return state_of(status, "ffn") == "ready";
    });
    const auto after = instance.connect().generate(long_request(kTokens));
    ASSERT_TRUE(after.ok()) << after.error().message;
    EXPECT_EQ(after.value().token_ids, before.value().token_ids);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a loop in full work ends too, of either role, and its end is no crash. Method: the flag is
// stored while the workers stand still amid a request. Oracle: the slot is halted; the log calls it
// an end and knows no other; the request goes on where it was once the flag is set, with the same
// tokens.
TEST(ScheduleContext, RunFlagEndsABusyWorkerWhichIsNoCrash) {
    Instance instance(patient_pair());
    instance.wait_ready();
    const auto before = instance.connect().generate(long_request(kBusyTokens));
    ASSERT_TRUE(before.ok()) << before.error().message;
    for (const std::string role : {"ffn", "attention"}) {
        BackgroundGeneration background(instance, long_request(kBusyTokens));
        std::future<Outcome> asked;
        background.disturb_amid(1, [&] {
            asked = std::async(std::launch::async, [&] {
                return instance.afdctl({"context", "--worker", role + "0", "--set-run-flag", "0"});
            });
            // It has little time to end from now on.
            instance.wait_for_log(role + " worker 0 is to end and to stay away");
        });
        const Outcome ended = asked.get();
        EXPECT_EQ(ended.exit_status, 0) << ended.output;
        instance.wait_for("the worker is halted", [&](const client::Status& status) {
            return state_of(status, role) == "halted";
        });
        const Outcome set =
            instance.afdctl({"context", "--worker", role + "0", "--set-run-flag", "1"});
        EXPECT_EQ(set.exit_status, 0) << set.output;
        const auto after = background.finish();
        ASSERT_TRUE(after.ok()) << after.error().message;
        EXPECT_EQ(after.value().token_ids, before.value().token_ids);
    }
    const std::string log = instance.log();
    EXPECT_NE(log.find("ended: run_flag is 0"), std::string::npos) << log;
    EXPECT_EQ(log.find("exited"), std::string::npos) << log;
    EXPECT_EQ(log.find("killing"), std::string::npos) << log;
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: whoever may write a worker's segment cannot keep it down. Method: a plain store of 0 while
// the worker is busy, which ends it. Oracle: another is in its place, without a word to afdd; the
// request has the same tokens.
TEST(ScheduleContext, ARunFlagThatOthersHaveStoredKeepsNoWorkerDown) {
    Instance instance(patient_pair());
    instance.wait_ready();
    const auto before = instance.connect().generate(long_request(kBusyTokens));
    ASSERT_TRUE(before.ok()) << before.error().message;
    for (const std::string role : {"ffn", "attention"}) {
        auto* context = map_context(instance, role == "ffn" ? "ffn0" : "attn0");
        ASSERT_NE(context, nullptr);
        const pid_t pid = instance.worker_pids(role).at(0);
        BackgroundGeneration background(instance, long_request(kBusyTokens));
        background.disturb_amid(1, [&] { context->control.run_flag = 0; });
        instance.wait_for("another worker is in its place", [&](const client::Status& status) {
            return state_of(status, role) == "ready" && instance.worker_pids(role).at(0) != pid;
        });
        const auto after = background.finish();
        ASSERT_TRUE(after.ok()) << after.error().message;
        EXPECT_EQ(after.value().token_ids, before.value().token_ids);
        EXPECT_EQ(context->control.run_flag, 1);
    }
    EXPECT_EQ(instance.log().find("run_flag is 0"), std::string::npos) << instance.log();
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: micro_batch_id and polling_index follow the live loops. Method: samples them while a
// request runs with two micro-batches. Oracle: they stay below M; polling_index names the one
// after a micro-batch that was used.
TEST(ScheduleContext, LiveLoopsKeepTheirWordsUpToDate) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1", "--micro-batches", "2"});
    instance.wait_ready();
    const auto* ffn = map_context(instance, "ffn0");
    const auto* attention = map_context(instance, "attn0");
    ASSERT_NE(ffn, nullptr);
    ASSERT_NE(attention, nullptr);
    EXPECT_EQ(ffn->ffn.polling_index, 0u);
    EXPECT_EQ(attention->attention.micro_batch_id, 1u) << "M - 1 at the start";
    const auto generated = instance.connect().generate(long_request(kTokens));
    ASSERT_TRUE(generated.ok()) << generated.error().message;
    EXPECT_LT(ffn->ffn.polling_index, 2u);
    EXPECT_EQ(ffn->ffn.polling_index, (attention->attention.micro_batch_id + 1) % 2)
        << "of the last round";
    // The reply may be here before the FFN worker has put its last round aside.
    instance.wait_for("nothing is in work",
                      [&](const client::Status&) { return ffn->ffn.out_num == 0; });
    EXPECT_EQ(instance.stop(), 0);
}

TEST(ScheduleContext, AColocatedWorkerDescribesNoWindows) {
    Instance instance({"--topology", "colocated"});
    instance.wait_ready();
    const Outcome shown = instance.afdctl({"context", "--worker", "attention0", "--json"});
    EXPECT_EQ(shown.exit_status, 0) << shown.output;
    EXPECT_NE(shown.output.find("\"attention.token_data_buf_size\":\"0\""), std::string::npos)
        << shown.output;
    EXPECT_NE(shown.output.find("\"common.schedule_mode\":\"2\""), std::string::npos)
        << shown.output;
    const Outcome unknown = instance.afdctl({"context", "--worker", "ffn0"});
    EXPECT_EQ(unknown.exit_status, 1);
    EXPECT_NE(unknown.output.find("there is no worker ffn0"), std::string::npos) << unknown.output;
    const Outcome bad = instance.afdctl({"context", "--worker", "gpu"});
    EXPECT_EQ(bad.exit_status, 2);
    EXPECT_NE(bad.output.find("give one as attention0 or ffn1"), std::string::npos) << bad.output;
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: who debugs a scheduler sees which rounds are open, and where. Method: both sides of one
// instance, before a request and after it. Oracle: every lane that was used is acknowledged, and
// both sides name the same rounds.
TEST(ScheduleContext, LanesShowTheRoundsOfBothSides) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1"});
    instance.wait_ready();
    const Outcome unused = instance.afdctl({"context", "--worker", "ffn0", "--lanes"});
    EXPECT_NE(unused.output.find("no lane has been used"), std::string::npos) << unused.output;
    ASSERT_TRUE(instance.connect().generate(long_request(kTokens)).ok());
    const auto lanes_of = [&](const std::string& worker) {
        const Outcome shown = instance.afdctl({"context", "--worker", worker, "--lanes", "--json"});
        const size_t lanes = shown.output.find("\"lanes\":[{");
        EXPECT_NE(lanes, std::string::npos) << shown.output;
        return shown.output.substr(std::min(lanes, shown.output.size()));
    };
    const auto all_acknowledged = [&](const client::Status&) {
        return lanes_of("ffn0").find("\"state\":\"open\"") == std::string::npos;
    };
    // The reply may be here before the FFN worker has put its last round aside.
    instance.wait_for("nothing is open", all_acknowledged);
    EXPECT_EQ(lanes_of("attention0"), lanes_of("ffn0"));
    EXPECT_NE(lanes_of("ffn0").find("\"session\":0,\"micro_batch\":0,\"rank\":0,"),
              std::string::npos);
    const Outcome text = instance.afdctl({"context", "--worker", "ffn0", "--lanes"});
    EXPECT_NE(text.output.find("SESSION  MICRO-BATCH  RANK  LAYER  ROUND"), std::string::npos)
        << text.output;
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test

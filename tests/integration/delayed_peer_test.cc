// SPDX-License-Identifier: Apache-2.0
//
// Workers that stand still, and one whose segment's header is spoiled.
//
// Goal: a worker that stands still for less than hang_timeout_ms and stop_timeout_ms only delays
// its requests; one that stands longer than either is killed and replaced. Method: SIGSTOP in the
// middle of a request. Oracle: the same request on the same system before, token ids and logprobs
// to the last bit.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr uint32_t kDelayedTokens = 900;

// Which time-out ends the stop; none: it goes on by itself.
enum class TooLongFor { kNothing, kHangTimeout, kStopTimeout };

struct Delay {
    const char* role;
    TooLongFor too_long_for;

    bool is_too_long() const { return too_long_for != TooLongFor::kNothing; }
    std::string name() const {
        switch (too_long_for) {
            case TooLongFor::kNothing:
                return std::string(role) + "_within_the_deadline";
            case TooLongFor::kHangTimeout:
                return std::string(role) + "_beyond_the_deadline";
            case TooLongFor::kStopTimeout:
                return std::string(role) + "_beyond_the_deadline_of_the_stopped";
        }
        return {};
    }
};

class DelayedPeer : public testing::TestWithParam<Delay> {};

INSTANTIATE_TEST_SUITE_P(Delays,
                         DelayedPeer,
                         testing::Values(Delay{"ffn", TooLongFor::kNothing},
                                         Delay{"ffn", TooLongFor::kHangTimeout},
                                         Delay{"ffn", TooLongFor::kStopTimeout},
                                         Delay{"attention", TooLongFor::kNothing},
                                         Delay{"attention", TooLongFor::kHangTimeout},
                                         Delay{"attention", TooLongFor::kStopTimeout}),
                         [](const auto& delay) { return delay.param.name(); });

uint32_t num_restarts(const client::Status& status) {
    uint32_t count = 0;
    for (const client::Worker& worker : status.workers()) count += worker.num_restarts();
    return count;
}

TEST_P(DelayedPeer, CostsTimeAndNotABit) {
    const Delay delay = GetParam();
    Instance instance({"--attention-workers",
                       "1",
                       "--ffn-workers",
                       "2",
                       "--hang-timeout-ms",
                       delay.too_long_for == TooLongFor::kHangTimeout ? "3000" : "60000",
                       "--stop-timeout-ms",
                       delay.too_long_for == TooLongFor::kStopTimeout ? "1000" : "0"});
    instance.wait_ready();
    const auto undisturbed = instance.connect().generate(long_request(kDelayedTokens));
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
    const uint32_t restarts_before = num_restarts(instance.status());

    const pid_t stopped = instance.worker_pids(delay.role)[0];
    BackgroundGeneration generation(instance, long_request(kDelayedTokens));
    generation.stop_amid(20, stopped);
    if (delay.is_too_long()) {
        instance.wait_for("the worker is replaced", [&](const client::Status& status) {
            return num_restarts(status) > restarts_before;
        });
        EXPECT_NE(instance.worker_pids(delay.role)[0], stopped);
        const char* why = delay.too_long_for == TooLongFor::kStopTimeout
                              ? "a signal stopped it, and somebody has waited"
                              : "no progress for";
        EXPECT_NE(instance.log().find(why), std::string::npos) << instance.log();
    } else {
        instance.wait_for("the worker is shown as stopped", [&](const client::Status& status) {
            for (const client::Worker& worker : status.workers()) {
                if (worker.state() == "stopped") return true;
            }
            return false;
        });
        // What the others had in hand when it stopped still comes.
        const auto patience = std::chrono::steady_clock::now() + kPatience;
        uint32_t before = 0;
        do {
            before = generation.num_tokens();
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
        } while (generation.num_tokens() != before && std::chrono::steady_clock::now() < patience);
        EXPECT_EQ(generation.num_tokens(), before) << "tokens came although a worker is stopped";
        EXPECT_LT(before, kDelayedTokens);
        kill(stopped, SIGCONT);
    }
    expect_same_generation(undisturbed.value(), generation.finish());
    if (!delay.is_too_long()) {
        EXPECT_EQ(num_restarts(instance.status()), restarts_before);
    }
    EXPECT_EQ(instance.stop(), 0);
}

// An instance whose FFN worker is stopped with a request in hand, and the header of its control
// segment.
class CorruptedHeader : public testing::Test {
  protected:
    // A round may last longer than a worker takes to come back.
    explicit CorruptedHeader(const std::string& round_timeout_ms = "60000")
        : instance_({"--attention-workers",
                     "1",
                     "--ffn-workers",
                     "1",
                     "--stop-timeout-ms",
                     "0",
                     "--round-timeout-ms",
                     round_timeout_ms}) {
        instance_.wait_ready();
        undisturbed_ = instance_.connect().generate(long_request(kDelayedTokens)).value();
        for (const std::string& name : instance_.segments()) {
            if (name.ends_with("-ffn0-control")) control_ = name;
        }
        EXPECT_NE(control_, "");
        ffn_ = instance_.worker_pids("ffn")[0];
        generation_ =
            std::make_unique<BackgroundGeneration>(instance_, long_request(kDelayedTokens));
        // So that the request still runs when it is killed.
        generation_->stop_amid(5, ffn_);
    }

    void spoil() const {
        std::fstream file("/dev/shm/" + control_, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(1024);  // Where the header is: its magic number.
        file.write("nonsense", 8);
        EXPECT_TRUE(file.good());
    }

    Instance instance_;
    client::Generation undisturbed_;
    std::string control_;
    pid_t ffn_ = 0;
    std::unique_ptr<BackgroundGeneration> generation_;
};

TEST_F(CorruptedHeader, IsMendedForTheSuccessorAndCostsNothing) {
    spoil();
    send_signal(ffn_, SIGKILL);
    expect_same_generation(undisturbed_, generation_->finish());
    EXPECT_EQ(instance_.stop(), 0);
}

class CorruptedHeaderForEver : public CorruptedHeader {
  protected:
    CorruptedHeaderForEver() : CorruptedHeader("5000") {}
};

// Goal: a worker's successor believes no header: it names the segment and the field, a request that
// needs it ends with an error instead of waiting for ever, and new ones are refused with the
// reason. Method: somebody spoils it again and again. When he stops all are served.
TEST_F(CorruptedHeaderForEver, IsNamedByTheSuccessorAndEndsTheRequest) {
    std::atomic<bool> is_over{false};
    std::thread attacker([&] {
        while (!is_over) {
            spoil();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    send_signal(ffn_, SIGKILL);
    const auto ended = generation_->finish();
    EXPECT_FALSE(ended.ok());
    // Its round, or the outage, lasts too long: both may take round_timeout_ms, and begin at about
    // the same time.
    const std::string why = ended.ok() ? "" : ended.error().message;
    EXPECT_TRUE(why.find("ffn rank 0") != std::string::npos ||
                why.find("the segment's magic is") != std::string::npos)
        << why;
    instance_.wait_for("nobody can be served",
                       [](const client::Status& status) { return status.state() == "failed"; });
    EXPECT_NE(instance_.status().reason().find(control_ + ": the segment's magic is"),
              std::string::npos)
        << instance_.status().reason();
    const auto refused = instance_.connect().generate(long_request(3));
    EXPECT_FALSE(refused.ok());
    if (!refused.ok()) {
        EXPECT_EQ(refused.error().code, Code::kUnavailable);
        EXPECT_NE(refused.error().message.find("the segment's magic is"), std::string::npos)
            << refused.error().message;
    }
    const std::string log = instance_.log();
    EXPECT_NE(log.find(control_ + ": the segment's magic is '7310308002159816558'"),
              std::string::npos)
        << log;
    is_over = true;
    attacker.join();
    instance_.wait_ready();
    const auto again = instance_.connect().generate(long_request(kDelayedTokens));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(undisturbed_.token_ids, again.value().token_ids);
    instance_.signal(SIGTERM);
    EXPECT_EQ(instance_.wait_exit(), 0);
    EXPECT_TRUE(instance_.segments().empty());
}

}  // namespace
}  // namespace afd::test

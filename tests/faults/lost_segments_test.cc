// SPDX-License-Identifier: Apache-2.0
//
// A live instance keeps its memory, whatever happens to the names and the files around it.
//
// Oracle of every test: the same request on the undisturbed instance, token ids and log
// probabilities to the last bit, while workers are killed that must find the memory again.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint32_t kTokens = 900;

class LostSegments : public testing::Test {
  protected:
    LostSegments() {
        instance_.wait_ready();
        auto undisturbed = instance_.connect().generate(long_request(kTokens));
        EXPECT_TRUE(undisturbed.ok()) << undisturbed.error().message;
        if (undisturbed.ok()) expected_ = std::move(undisturbed).value();
    }

    // A request that runs while `disturb()` happens, and whose workers are all killed behind it.
    template <typename Disturb>
    void expect_same_bits_through(const Disturb& disturb) {
        BackgroundGeneration& generation = generation_.emplace(instance_, long_request(kTokens));
        // Stopped, so that the request outlasts what comes now.
        const pid_t ffn = instance_.worker_pids("ffn")[0];
        generation.stop_amid(20, ffn);
        disturb();
        kill(instance_.worker_pids("attention")[0], SIGKILL);
        instance_.wait_for("the attention worker is back", [](const client::Status& status) {
            const client::Worker& worker = status.workers(0);
            return worker.num_restarts() == 1 && worker.state() == "ready";
        });
        EXPECT_LT(generation.num_tokens(), kTokens) << "it had ended before: nothing shown";
        kill(ffn, SIGKILL);
        expect_same_generation(expected_, generation.finish());
    }

    // Declared before the instance, whose end ends it.
    std::optional<BackgroundGeneration> generation_;
    Instance instance_{
        {"--attention-workers", "1", "--ffn-workers", "1", "--stop-timeout-ms", "0"}};
    client::Generation expected_;
};

TEST_F(LostSegments, ASecondAfddIsRefusedThoughTheLockFileIsGone) {
    const std::vector<std::string> before = instance_.segments();
    expect_same_bits_through([&] {
        const std::string lock =
            instance_.runtime_directory() + "/afd/" + instance_.name() + ".lock";
        ASSERT_TRUE(std::filesystem::remove(lock));
        const Outcome second =
            run_program({program("afdd"), "--model", test_model(), "--instance", instance_.name()},
                        instance_.runtime_directory());
        EXPECT_EQ(second.exit_status, 5) << second.output;
        EXPECT_THAT(
            second.output,
            HasSubstr("is already served by afdd with pid " + std::to_string(instance_.pid())));
        EXPECT_THAT(second.output, HasSubstr("its lock file '" + lock + "' was removed"));
    });
    EXPECT_EQ(instance_.segments(), before);
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// As systemd-logind does when the last session of the user ends.
TEST_F(LostSegments, NamesThatAreRemovedAreNotMissed) {
    expect_same_bits_through([&] {
        EXPECT_THAT(instance_.segments(), Not(IsEmpty()));
        for (const std::string& name : instance_.segments()) unlink(("/dev/shm/" + name).c_str());
    });
    // The memory of a two-phase round is made anew, and handed over like all other.
    client::Generate request = long_request(8);
    for (uint32_t i = 0; i < 300; ++i) request.mutable_token_ids()->add_ids(2 + i % 200);
    const auto two_phase = instance_.connect().generate(request);
    EXPECT_TRUE(two_phase.ok()) << two_phase.error().message;
    EXPECT_THAT(instance_.log(), Not(HasSubstr("through the windows")));
    EXPECT_EQ(instance_.stop(), 0);
}

// What cannot be shortened cannot end anybody by SIGBUS.
TEST_F(LostSegments, NobodyCanShortenOrLengthenASegment) {
    expect_same_bits_through([&] {
        for (const std::string& name : instance_.segments()) {
            const int fd = open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC);
            ASSERT_GE(fd, 0) << name;
            struct stat stats {};
            ASSERT_EQ(fstat(fd, &stats), 0);
            EXPECT_EQ(stats.st_mode & 07777, 0600U) << name;
            for (const off_t bytes : {off_t{0}, stats.st_size / 2, stats.st_size + 4096}) {
                EXPECT_EQ(ftruncate(fd, bytes), -1) << name;
                EXPECT_EQ(errno, EPERM) << name;
            }
            close(fd);
        }
    });
    EXPECT_EQ(instance_.stop(), 0);
}

}  // namespace
}  // namespace afd::test

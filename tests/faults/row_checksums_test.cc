// SPDX-License-Identifier: Apache-2.0
//
// Rows that change on their way between the workers.
//
// Method: while requests run, this process flips a bit of each row in the windows of a live
// instance, as bad memory would, and nothing but rows; whoever reads them is stopped meanwhile, so
// that some are on their way. At most three times, spread over the time of a few requests, where
// they are to be mended, because a row is sent again three times; elsewhere all the time. Oracle:
// the replies of the same instance before that, token ids and log probabilities to the last bit.
// Without checksums they change, which shows that the method disturbs anything.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

constexpr uint32_t kMicroBatches = 2;
constexpr uint32_t kMicroBatchSize = 4;
constexpr size_t kSlots = 5;             // K1 of the demo model.
constexpr size_t kRowStride = 512;       // HS, and HS'.
constexpr size_t kRowContent = 192 * 2;  // Its values.

std::vector<client::Generate> checked_requests() {
    std::vector<client::Generate> made;
    for (const uint32_t length : {2U, 5U, 9U}) {
        client::Generate request = long_request(60);
        request.clear_token_ids();
        for (uint32_t i = 0; i < length; ++i) request.mutable_token_ids()->add_ids(5 + i * length);
        made.push_back(std::move(request));
    }
    return made;
}

// The rows of one window, which are the end of it, and who reads them.
class WindowRows {
  public:
    WindowRows(const std::string& name, pid_t reader) : reader_(reader) {
        const int fd = open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC);
        struct stat stats {};
        if (fd < 0 || fstat(fd, &stats) != 0) ADD_FAILURE() << name;
        bytes_ = static_cast<size_t>(stats.st_size);
        void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) ADD_FAILURE() << name;
        close(fd);
        memory_ = static_cast<uint8_t*>(mapped);
    }
    ~WindowRows() { munmap(memory_, bytes_); }
    WindowRows(const WindowRows&) = delete;
    WindowRows& operator=(const WindowRows&) = delete;

    void flip(std::mt19937& random) {
        // By then another worker has written what it has.
        constexpr useconds_t kStopUs = 2'000;
        send_signal(reader_, SIGSTOP);
        usleep(kStopUs);
        for (size_t row = 0; row < kNumRows; ++row) {
            const size_t byte = random() % kRowContent;
            auto& word = memory_[bytes_ - (kNumRows - row) * kRowStride + byte];
            std::atomic_ref<uint8_t>(word).fetch_xor(static_cast<uint8_t>(1U << random() % 8));
        }
        send_signal(reader_, SIGCONT);
    }

  private:
    static constexpr size_t kNumRows = kMicroBatches * kMicroBatchSize * kSlots;
    pid_t reader_ = -1;
    uint8_t* memory_ = nullptr;
    size_t bytes_ = 0;
};

// Flips a bit of each row in the windows of the instance, in turn, until the end of the object or
// as often as it may; up to `pause_us` lies between two times.
class Flipper {
  public:
    static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

    Flipper(const Instance& instance, int64_t num_flips, int64_t pause_us) : num_left_(num_flips) {
        for (const std::string& name : instance.segments()) {
            if (!name.ends_with("-window")) continue;
            const char* const role = name.ends_with("-ffn0-window") ? "ffn" : "attention";
            windows_.push_back(
                std::make_unique<WindowRows>(name, instance.worker_pids(role).at(0)));
        }
        EXPECT_EQ(windows_.size(), 2U);
        thread_ = std::thread([this, pause_us] {
            std::mt19937 random(1);
            for (size_t i = 0; !is_over_; ++i) {
                if (num_left_ > 0) {
                    windows_[i % windows_.size()]->flip(random);
                    num_left_ -= 1;
                }
                usleep(static_cast<useconds_t>(random() % pause_us));
            }
        });
    }
    ~Flipper() {
        is_over_ = true;
        thread_.join();
    }

    void set_limit(int64_t num_flips) { num_left_ = num_flips; }

  private:
    std::vector<std::unique_ptr<WindowRows>> windows_;
    std::atomic<bool> is_over_{false};
    std::atomic<int64_t> num_left_;
    std::thread thread_;
};

std::vector<std::string> flags(const std::string& row_checksums, const std::string& router) {
    return {"--attention-workers",
            "1",
            "--ffn-workers",
            "1",
            "--micro-batches",
            std::to_string(kMicroBatches),
            "--micro-batch-size",
            std::to_string(kMicroBatchSize),
            "--dispatch",
            "window",
            "--router",
            router,
            "--row-checksums",
            row_checksums,
            // Who is stopped again and again is stopped at whatever look.
            "--stop-timeout-ms",
            "0"};
}

class RowChecksums : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Router,
                         RowChecksums,
                         testing::Values("attention", "ffn"),
                         [](const auto& router) { return std::string(router.param); });

TEST_P(RowChecksums, FindWhatWasCorruptedAndItIsSentAgain) {
    Instance instance(flags("true", GetParam()));
    instance.wait_ready();
    const std::vector<Reply> expected = run_all_at_once(instance, checked_requests());
    // The first time takes longer.
    const auto start = client::Clock::now();
    expect_same_bits(expected, run_all_at_once(instance, checked_requests()), "undisturbed");
    const std::chrono::microseconds took =
        std::chrono::duration_cast<std::chrono::microseconds>(client::Clock::now() - start);
    const auto deadline = client::Clock::now() + 4 * kPatience;
    bool is_there = false;
    bool is_back = false;
    Flipper flipper(instance, 0, took.count() / 3 + 1);
    while (!(is_there && is_back) && client::Clock::now() < deadline && !HasFailure()) {
        flipper.set_limit(3);
        expect_same_bits(
            expected, run_all_at_once(instance, checked_requests()), "with flipped bits");
        const std::string log = instance.log();
        is_there = log.find("was corrupted on its way to FFN worker") != std::string::npos;
        is_back = log.find("was corrupted on its way back from FFN worker") != std::string::npos;
    }
    EXPECT_TRUE(is_there && is_back) << "nothing was found";
    EXPECT_THAT(instance.log(),
                testing::HasSubstr("of attention worker 0 was corrupted on its way"));
}

TEST_P(RowChecksums, AreMissedWhereTheyAreOff) {
    Instance instance(flags("false", GetParam()));
    instance.wait_ready();
    const std::vector<Reply> expected = run_all_at_once(instance, checked_requests());
    const auto deadline = client::Clock::now() + kPatience;
    bool is_changed = false;
    Flipper flipper(instance, Flipper::kNoLimit, 100);
    while (!is_changed && client::Clock::now() < deadline) {
        is_changed = run_all_at_once(instance, checked_requests()) != expected;
    }
    EXPECT_TRUE(is_changed) << "flipped bits change nothing";
}

// Flips bits of whatever two-phase rounds have in memory, rows or not.
void flip_in_rounds(const Instance& instance, std::mt19937& random) {
    for (const std::string& name : instance.segments()) {
        const bool is_round =
            name.find("-receive") != std::string::npos || name.find("-return") != std::string::npos;
        const int fd = is_round ? open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC) : -1;
        struct stat stats {};
        // Rounds come and go.
        if (fd < 0 || fstat(fd, &stats) != 0 || stats.st_size == 0) continue;
        const auto bytes = static_cast<size_t>(stats.st_size);
        void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (mapped == MAP_FAILED) continue;
        for (int i = 0; i < 4; ++i) {
            std::atomic_ref<uint8_t>(static_cast<uint8_t*>(mapped)[random() % bytes])
                .fetch_xor(static_cast<uint8_t>(1U << random() % 8));
        }
        munmap(mapped, bytes);
    }
}

TEST(RowChecksumsInTwoPhases, FindWhatWasCorruptedAndItGoesThroughTheWindows) {
    Instance instance({"--attention-workers",
                       "1",
                       "--ffn-workers",
                       "1",
                       "--row-checksums",
                       "true",
                       "--dispatch",
                       "two_phase",
                       "--two-phase-block",
                       "64",
                       "--prefill-tokens-max",
                       "512",
                       "--prefix-cache",
                       "false"});
    instance.wait_ready();
    client::Generate request = long_request(4);
    for (uint32_t i = 0; i < 500; ++i) request.mutable_token_ids()->add_ids(3 + i * 7 % 200);
    const std::vector<client::Generate> long_prompt = {request};
    const std::vector<Reply> expected = run_all_at_once(instance, long_prompt);
    std::atomic<bool> is_over{false};
    std::thread flipper([&] {
        std::mt19937 random(2);
        while (!is_over) flip_in_rounds(instance, random);
    });
    const auto deadline = client::Clock::now() + kPatience;
    bool is_found = false;
    while (!is_found && client::Clock::now() < deadline && !HasFailure()) {
        expect_same_bits(expected, run_all_at_once(instance, long_prompt), "with flipped bits");
        is_found = instance.log().find("of a two-phase round was corrupted on its way") !=
                   std::string::npos;
    }
    is_over = true;
    flipper.join();
    EXPECT_TRUE(is_found) << "nothing was found";
    EXPECT_EQ(instance.stop(), 0);
}

TEST_P(RowChecksums, ChangeNoBit) {
    std::vector<std::vector<Reply>> replies;
    for (const char* row_checksums : {"true", "false"}) {
        Instance instance(flags(row_checksums, GetParam()));
        instance.wait_ready();
        replies.push_back(run_all_at_once(instance, checked_requests()));
        EXPECT_EQ(instance.stop(), 0);
    }
    expect_same_bits(replies[1], replies[0], "row_checksums = true");
}

}  // namespace
}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
//
// A worker that was taken over stores what it likes into everything that it may write.
//
// Method: this process takes the part of a worker. While requests run, it flips words at random,
// structured and not, in its parts of its peers' windows and in all of its own segments, as fast as
// it can.
// Oracle: afdd and the other workers are the same processes afterwards; and once the worker was
// replaced, every request gets the reply that it got before, to the last bit.
// What requests came to meanwhile is not looked at: those of the worker may end, and no client can
// tell whose a request is.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "tests/faults/long_form.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

constexpr uint64_t kFlips = 3'000'000;
// M = 2, BS = 4; the demo model has K1 = 5 and HS = 512 (docs/wire.md).
constexpr size_t kStripeDescriptorBytes = 2 * 4 * (2 + 4 * 5);
constexpr size_t kDataOffset = 512;
constexpr size_t kStripeRowBytes = 2 * 4 * 5 * 512;

// A part of a segment, as words.
class Target {
  public:
    // The bytes [first, last) of the file, or to its end.
    explicit Target(const std::string& name, size_t first = 0, size_t last = SIZE_MAX) {
        const int fd = open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC);
        struct stat stats {};
        if (fd < 0 || fstat(fd, &stats) != 0) ADD_FAILURE() << name;
        bytes_ = static_cast<size_t>(stats.st_size);
        void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) ADD_FAILURE() << name;
        close(fd);
        memory_ = static_cast<uint32_t*>(mapped);
        first_ = first / sizeof(uint32_t);
        last_ = std::min(last, bytes_) / sizeof(uint32_t);
    }
    ~Target() { munmap(memory_, bytes_); }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    void spoil(std::mt19937& random) {
        constexpr uint32_t kTelling[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0x7ffffffe};
        std::atomic_ref<uint32_t> word(memory_[first_ + random() % (last_ - first_)]);
        switch (random() % 4) {
            case 0:
                word = static_cast<uint32_t>(random());
                break;
            case 1:
                word = kTelling[random() % std::size(kTelling)];
                break;
            case 2:
                word ^= 1U << random() % 32;
                break;
            default:
                ++word;
        }
    }

  private:
    uint32_t* memory_ = nullptr;
    size_t bytes_ = 0;
    size_t first_ = 0;
    size_t last_ = 0;
};

std::vector<client::Generate> hostile_requests() {
    std::vector<client::Generate> made = mixed_requests(8, 1000, 5);
    for (client::Generate& request : made) request.set_max_tokens(12);
    return made;
}

class HostileWorker : public testing::Test {
  protected:
    HostileWorker() {
        instance_.wait_ready();
        expected_ = run_all_at_once(instance_, hostile_requests());
        for (const std::string role : {"attention", "ffn"}) {
            for (const pid_t pid : instance_.worker_pids(role)) pids_[role].push_back(pid);
        }
    }

    void aim_at(const std::string& name, size_t first = 0, size_t last = SIZE_MAX) {
        targets_.push_back(std::make_unique<Target>(name, first, last));
    }

    // Requests run meanwhile, and come to what they come to.
    void attack() {
        std::atomic<bool> is_over{false};
        std::thread attacker([&] {
            std::mt19937 random(16);
            const uint64_t num_all = from_environment("AFD_FLIPS", kFlips);
            for (uint64_t i = 0; i < num_all; ++i) {
                targets_[random() % targets_.size()]->spoil(random);
            }
            is_over = true;
        });
        do {
            run_all_at_once(instance_, hostile_requests());
        } while (!is_over);
        attacker.join();
    }

    // Whatever state the attack left the worker in, it is ended; the others are who they were.
    void expect_served_without(const std::string& role, size_t index) {
        const pid_t pid = instance_.worker_pids(role).at(index);
        if (pid > 0) send_signal(pid, SIGKILL);
        // Whatever its run_flag says now. Its death may not have been seen yet.
        instance_.wait_for("another is in its place", [&](const client::Status& status) {
            return std::all_of(status.workers().begin(), status.workers().end(), [&](auto& worker) {
                return worker.state() == "ready" && static_cast<pid_t>(worker.pid()) != pid;
            });
        });
        instance_.wait_ready();
        for (int again = 0; again < 3; ++again) {
            expect_same_bits(
                expected_, run_all_at_once(instance_, hostile_requests()), "after the attack");
        }
        for (const auto& [each_role, pids] : pids_) {
            for (size_t i = 0; i < pids.size(); ++i) {
                if (each_role == role && i == index) continue;
                EXPECT_EQ(instance_.worker_pids(each_role).at(i), pids[i]) << each_role << i;
            }
        }
        EXPECT_EQ(instance_.stop(), 0);
    }

    Instance instance_{{"--attention-workers",
                        "2",
                        "--ffn-workers",
                        "2",
                        "--micro-batches",
                        "2",
                        "--micro-batch-size",
                        "4",
                        "--two-phase-block",
                        "64",
                        "--round-timeout-ms",
                        "2000",
                        "--wait-report-ms",
                        "500"}};
    std::vector<Reply> expected_;
    std::map<std::string, std::vector<pid_t>> pids_;
    std::vector<std::unique_ptr<Target>> targets_;
};

TEST_F(HostileWorker, OfAttentionEndsNobodyElseAndWhoComesAfterIsServed) {
    for (const std::string& name : instance_.segments()) {
        if (name.find("-ffn") != std::string::npos && name.ends_with("-window")) {
            // The second session's stripes: of the descriptors, and of the rows behind all of them.
            aim_at(name, kStripeDescriptorBytes, 2 * kStripeDescriptorBytes);
            aim_at(name, kDataOffset + kStripeRowBytes);
        } else if (name.find("-attn1-") != std::string::npos) {
            aim_at(name);
        }
    }
    ASSERT_EQ(targets_.size(), 8U);
    attack();
    expect_served_without("attention", 1);
}

// An FFN worker writes results into every session's window, beside those of other ranks.
TEST_F(HostileWorker, OfExpertsEndsNobodyElseAndWhoComesAfterIsServed) {
    for (const std::string& name : instance_.segments()) {
        const bool is_own = name.find("-ffn1-") != std::string::npos;
        const bool is_for_results =
            name.find("-attn") != std::string::npos && name.ends_with("-window");
        if (is_own || is_for_results) aim_at(name);
    }
    ASSERT_EQ(targets_.size(), 6U);
    attack();
    expect_served_without("ffn", 1);
}

}  // namespace
}  // namespace afd::test

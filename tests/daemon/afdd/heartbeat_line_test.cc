// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/heartbeat_line.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

class HeartbeatLineTest : public testing::Test {
  protected:
    HeartbeatLineTest() : requests_(1024) {
        for (const char* role : {"attention", "ffn"}) {
            client::Worker& worker = *status_.add_workers();
            worker.set_role(role);
            worker.set_pid(100);
        }
        status_.mutable_workers(0)->set_kv_tokens_total(1000);
    }

    // `worker` spent this time since the last call.
    void spend(int worker, uint64_t busy_us, uint64_t bubble_us, uint64_t idle_us) {
        client::Worker& one = *status_.mutable_workers(worker);
        one.set_busy_us(one.busy_us() + busy_us);
        one.set_bubble_us(one.bubble_us() + bubble_us);
        one.set_idle_us(one.idle_us() + idle_us);
    }

    client::Status status_;
    RequestMetrics requests_;
    HeartbeatLine heartbeat_;
};

// Goal: the line is of the last ten seconds and not of all time. Oracle: by hand.
TEST_F(HeartbeatLineTest, TellsWhatHappenedSinceTheLastOne) {
    requests_.num_output_tokens = 500;
    requests_.first_token_s.record(70.0);
    spend(0, 9'000'000, 0, 0);
    EXPECT_FALSE(heartbeat_.next(status_, requests_, 10'000).has_value());

    requests_.num_output_tokens += 8850;
    for (int i = 0; i < 100; ++i) requests_.first_token_s.record(0.005);
    spend(0, 8'600'000, 200'000, 1'200'000);
    spend(1, 8'300'000, 1'200'000, 500'000);
    status_.set_num_running(4);
    status_.mutable_workers(0)->set_kv_tokens_used(30);
    EXPECT_EQ(heartbeat_.next(status_, requests_, 10'000).value_or("nothing"),
              "run 4 wait 0 | 885 tok/s | TTFT p99 5 ms | attention busy 86 %, bubble 2 % | ffn "
              "busy 83 %, bubble 12 % | kv 3 %");
}

TEST_F(HeartbeatLineTest, IsSilentWhileNothingRuns) {
    static_cast<void>(heartbeat_.next(status_, requests_, 10'000));
    spend(0, 0, 0, 10'000'000);
    EXPECT_FALSE(heartbeat_.next(status_, requests_, 10'000).has_value());
    // A request that is there and makes no progress is worth a line.
    status_.set_num_queued(1);
    EXPECT_EQ(heartbeat_.next(status_, requests_, 10'000).value_or("nothing"),
              "run 0 wait 1 | 0 tok/s | kv 0 %");
}

// A successor counts from zero: its time so far is no difference to its predecessor's.
TEST_F(HeartbeatLineTest, LeavesOutAWorkerThatWasReplaced) {
    spend(0, 5'000'000, 0, 0);
    spend(1, 5'000'000, 0, 0);
    static_cast<void>(heartbeat_.next(status_, requests_, 10'000));
    status_.mutable_workers(0)->set_pid(101);
    status_.mutable_workers(0)->set_busy_us(7);
    spend(1, 1'000'000, 3'000'000, 0);
    requests_.num_output_tokens = 10;
    EXPECT_EQ(heartbeat_.next(status_, requests_, 10'000).value_or("nothing"),
              "run 0 wait 0 | 1 tok/s | ffn busy 25 %, bubble 75 % | kv 0 %");
}

// The successor may have its predecessor's process number, and may be seen before its own.
TEST_F(HeartbeatLineTest, LeavesOutAWorkerThatCountsAnew) {
    for (int worker : {0, 1}) spend(worker, 5'000'000, 5'000'000, 5'000'000);
    static_cast<void>(heartbeat_.next(status_, requests_, 10'000));
    status_.mutable_workers(0)->set_busy_us(7);
    spend(1, 1'000'000, 3'000'000, 0);
    requests_.num_output_tokens = 10;
    EXPECT_EQ(heartbeat_.next(status_, requests_, 10'000).value_or("nothing"),
              "run 0 wait 0 | 1 tok/s | ffn busy 25 %, bubble 75 % | kv 0 %");
}

}  // namespace
}  // namespace afd::daemon

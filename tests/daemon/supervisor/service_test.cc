// SPDX-License-Identifier: Apache-2.0
//
// Whether an instance can serve, and what it says if it cannot: workers that have served and cannot
// start again.
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "tests/daemon/attention/fake_token.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// Goal: what the next tests share. A worker that served is killed, and none can start in its
// place while `why_not` is set.
class ServiceTest : public SupervisorTest {
  protected:
    void start_and_lose(const std::string& role, uint32_t index, const char* why_not) {
        start();
        ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
        EXPECT_EQ(status().state(), "ready");
        cannot_start_.emplace(why_not, "tensor x is missing");
        ::kill(static_cast<pid_t>(worker(role, index).pid()), SIGKILL);
    }

    bool wait_for_service(const std::string& state) {
        return run_until(loop_, [&] { return status().state() == state; });
    }

    client::Response answer_of(TestClient& client, uint64_t id) {
        EXPECT_TRUE(run_until(loop_, [&] {
            client.receive();
            return client.last(id) != nullptr &&
                   (client.last(id)->has_error() || client.last(id)->has_finished());
        }));
        return client.last(id) != nullptr ? *client.last(id) : client::Response();
    }

    std::optional<ScopedVariable> cannot_start_;
};

// Goal: workers that can never start again are not hidden behind "ready". Method: the experts'
// worker dies, and its successors fail, by a reason that no restart mends and by crashes. Oracle:
// the state, its reason and the refusal name it; when the reason is gone, service goes on.
TEST_F(ServiceTest, WithoutExpertsNewRequestsAreRefusedWithTheReasonUntilTheyAreBack) {
    for (const auto& [why_not, words] :
         {std::pair{"AFD_FAKE_FAIL", "ffn worker 0 exited with status 1: tensor x is missing"},
          std::pair{"AFD_FAKE_CRASH", "ffn worker 0 killed by signal 6"}}) {
        if (supervisor_ == nullptr) {
            start_and_lose("ffn", 0, why_not);
        } else {
            cannot_start_.emplace(why_not, "tensor x is missing");
            ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
        }
        ASSERT_TRUE(wait_for_service("failed")) << why_not;
        EXPECT_THAT(status().reason(), HasSubstr(words));
        TestClient client(loop_, *gateway_);
        client.send(generate(1, "abc", 5));
        const client::Response refused = answer_of(client, 1);
        EXPECT_EQ(refused.error().code(), static_cast<uint32_t>(Code::kUnavailable));
        EXPECT_THAT(refused.error().message(), HasSubstr("afdd cannot serve now: "));
        EXPECT_THAT(refused.error().message(), HasSubstr(words));
        cannot_start_.reset();
        ASSERT_TRUE(wait_for_service("ready")) << why_not;
        EXPECT_EQ(status().reason(), "");
        client.send(generate(2, "abc", 5));
        EXPECT_TRUE(answer_of(client, 2).has_finished());
    }
    EXPECT_EQ(program_.given_up, "") << "a worker that served is tried for ever";
}

// Goal: a worker that dies whenever it is ready is as one that does not start. Method: the
// successors of a worker that is killed abort right behind their Ready, then one lives. Oracle: the
// state and its reason; a single Ready is not yet "ready" again.
TEST_F(ServiceTest, AWorkerThatDiesAsSoonAsItIsReadyIsAFailure) {
    config_.start_attempts = 1;
    start_and_lose("ffn", 0, "AFD_FAKE_DIE");
    ASSERT_TRUE(wait_for_service("failed"));
    EXPECT_THAT(status().reason(),
                HasSubstr("ffn worker 0, as soon as it was ready: killed by signal 6 (Aborted)"));
    EXPECT_GE(worker("ffn", 0).num_restarts(), 3U) << "R11 ends what kills three workers";
    EXPECT_FALSE(run_for(loop_, 300, [&] { return status().state() != "failed"; }));
    cannot_start_.reset();
    ASSERT_TRUE(wait_for_service("ready"));
    EXPECT_GE(worker("ffn", 0).uptime_ms(), WorkerSlot::kSettleMs);
    EXPECT_EQ(program_.given_up, "") << "a worker that served is tried for ever";
}

// Goal: with replicas every session goes on without a rank that cannot start again. Method: two
// ranks, each with all experts; one, then both cannot start. Oracle: the state, and two requests at
// a time, one in each session.
TEST_F(ServiceTest, WithReplicasOfALostRankItServesDegraded) {
    const ScopedVariable slow("AFD_FAKE_TOKEN_MS", "5");
    config_.ffn_workers = 2;
    can_do_without_ = [](const std::vector<bool>& is_lost) { return !is_lost[0] || !is_lost[1]; };
    start_and_lose("ffn", 0, "AFD_FAKE_FAIL");
    ASSERT_TRUE(wait_for_service("degraded"));
    EXPECT_THAT(status().reason(), HasSubstr("ffn worker 0 exited with status 1"));
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 50));
    client.send(generate(2, "abc", 50));
    EXPECT_TRUE(run_until(
        loop_, [&] { return gateway_->num_sequences(0) == 1 && gateway_->num_sequences(1) == 1; }));
    EXPECT_TRUE(answer_of(client, 1).has_finished());
    EXPECT_TRUE(answer_of(client, 2).has_finished());
    ::kill(static_cast<pid_t>(worker("ffn", 1).pid()), SIGKILL);
    ASSERT_TRUE(wait_for_service("failed"));
    cannot_start_.reset();
    ASSERT_TRUE(wait_for_service("ready"));
}

// Goal: what a worker of another host waited for is no reason any more once it is ready, even if it
// had died soon after it was ready before. Method: a stand-in that is the fake worker; it is killed
// at once, while its host is away, and the host comes back. Oracle: the state, before the worker
// has lived for kSettleMs.
TEST_F(ServiceTest, AWorkerWhoseHostIsBackServesAtOnce) {
    ASSERT_NO_FATAL_FAILURE(start_and_lose_host_b());
    ASSERT_TRUE(wait_for_service("failed"));
    EXPECT_EQ(status().reason(), "ffn worker 0 waits for host 'b' to join");
    EXPECT_EQ(worker("ffn", 0).state(), "no host");
    bring_host_b_back();
    ASSERT_TRUE(wait_for_state("ffn", 0, "ready"));
    EXPECT_EQ(status().state(), "ready");
    EXPECT_EQ(status().reason(), "");
}

// Goal: a worker whose host is back is not said to wait for it while it starts, and does not serve
// before it is ready. Method: as above; the next worker is not ready before a file is there.
// Oracle: the state, its reason and who is waited for.
TEST_F(ServiceTest, AWorkerWhoseHostIsBackIsSaidToStart) {
    const ScopedVariable waits("AFD_FAKE_WAIT", "1");
    config_.attention_workers = 1;
    ASSERT_NO_FATAL_FAILURE(start_and_lose_host_b());
    ASSERT_TRUE(wait_for_service("failed"));
    const std::string file = directory_.path("may-be-ready");
    const ScopedVariable hang("AFD_FAKE_HANG", file.c_str());
    bring_host_b_back();
    ASSERT_TRUE(wait_for_state("ffn", 0, "starting"));
    EXPECT_EQ(status().reason(), "ffn worker 0: host 'b' has joined; it starts");
    EXPECT_EQ(status().state(), "failed");
    EXPECT_TRUE(reports("attention", 0, "it waits; the peer is starting on host b"));
    directory_.write("may-be-ready", "");
    ASSERT_TRUE(wait_for_service("ready"));
    EXPECT_EQ(status().reason(), "");
}

TEST_F(ServiceTest, WithOneOfTwoAttentionWorkersItServesDegraded) {
    start_and_lose("attention", 1, "AFD_FAKE_FAIL");
    ASSERT_TRUE(wait_for_service("degraded"));
    EXPECT_THAT(status().reason(), HasSubstr("attention worker 1 exited with status 1"));
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 5));
    EXPECT_TRUE(answer_of(client, 1).has_finished());
}

// Goal: a worker that was halted on purpose is no failure. Method: the experts' worker cannot start
// again, then the run_flags are 0, then set. Oracle: the state and its reason; what still keeps the
// worker from starting is found again.
TEST_F(ServiceTest, AFailingWorkerThatIsHaltedIsNoFailure) {
    start_and_lose("ffn", 0, "AFD_FAKE_FAIL");
    ASSERT_TRUE(wait_for_service("failed"));
    set_run_flags(false);
    ASSERT_TRUE(wait_for_state("ffn", 0, "halted"));
    ASSERT_TRUE(wait_for_service("halted"));
    EXPECT_THAT(status().reason(),
                HasSubstr("ffn worker 0 is halted (afdctl restart-worker --worker ffn0"));
    EXPECT_EQ(status().reason().find("tensor x"), std::string::npos);
    set_run_flags(true);
    const std::string why = "ffn worker 0 exited with status 1";
    EXPECT_TRUE(run_until(loop_, [&] { return status().reason().find(why) != std::string::npos; }));
    EXPECT_EQ(status().state(), "failed");
    cannot_start_.reset();
    EXPECT_TRUE(wait_for_service("ready"));
}

// Goal: who takes the only worker of a role away hears that nobody is served, and costs no request.
// Method: the run_flag of the experts' worker is 0, a request comes, the flag is set. Oracle: the
// state and its reason; the request's end.
TEST_F(ServiceTest, WithoutItsOnlyExpertsNobodyIsServedAndRequestsWait) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    supervisor_->set_run_flag(control::ATTENTION, 0, false);
    EXPECT_EQ(status().state(), "ready") << "another attention worker serves";
    supervisor_->set_run_flag(control::FFN, 0, false);
    EXPECT_EQ(status().state(), "halted");
    EXPECT_THAT(status().reason(), HasSubstr("ffn worker 0 is halted"));
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 5));
    ASSERT_TRUE(wait_for_state("ffn", 0, "halted"));
    supervisor_->set_run_flag(control::FFN, 0, true);
    EXPECT_EQ(status().state(), "ready");
    EXPECT_TRUE(answer_of(client, 1).has_finished());
}

TEST_F(ServiceTest, AHaltedRankOfWhichThereAreReplicasLeavesItReady) {
    config_.ffn_workers = 2;
    can_do_without_ = [](const std::vector<bool>& is_lost) { return !is_lost[0] || !is_lost[1]; };
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    supervisor_->set_run_flag(control::FFN, 1, false);
    EXPECT_EQ(status().state(), "ready");
    supervisor_->set_run_flag(control::FFN, 0, false);
    EXPECT_EQ(status().state(), "halted");
}

// Goal: a request that was accepted before does not wait for ever. Method: the only attention
// worker is lost while it streams, slowly. Oracle: the request ends with the reason.
TEST_F(ServiceTest, ARequestInFlightEndsWithTheReasonWhenTheOutageLasts) {
    const ScopedVariable slow("AFD_FAKE_TOKEN_MS", "20");
    config_.attention_workers = 1;
    config_.round_timeout_ms = 200;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 2000));
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.text(1).size() > 3;
    }));
    cannot_start_.emplace("AFD_FAKE_FAIL", "tensor x is missing");
    ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
    EXPECT_THAT(answer_of(client, 1).error().message(),
                HasSubstr("attention worker 0 exited with status 1: tensor x is missing"));
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
}

}  // namespace
}  // namespace afd::daemon

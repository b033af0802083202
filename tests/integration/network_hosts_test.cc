// SPDX-License-Identifier: Apache-2.0
//
// Hosts with a network of their own: other network namespaces, and a wire or a switch between.
//
// Goal: what holds over loopback holds where hosts have addresses; a network that is cut, slow,
// lossy or out of order costs time and nothing else. Method: links of such conditions, by the
// kernel's netem where it is, else emulated; a link is cut in the middle of requests, for less and
// for more than what makes either end give the other up. Oracle: the tokens and log probabilities
// of before, or of an instance of one host, to the last bit; and that the link did lose, delay and
// reorder. scripts/netem-kernel runs all of it where netem is.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>

#include "daemon/cluster/cluster_channel.h"
#include "daemon/cluster/cluster_protocol.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/joined_process.h"
#include "tests/integration/network_switch.h"
#include "tests/integration/network_wire.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kTokens = 400;

// Past it either end has given the other up. Half a minute where the kernel is another one, for
// which nobody waits.
milliseconds long_cut() {
    constexpr milliseconds kLongCut(15'000);
    static_assert(milliseconds(daemon::kSilentMs) < kLongCut);
    static_assert(milliseconds(daemon::ClusterChannel::kGoneAfterMs) < kLongCut);
    return kernel_has_netem() ? 2 * kLongCut : kLongCut;
}

// Two requests that run while the link is cut for that long end as one did before.
void expect_same_bits_through_a_cut(const Instance& leader,
                                    const NetworkLink& link,
                                    milliseconds time) {
    const auto expected = leader.connect().generate(long_request(kTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    BackgroundGeneration one(leader, long_request(kTokens));
    BackgroundGeneration other(leader, long_request(kTokens));
    const auto cut = [&] {
        one.wait_for_tokens(20);
        other.wait_for_tokens(20);
        EXPECT_TRUE(link.cut());
        return run_on(leader, 1);
    };
    // Both may be over before.
    for (int attempt = 1; !cut(); ++attempt) {
        ASSERT_LT(attempt, kAttemptsToBeInTime) << "both were always over before";
        ASSERT_TRUE(link.mend());
        ASSERT_TRUE(BackgroundGeneration::begin_anew({&one, &other}));
    }
    std::this_thread::sleep_for(time);
    ASSERT_TRUE(link.mend());
    for (BackgroundGeneration* generation : {&one, &other}) {
        expect_same_generation(expected.value(), generation->finish());
    }
}

// An attention and an FFN worker here, and one of each on host b behind the wire.
class NetworkHosts : public testing::Test {
  protected:
    void start(const std::optional<tools::LinkConditions>& conditions = {}) {
        wire_ = std::make_unique<NetworkWire>(conditions);
        ASSERT_TRUE(wire_->is_there());
        std::vector<std::string> flags = wire_->leader_flags(certificates_);
        flags.insert(flags.end(), {"--attention-workers", "2", "--attention-hosts", "local,b"});
        flags.insert(flags.end(), {"--ffn-workers", "2", "--ffn-hosts", "local,b"});
        leader_ = std::make_unique<Instance>(flags);
        host_ = std::make_unique<JoinedProcess>(
            JoinedProcess::Options{.name = "b",
                                   .certificates = certificates_,
                                   .address = join_address(*leader_, wire_->address()),
                                   .device = wire_->device(),
                                   .before = wire_->in_namespace()});
        leader_->wait_ready();
    }

    // All at once, as one host answers them.
    void expect_bits_of_one_host(const tools::LinkConditions& conditions) {
        const auto requests = mixed_requests(8, 128, 7);
        Instance alone;
        alone.wait_ready();
        const auto expected = run_one_after_another(alone, requests);
        EXPECT_EQ(alone.stop(), 0);
        start(conditions);
        expect_same_bits(expected, run_all_at_once(*leader_, requests), "over a bad network");
    }

    // The link between the attention worker here and the FFN worker of host b, as the status shows
    // it once it is measured, and often enough: the first measures may be of a busy moment.
    client::Link measured_link(const std::function<bool(const client::Link&)>& is_settled) const {
        client::Link found;
        leader_->wait_for("the link is measured", [&](const client::Status& status) {
            if (status.workers(0).links_size() != 2) return false;
            found = status.workers(0).links(1);
            return found.latency_ns() > 0 && found.bytes_per_s() > 0 && is_settled(found);
        });
        EXPECT_TRUE(found.is_open());
        EXPECT_GT(found.bytes_sent(), 0U);
        EXPECT_GT(found.bytes_received(), 0U);
        return found;
    }

    const std::string certificates_ = make_certificates({"b"});
    std::unique_ptr<NetworkWire> wire_;
    std::unique_ptr<Instance> leader_;
    std::unique_ptr<JoinedProcess> host_;
};

// Each pair takes the fastest way: memory on one host, UCX between the two. Oracle: the links of
// the status, and the bits of one host.
TEST_F(NetworkHosts, NeighboursTalkThroughMemoryAndTheOthersDoNot) {
    expect_bits_of_one_host({});
    client::Status status;
    leader_->wait_for("all links are told", [&](const client::Status& now) {
        status = now;
        return std::ranges::all_of(now.workers(), [](const client::Worker& worker) {
            const auto is_used = [](const client::Link& link) { return link.bytes_sent() > 0; };
            return worker.role() == "ffn" ||
                   (worker.links_size() == 2 && std::ranges::all_of(worker.links(), is_used));
        });
    });
    for (const client::Worker& worker : status.workers()) {
        for (int rank = 0; rank < worker.links_size(); ++rank) {
            EXPECT_TRUE(worker.links(rank).is_open());
            EXPECT_EQ(worker.links(rank).is_near(), rank == static_cast<int>(worker.index()))
                << worker.index() << " to " << rank;
        }
    }
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, ShortCutsCostTime) {
    start();
    expect_same_bits_through_a_cut(*leader_, wire_->link(), milliseconds(1000));
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, AHostThatComesBackAfterItWasGivenUpJoinsAgain) {
    start();
    expect_same_bits_through_a_cut(*leader_, wire_->link(), long_cut());
    host_->wait_for_log("nothing was heard of it for 5000 ms; its worker ends");
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, DelayCostsTime) {
    expect_bits_of_one_host({.delay = microseconds(2000)});
    EXPECT_EQ(wire_->link().num_lost(), 0U);
    const client::Link found =
        measured_link([](const client::Link& link) { return link.latency_ns() < 8'000'000; });
    EXPECT_GE(found.latency_ns(), 2'000'000U);
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, ReorderingCostsTime) {
    expect_bits_of_one_host({.delay = microseconds(200), .jitter = microseconds(1000)});
    EXPECT_EQ(wire_->link().num_lost(), 0U);
    EXPECT_GT(num_out_of_order(wire_->in_namespace()), 0U);
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, LossAndReorderingCostTime) {
    expect_bits_of_one_host(
        {.delay = microseconds(200), .jitter = microseconds(1000), .loss = 0.01});
    EXPECT_GT(wire_->link().num_lost(), 0U);
    EXPECT_EQ(leader_->stop(), 0);
}

// Rows wait for one another at the sender, and the queue of the wire is full now and then.
TEST_F(NetworkHosts, AThinLinkCostsTime) {
    expect_bits_of_one_host({.delay = microseconds(100), .mbit_per_second = 20});
    const auto carried = [](const client::Link& link) {
        return static_cast<double>(link.bytes_per_s()) * 8 / 20e6;
    };
    const client::Link found =
        measured_link([&](const client::Link& link) { return carried(link) > 0.4; });
    EXPECT_LT(carried(found), 1.2);
    EXPECT_EQ(leader_->stop(), 0);
}

// No host has workers of both roles, so that everything goes over the network: attention here and
// on b, experts on c and d.
class NetworkHostsOfOneRole : public testing::Test {
  protected:
    void start(const std::optional<tools::LinkConditions>& conditions = {}) {
        network_ = std::make_unique<NetworkSwitch>(kNames.size(), conditions);
        ASSERT_TRUE(network_->is_there());
        std::vector<std::string> flags = network_->leader_flags(certificates_);
        flags.insert(flags.end(), {"--attention-workers", "2", "--attention-hosts", "local,b"});
        flags.insert(flags.end(), {"--ffn-workers", "2", "--ffn-hosts", "c,d"});
        leader_ = std::make_unique<Instance>(flags);
        for (size_t host = 0; host < kNames.size(); ++host) hosts_.push_back(join(host));
        leader_->wait_ready();
    }

    std::unique_ptr<JoinedProcess> join(size_t host) const {
        return std::make_unique<JoinedProcess>(
            JoinedProcess::Options{.name = kNames[host],
                                   .certificates = certificates_,
                                   .address = join_address(*leader_, network_->address()),
                                   .device = network_->device(),
                                   .before = network_->in_namespace(host)});
    }

    // Oracle: one process with the same operators, and the links of the status.
    void expect_bits_of_one_process(const std::optional<tools::LinkConditions>& conditions = {}) {
        const auto requests = mixed_requests(12, 512, 7);
        Instance alone({"--topology", "colocated"});
        alone.wait_ready();
        const auto expected = run_one_after_another(alone, requests);
        EXPECT_EQ(alone.stop(), 0);
        start(conditions);
        expect_same_bits(expected, run_one_after_another(*leader_, requests), "one by one");
        expect_same_bits(expected, run_all_at_once(*leader_, requests), "all at once");
        leader_->wait_for("every link is used, and none is of one host", [](const auto& now) {
            return std::ranges::all_of(now.workers(), [](const client::Worker& worker) {
                return worker.role() == "ffn" ||
                       (worker.links_size() == 2 &&
                        std::ranges::all_of(worker.links(), [](const client::Link& link) {
                            return link.is_open() && !link.is_near() && link.bytes_sent() > 0;
                        }));
            });
        });
    }

    const std::vector<std::string> kNames = {"b", "c", "d"};
    const std::string certificates_ = make_certificates(kNames);
    std::unique_ptr<NetworkSwitch> network_;
    std::unique_ptr<Instance> leader_;
    std::vector<std::unique_ptr<JoinedProcess>> hosts_;
};

TEST_F(NetworkHostsOfOneRole, GiveTheBitsOfOneProcess) {
    expect_bits_of_one_process();
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHostsOfOneRole, GiveTheBitsOfOneProcessOverABadNetwork) {
    expect_bits_of_one_process(
        {{.delay = microseconds(100), .jitter = microseconds(400), .loss = 0.002}});
    EXPECT_GT(network_->link(0).num_lost() + network_->link(1).num_lost(), 0U);
    EXPECT_GT(num_out_of_order(network_->in_namespace(1)), 0U);
    EXPECT_EQ(leader_->stop(), 0);
}

// kill -9 of workers, of stand-ins, and of the afdd of a host of either role. That of the leader is
// in hosts_that_end_test.cc.
TEST_F(NetworkHostsOfOneRole, KillsChangeNoBit) {
    start();
    std::vector<std::function<void()>> kills;
    for (const size_t host : {0, 1}) {
        kills.push_back([this, host] {
            const pid_t killed = hosts_[host]->worker_pids().at(0);
            send_signal(killed, SIGKILL);
            leader_->wait_for("the host has another worker", [&](const client::Status&) {
                const std::vector<pid_t> now = hosts_[host]->worker_pids();
                return now.size() == 1 && now[0] != killed;
            });
            leader_->wait_all_workers_ready();
        });
        kills.push_back([this, host] {
            hosts_[host]->signal(SIGKILL);
            EXPECT_EQ(hosts_[host]->wait_exit(), 128 + SIGKILL);
            leader_->wait_for("the host is missed", [&](const client::Status& status) {
                return status.hosts(static_cast<int>(host)).address().empty();
            });
            hosts_[host] = join(host);
            leader_->wait_all_workers_ready();
        });
    }
    for (const size_t index : {0, 1}) {
        for (const char* role : {"attention", "ffn"}) {
            kills.push_back([this, role, index] { leader_->replace_worker(role, index, SIGKILL); });
        }
    }
    expect_same_bits_through(*leader_, kills);
    EXPECT_EQ(leader_->stop(), 0);
}

// The host of the second attention worker, and of the first FFN worker. By netem, packets are lost
// and nobody is told, as behind a switch that has failed.
TEST_F(NetworkHostsOfOneRole, ShortPartitionsCostTime) {
    start();
    for (const size_t host : {0, 1}) {
        expect_same_bits_through_a_cut(*leader_, network_->link(host), milliseconds(1000));
    }
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHostsOfOneRole, LongPartitionsCostTime) {
    start();
    for (const size_t host : {0, 1}) {
        expect_same_bits_through_a_cut(*leader_, network_->link(host), long_cut());
        hosts_[host]->wait_for_log("nothing was heard of it for 5000 ms; its worker ends");
    }
    EXPECT_EQ(leader_->stop(), 0);
}

}  // namespace
}  // namespace afd::test

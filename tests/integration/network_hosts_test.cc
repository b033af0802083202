// SPDX-License-Identifier: Apache-2.0
//
// Hosts with a network of their own: other network namespaces, and a wire or a switch between.
//
// Goal: what holds over loopback holds where hosts have addresses; a network that is cut, slow,
// lossy or out of order costs time and nothing else. Method: the device of the leader is taken down
// in the middle of a request, for less and for more than what makes either end give the other up;
// and the wire is an emulated one. Oracle: the tokens and log probabilities of before, or of an
// instance of one host, to the last bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

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

// An attention and an FFN worker here, and one of each on host b behind the wire.
class NetworkHosts : public testing::Test {
  protected:
    void start(const std::optional<LinkConditions>& conditions = {}) {
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

    void expect_same_bits_through_a_cut(std::chrono::milliseconds time) {
        const auto expected = leader_->connect().generate(long_request(kTokens));
        ASSERT_TRUE(expected.ok()) << expected.error().message;
        BackgroundGeneration one(*leader_, long_request(kTokens));
        BackgroundGeneration other(*leader_, long_request(kTokens));
        one.wait_for_tokens(20);
        other.wait_for_tokens(20);
        wire_->cut_for(time);
        for (BackgroundGeneration* generation : {&one, &other}) {
            const auto found = generation->finish();
            ASSERT_TRUE(found.ok()) << found.error().message;
            EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
            EXPECT_EQ(found.value().logprobs, expected.value().logprobs);
        }
    }

    // All at once, as one host answers them.
    void expect_bits_of_one_host(const LinkConditions& conditions) {
        const auto requests = mixed_requests(8, 128, 7);
        Instance alone;
        alone.wait_ready();
        const auto expected = run_one_after_another(alone, requests);
        EXPECT_EQ(alone.stop(), 0);
        start(conditions);
        expect_same_bits(expected, run_all_at_once(*leader_, requests), "over a bad network");
    }

    // The link between the attention worker here and the FFN worker of host b, as the status shows
    // it once it is measured.
    client::Link measured_link() const {
        client::Link found;
        leader_->wait_for("the link is measured", [&](const client::Status& status) {
            if (status.workers(0).links_size() != 2) return false;
            found = status.workers(0).links(1);
            return found.latency_ns() > 0 && found.bytes_per_s() > 0;
        });
        EXPECT_TRUE(found.is_open());
        EXPECT_GT(found.bytes_sent(), 0U);
        EXPECT_GT(found.bytes_received(), 0U);
        return found;
    }

    static constexpr uint32_t kTokens = 400;
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
    expect_same_bits_through_a_cut(std::chrono::milliseconds(1000));
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, AHostThatComesBackAfterItWasGivenUpJoinsAgain) {
    start();
    constexpr std::chrono::milliseconds kCut(15'000);
    static_assert(std::chrono::milliseconds(daemon::kSilentMs) < kCut);
    static_assert(std::chrono::milliseconds(daemon::ClusterChannel::kGoneAfterMs) < kCut);
    expect_same_bits_through_a_cut(kCut);
    host_->wait_for_log("nothing was heard of it for 5000 ms; its worker ends");
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, DelayCostsTime) {
    expect_bits_of_one_host({.delay = microseconds(2000)});
    EXPECT_EQ(wire_->emulator()->num_lost(), 0U);
    const uint64_t latency_ns = measured_link().latency_ns();
    EXPECT_GE(latency_ns, 2'000'000U);
    EXPECT_LT(latency_ns, 8'000'000U);
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, LossAndReorderingCostTime) {
    expect_bits_of_one_host(
        {.delay = microseconds(200), .jitter = microseconds(1000), .loss = 0.01});
    EXPECT_GT(wire_->emulator()->num_lost(), 0U);
    EXPECT_GT(wire_->emulator()->num_overtaken(), 0U);
    EXPECT_EQ(leader_->stop(), 0);
}

// Rows wait for one another at the sender, and the queue of the wire is full now and then.
TEST_F(NetworkHosts, AThinLinkCostsTime) {
    expect_bits_of_one_host({.delay = microseconds(100), .mbit_per_second = 20});
    const double carried = static_cast<double>(measured_link().bytes_per_s()) * 8 / 20e6;
    EXPECT_GT(carried, 0.4);
    EXPECT_LT(carried, 1.2);
    EXPECT_EQ(leader_->stop(), 0);
}

// No host has workers of both roles, so that everything goes over the network. Oracle: one process
// with the same operators, and the links of the status.
TEST(NetworkHostsOfOneRole, TwoOfAttentionAndTwoOfExpertsGiveTheBitsOfOneProcess) {
    const auto requests = mixed_requests(12, 512, 7);
    Instance alone({"--topology", "colocated"});
    alone.wait_ready();
    const auto expected = run_one_after_another(alone, requests);
    EXPECT_EQ(alone.stop(), 0);

    const std::vector<std::string> names = {"b", "c", "d"};
    const NetworkSwitch network(names.size());
    ASSERT_TRUE(network.is_there());
    const std::string certificates = make_certificates(names);
    std::vector<std::string> flags = network.leader_flags(certificates);
    flags.insert(flags.end(), {"--attention-workers", "2", "--attention-hosts", "local,b"});
    flags.insert(flags.end(), {"--ffn-workers", "2", "--ffn-hosts", "c,d"});
    Instance leader(flags);
    std::vector<std::unique_ptr<JoinedProcess>> hosts;
    for (size_t host = 0; host < names.size(); ++host) {
        hosts.push_back(std::make_unique<JoinedProcess>(
            JoinedProcess::Options{.name = names[host],
                                   .certificates = certificates,
                                   .address = join_address(leader, network.address()),
                                   .device = network.device(),
                                   .before = network.in_namespace(host)}));
    }
    leader.wait_ready();
    expect_same_bits(expected, run_one_after_another(leader, requests), "one by one");
    expect_same_bits(expected, run_all_at_once(leader, requests), "all at once");
    leader.wait_for("every link is used, and none is of one host", [](const client::Status& now) {
        return std::ranges::all_of(now.workers(), [](const client::Worker& worker) {
            return worker.role() == "ffn" ||
                   (worker.links_size() == 2 &&
                    std::ranges::all_of(worker.links(), [](const client::Link& link) {
                        return link.is_open() && !link.is_near() && link.bytes_sent() > 0;
                    }));
        });
    });
    EXPECT_EQ(leader.stop(), 0);
}

}  // namespace
}  // namespace afd::test

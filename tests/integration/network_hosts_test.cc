// SPDX-License-Identifier: Apache-2.0
//
// A host behind a network of its own: another network namespace, and a pair of devices between.
//
// Goal: what holds over loopback holds where hosts have addresses, and a network that is cut costs
// time and nothing else. Method: the device of the leader is taken down in the middle of a request,
// for less and for more than what makes either end give the other up. Oracle: the tokens and log
// probabilities of before, to the last bit.

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "daemon/cluster/cluster_protocol.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/joined_process.h"

namespace afd::test {
namespace {

// `before`: a command that runs another, which is to run it.
bool run_ip(const std::vector<std::string>& arguments,
            const std::vector<std::string>& before = {}) {
    std::vector<std::string> command = before;
    command.insert(command.end(), {"/bin/sh", "-c", "exec ip \"$@\" 2>/dev/null", "ip"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, make_directory()).exit_status == 0;
}

// Two ends of one wire: the leader's here, the host's in a namespace of its own.
class Wire {
  public:
    Wire() {
        is_there_ =
            run_ip({"netns", "add", name_}) &&
            run_ip({"link", "add", device_, "type", "veth", "peer", "name", there_}) &&
            run_ip({"link", "set", there_, "netns", name_}) &&
            run_ip({"addr", "add", address() + "/30", "dev", device_}) &&
            run_ip({"link", "set", device_, "up"}) &&
            run_ip({"link", "set", there_, "name", device_}, in_namespace()) &&
            run_ip({"addr", "add", host_address() + "/30", "dev", device_}, in_namespace()) &&
            run_ip({"link", "set", device_, "up"}, in_namespace()) &&
            run_ip({"link", "set", "lo", "up"}, in_namespace());
    }
    ~Wire() {
        run_ip({"link", "del", device_});
        run_ip({"netns", "del", name_});
    }
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    bool is_there() const { return is_there_; }
    std::string address() const { return address_of(1); }
    std::string host_address() const { return address_of(2); }
    // One name at either end: UCX looks for devices in /sys, which is that of the leader's side.
    const std::string& device() const { return device_; }
    // Neither `ip netns exec` nor `ip -n`, which mount a /sys of their own and fail under a root
    // that is no mount.
    std::vector<std::string> in_namespace() const {
        return {"/usr/bin/nsenter", "--net=/run/netns/" + name_};
    }

    void cut_for(std::chrono::milliseconds time) const {
        ASSERT_TRUE(run_ip({"link", "set", device_, "down"}));
        std::this_thread::sleep_for(time);
        ASSERT_TRUE(run_ip({"link", "set", device_, "up"}));
    }

  private:
    // 198.18.0.0/15 is for tests, and nobody routes it (RFC 2544). Four addresses for each process:
    // others may run beside this one.
    static std::string address_of(uint32_t place) {
        const uint32_t offset = static_cast<uint32_t>(getpid()) % (1U << 15) * 4 + place;
        return "198." + std::to_string(18 + (offset >> 16)) + "." +
               std::to_string(offset >> 8 & 0xff) + "." + std::to_string(offset & 0xff);
    }

    const std::string name_ = "afd" + std::to_string(getpid());
    const std::string device_ = "afdl" + std::to_string(getpid());
    const std::string there_ = "afdh" + std::to_string(getpid());
    bool is_there_ = false;
};

class NetworkHosts : public testing::Test {
  protected:
    NetworkHosts() {
        EXPECT_TRUE(wire_.is_there());
        leader_ = std::make_unique<Instance>(std::vector<std::string>{"--transport",
                                                                      "ucx",
                                                                      "--ucx-devices",
                                                                      wire_.device(),
                                                                      "--ucx-host",
                                                                      wire_.address(),
                                                                      "--cluster-listen",
                                                                      wire_.address() + ":0",
                                                                      "--cluster-dir",
                                                                      certificates_,
                                                                      "--attention-workers",
                                                                      "2",
                                                                      "--attention-hosts",
                                                                      "local,b",
                                                                      "--ffn-workers",
                                                                      "2",
                                                                      "--ffn-hosts",
                                                                      "local,b"});
        host_ = std::make_unique<JoinedProcess>(
            JoinedProcess::Options{.name = "b",
                                   .certificates = certificates_,
                                   .address = join_address(*leader_, wire_.address()),
                                   .device = wire_.device(),
                                   .before = wire_.in_namespace()});
        leader_->wait_ready();
    }

    void expect_same_bits_through_a_cut(std::chrono::milliseconds time) {
        const auto expected = leader_->connect().generate(long_request(kTokens));
        ASSERT_TRUE(expected.ok()) << expected.error().message;
        BackgroundGeneration one(*leader_, long_request(kTokens));
        BackgroundGeneration other(*leader_, long_request(kTokens));
        one.wait_for_tokens(20);
        other.wait_for_tokens(20);
        wire_.cut_for(time);
        for (BackgroundGeneration* generation : {&one, &other}) {
            const auto found = generation->finish();
            ASSERT_TRUE(found.ok()) << found.error().message;
            EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
            EXPECT_EQ(found.value().logprobs, expected.value().logprobs);
        }
    }

    static constexpr uint32_t kTokens = 400;
    const Wire wire_;
    const std::string certificates_ = make_certificates({"b"});
    std::unique_ptr<Instance> leader_;
    std::unique_ptr<JoinedProcess> host_;
};

TEST_F(NetworkHosts, ShortCutsCostTime) {
    expect_same_bits_through_a_cut(std::chrono::milliseconds(1000));
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(NetworkHosts, AHostThatComesBackAfterItWasGivenUpJoinsAgain) {
    expect_same_bits_through_a_cut(std::chrono::milliseconds(2 * daemon::kSilentMs));
    host_->wait_for_log("nothing was heard of it for 5000 ms; its worker ends");
    EXPECT_EQ(leader_->stop(), 0);
}

}  // namespace
}  // namespace afd::test

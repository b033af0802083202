// SPDX-License-Identifier: Apache-2.0
//
// Workers on other hosts: one afdd leads, `afdd --join` runs workers for it. The hosts are
// processes of this machine, which share nothing but loopback.
//
// Goal: several hosts give what one gives, whatever happens to their processes. Oracle: the tokens
// and log probabilities of an instance of one host, or of before, to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/config/listen_address.h"
#include "daemon/tcp/tcp_socket.h"
#include "model/family/model_files.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/free_port.h"
#include "tests/integration/joined_process.h"
#include "tests/integration/spawned_program.h"
#include "tests/integration/workload.h"
#include "tests/notify_socket.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> operator+(std::vector<std::string> flags,
                                   const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

// The test model but for one bit, of which a sample of its bytes has none.
std::string with_one_bit_flipped() {
    namespace fs = std::filesystem;
    const std::string directory = make_directory() + "/model";
    fs::copy(test_model(), directory, fs::copy_options::recursive);
    const auto changed = model::ModelFiles::open(directory).value();
    const model::TensorInfo* largest = changed.tensors().list().front();
    for (const model::TensorInfo* tensor : changed.tensors().list()) {
        if (tensor->end - tensor->begin > largest->end - largest->begin) largest = tensor;
    }
    // One file holds them all.
    const std::string& path = changed.tensors().files().at(0).path();
    fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
    std::fstream weights(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto offset = static_cast<std::streamoff>((2 * largest->begin + largest->end) / 3);
    weights.seekg(offset);
    const char byte = static_cast<char>(weights.get() ^ 1);
    weights.seekp(offset);
    weights.put(byte).flush();
    EXPECT_TRUE(weights.good());
    EXPECT_EQ(model::ModelFiles::open(directory).value().identity(),
              model::ModelFiles::open(test_model()).value().identity());
    return directory;
}

// A leader and the hosts b and c.
class JoinedHosts : public testing::Test {
  protected:
    void start(const std::vector<std::string>& flags, const std::vector<std::string>& names) {
        leader_ =
            std::make_unique<Instance>(leader_flags(certificates_, lasting_address()) + flags);
        address_ = join_address(*leader_);
        for (const std::string& name : names) hosts_.push_back(join(name));
        leader_->wait_ready();
    }

    std::unique_ptr<JoinedProcess> join(const std::string& name,
                                        const std::vector<std::string>& flags = {}) const {
        return std::make_unique<JoinedProcess>(JoinedProcess::Options{
            .name = name, .certificates = certificates_, .address = address_, .flags = flags});
    }

    static constexpr uint32_t kTokens = 400;
    const std::string certificates_ = make_certificates({"b", "c"});
    std::string address_;
    std::unique_ptr<Instance> leader_;
    std::vector<std::unique_ptr<JoinedProcess>> hosts_;
};

TEST_F(JoinedHosts, GiveTheBitsOfOneHost) {
    const auto requests = mixed_requests(12, 512, 7);
    Instance alone;
    alone.wait_ready();
    const auto expected = run_one_after_another(alone, requests);
    EXPECT_EQ(alone.stop(), 0);
    start({"--attention-workers",
           "2",
           "--ffn-workers",
           "3",
           "--attention-hosts",
           "local,b",
           "--ffn-hosts",
           "b,c,local"},
          {"b", "c"});
    expect_same_bits(expected, run_one_after_another(*leader_, requests), "one by one");
    expect_same_bits(expected, run_all_at_once(*leader_, requests), "all at once");
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: machines of which one is the better serve together, in what both can run. Oracle: an
// instance of one host in that class; the host is told nothing of it.
TEST_F(JoinedHosts, ServeInANumericClassThatIsAskedFor) {
    const std::vector<std::string> portable = {"--numeric-class", "portable"};
    const auto requests = mixed_requests(6, 512, 7);
    Instance alone(portable);
    alone.wait_ready();
    const auto expected = run_one_after_another(alone, requests);
    EXPECT_EQ(alone.stop(), 0);
    start(portable + std::vector<std::string>{"--attention-workers",
                                              "2",
                                              "--ffn-workers",
                                              "2",
                                              "--attention-hosts",
                                              "local,b",
                                              "--ffn-hosts",
                                              "local,b"},
          {"b"});
    EXPECT_THAT(leader_->status().numeric_class(), testing::StartsWith("portable/"));
    expect_same_bits(expected, run_all_at_once(*leader_, requests), "in the class portable");
    EXPECT_EQ(leader_->stop(), 0);
}

// What the leader shows is the worker's: that it counts, and where it runs.
TEST_F(JoinedHosts, AreShownInTheStatus) {
    start({"--ffn-hosts", "b"}, {"b"});
    ASSERT_TRUE(leader_->connect().generate(long_request(40)).ok());
    leader_->wait_for("what the worker of b counts is seen", [](const client::Status& status) {
        return status.workers(1).num_rounds() > 0;
    });
    const client::Status status = leader_->status();
    EXPECT_EQ(status.workers(0).host(), "");
    EXPECT_EQ(status.workers(1).host(), "b");
    ASSERT_EQ(status.hosts_size(), 1);
    EXPECT_EQ(status.hosts(0).name(), "b");
    EXPECT_THAT(status.hosts(0).address(), HasSubstr("127.0.0.1:"));
    EXPECT_GT(status.hosts(0).num_cores(), 0U);
    EXPECT_GT(status.hosts(0).memory_bytes(), 0U);
    leader_->wait_for("the link to b is measured", [](const client::Status& now) {
        return now.workers(0).links_size() == 1 && now.workers(0).links(0).bytes_per_s() > 0;
    });
    const Outcome shown = leader_->afdctl({"status"});
    EXPECT_THAT(shown.output, HasSubstr("attention 0  ffn 0  local  b        open "));
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(JoinedHosts, KilledWorkersAndStandInsAreReplacedAndTheBitsAreTheSame) {
    start({"--attention-hosts", "b", "--ffn-workers", "2", "--ffn-hosts", "b,c"}, {"b", "c"});
    const auto kill_workers_of = [&](const JoinedProcess& host) {
        const std::vector<pid_t> killed = host.worker_pids();
        for (const pid_t pid : killed) send_signal(pid, SIGKILL);
        leader_->wait_for("the host has other workers", [&](const client::Status&) {
            const std::vector<pid_t> now = host.worker_pids();
            return now.size() == killed.size() && std::ranges::none_of(now, [&](pid_t pid) {
                       return std::ranges::find(killed, pid) != killed.end();
                   });
        });
        leader_->wait_all_workers_ready();
    };
    expect_same_bits_through(*leader_,
                             {[&] { kill_workers_of(*hosts_[0]); },
                              [&] { kill_workers_of(*hosts_[1]); },
                              [&] { leader_->replace_worker("ffn", 0, SIGKILL); },
                              [&] { leader_->replace_worker("attention", 0, SIGKILL); }});
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: a worker that a signal stops on its host is shown and replaced as one of the leader's own.
// Method: SIGSTOP while nobody needs it, and amid a request, which nothing else would end. Oracle:
// the status, the bits of before, and the log, which blames no network.
TEST_F(JoinedHosts, AWorkerThatIsStoppedOnItsHostIsReplacedAndTheBitsAreTheSame) {
    start({"--ffn-hosts", "b", "--stop-timeout-ms", "1000", "--hang-timeout-ms", "0"}, {"b"});
    const auto expected = leader_->connect().generate(long_request(kTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const pid_t stopped = hosts_[0]->worker_pids().at(0);
    const auto wait_until_it_is = [&](const std::string& state) {
        leader_->wait_for("the worker of b is " + state, [&](const client::Status& status) {
            return status.workers(1).state() == state;
        });
    };
    send_signal(stopped, SIGSTOP);
    wait_until_it_is("stopped");
    send_signal(stopped, SIGCONT);
    wait_until_it_is("ready");
    BackgroundGeneration running(*leader_, long_request(kTokens));
    running.stop_amid(20, stopped);
    leader_->wait_for_log(
        "a signal stopped it, and somebody has waited for it for stop_timeout_ms");
    expect_same_generation(expected.value(), running.finish());
    leader_->wait_all_workers_ready();
    EXPECT_NE(hosts_[0]->worker_pids().at(0), stopped);
    EXPECT_THAT(leader_->log(), Not(HasSubstr("firewall")));
    EXPECT_EQ(leader_->stop(), 0);
}

TEST_F(JoinedHosts, AHostThatIsKilledIsWaitedForAndTheBitsAreTheSame) {
    start({"--ffn-workers", "2", "--ffn-hosts", "local,b"}, {"b"});
    const auto lose_host = [&] {
        hosts_[0]->signal(SIGKILL);
        EXPECT_EQ(hosts_[0]->wait_exit(), 128 + SIGKILL);
        leader_->wait_for("the host is missed", [](const client::Status& status) {
            return status.hosts(0).address().empty() && status.state() == "failed";
        });
        EXPECT_THAT(leader_->status().reason(),
                    HasSubstr("ffn worker 1 waits for host 'b' to join"));
        hosts_[0] = join("b");
        leader_->wait_all_workers_ready();
    };
    expect_same_bits_through(*leader_, {lose_host});
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: replica_choice = host saves the way to another host. Oracle: what the links of the status
// say was sent; the bits of before.
TEST_F(JoinedHosts, UseTheReplicasOfTheirOwn) {
    const std::vector<std::string> both = {"--attention-workers",
                                           "2",
                                           "--attention-hosts",
                                           "local,b",
                                           "--ffn-workers",
                                           "2",
                                           "--ffn-hosts",
                                           "local,b"};
    const auto requests = mixed_requests(12, 512, 7);
    start(both, {"b"});
    const auto expected = run_all_at_once(*leader_, requests);
    EXPECT_EQ(leader_->stop(), 0);
    hosts_.clear();
    start(both +
              std::vector<std::string>{
                  "--expert-placement", "replicas:2", "--replica-choice", "host"},
          {"b"});
    expect_same_bits(expected, run_all_at_once(*leader_, requests), "near replicas");
    leader_->wait_for("the links are told of", [](const client::Status& status) {
        return status.workers(0).links_size() == 2 && status.workers(1).links_size() == 2 &&
               status.workers(0).links(0).bytes_sent() > 0 &&
               status.workers(1).links(1).bytes_sent() > 0;
    });
    const client::Status status = leader_->status();
    EXPECT_EQ(status.workers(0).links(1).bytes_sent(), 0U);
    EXPECT_EQ(status.workers(1).links(0).bytes_sent(), 0U);
    EXPECT_EQ(leader_->stop(), 0);
}

// Requests run on, and new ones are taken, for as long as it is away. Its stand-in is killed, too,
// while the worker goes on on its host, which nobody hears of any more (R16).
TEST_F(JoinedHosts, AHostIsNotMissedWhereAnotherHasItsExperts) {
    start({"--attention-workers",
           "2",
           "--ffn-workers",
           "2",
           "--ffn-hosts",
           "local,b",
           "--expert-placement",
           "replicas:2",
           "--stop-timeout-ms",
           "0"},
          {"b"});
    const auto requests = mixed_requests(12, 512, 7);
    const auto expected = run_one_after_another(*leader_, requests);
    const auto expected_long = leader_->connect().generate(long_request(kTokens));
    ASSERT_TRUE(expected_long.ok()) << expected_long.error().message;
    for (const bool is_host_lost : {false, true}) {
        BackgroundGeneration running(*leader_, long_request(kTokens));
        // Whatever becomes of the host, the request needs one of them.
        const std::vector<pid_t> attention = leader_->worker_pids("attention");
        BackgroundGeneration::stop_amid({&running}, 20, attention);
        if (is_host_lost) {
            hosts_[0]->signal(SIGKILL);
            EXPECT_EQ(hosts_[0]->wait_exit(), 128 + SIGKILL);
        } else {
            send_signal(leader_->worker_pids("ffn")[1], SIGKILL);
        }
        for (const pid_t pid : attention) send_signal(pid, SIGCONT);
        if (is_host_lost) {
            leader_->wait_for("the host is missed", [](const client::Status& status) {
                return status.hosts(0).address().empty();
            });
        }
        expect_same_generation(expected_long.value(), running.finish());
        expect_same_bits(expected, run_all_at_once(*leader_, requests), "without the host");
        if (!is_host_lost) leader_->wait_all_workers_ready();
    }
    // Its worker is missed once the leader tries to start it again, after a pause.
    leader_->wait_for("the host's worker is missed",
                      [](const client::Status& status) { return status.state() == "degraded"; });
    hosts_[0] = join("b");
    leader_->wait_all_workers_ready();
    expect_same_bits(expected, run_all_at_once(*leader_, requests), "with it again");
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: nobody gets the port of a leader while the next one is on its way. Method: some ports.
// Oracle: they differ, and the kernel hands out none of them.
TEST(FreePort, IsNoneThatAConnectionGets) {
    const int handed_out = std::stoi(read_text("/proc/sys/net/ipv4/ip_local_port_range"));
    std::set<int> ports;
    for (int i = 0; i < 5; ++i) ports.insert(free_port());
    EXPECT_EQ(ports.size(), 5U);
    EXPECT_GT(*ports.begin(), 0);
    EXPECT_LT(*ports.rbegin(), handed_out);
}

TEST_F(JoinedHosts, AHostIsThereForTheNextLeader) {
    start({"--ffn-hosts", "b"}, {"b"});
    leader_->signal(SIGKILL);
    leader_->wait_exit();
    // One whose worker there is another one.
    leader_ = std::make_unique<Instance>(
        leader_flags(certificates_, address_) +
        std::vector<std::string>{"--ffn-workers", "2", "--ffn-hosts", "local,b"});
    leader_->wait_ready();
    EXPECT_TRUE(leader_->connect().generate(long_request(40)).ok());
    // Asked to end, it leaves the leader waiting.
    hosts_[0]->signal(SIGTERM);
    EXPECT_EQ(hosts_[0]->wait_exit(), 0);
    leader_->signal(SIGTERM);
    EXPECT_EQ(leader_->wait_exit(), 0);
}

// Goal: a host does not pack for the next leader what it had for the one before. Method: the leader
// is killed, and another comes. Oracle: what the host's afdd has mapped while no worker runs, and
// what the next worker says of its experts.
TEST_F(JoinedHosts, AHostKeepsItsExpertsForTheNextLeader) {
    start({"--ffn-hosts", "b"}, {"b"});
    const auto has_mapped = [this] {
        const std::string maps = read_text("/proc/" + std::to_string(hosts_[0]->pid()) + "/maps");
        return maps.find(".experts") != std::string::npos;
    };
    EXPECT_TRUE(has_mapped());
    leader_->signal(SIGKILL);
    leader_->wait_exit();
    wait_until("the workers end with the leader", [&] { return hosts_[0]->worker_pids().empty(); });
    EXPECT_TRUE(has_mapped());
    const size_t num_bytes_before = hosts_[0]->log().size();
    leader_ = std::make_unique<Instance>(leader_flags(certificates_, address_) +
                                         std::vector<std::string>{"--ffn-hosts", "b"});
    leader_->wait_ready();
    EXPECT_THAT(hosts_[0]->log().substr(num_bytes_before),
                HasSubstr(" were there, 0 packed now, 0 in private memory"));
    EXPECT_TRUE(leader_->connect().generate(long_request(40)).ok());
    EXPECT_EQ(leader_->stop(), 0);
}

// Longer than a round may take, which they have not begun.
TEST_F(JoinedHosts, RequestsWaitForTheHostsThatAreToJoin) {
    leader_ = std::make_unique<Instance>(
        leader_flags(certificates_) +
        std::vector<std::string>{"--ffn-hosts", "b", "--round-timeout-ms", "4000"});
    address_ = join_address(*leader_);
    leader_->wait_for("the attention worker is ready", [](const client::Status& status) {
        return status.workers(0).state() == "ready";
    });
    BackgroundGeneration early(*leader_, long_request(40));
    leader_->wait_for("the request waits",
                      [](const client::Status& status) { return status.num_queued() == 1; });
    std::this_thread::sleep_for(std::chrono::milliseconds(6000));
    const auto host = join("b");
    const auto found = early.finish();
    EXPECT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: a host is a service with a watchdog, too. Method: the test is its service manager, and the
// leader comes to its end.
TEST_F(JoinedHosts, TellTheirManagersOfTheirLives) {
    NotifySocket manager;
    leader_ = std::make_unique<Instance>(leader_flags(certificates_) +
                                         std::vector<std::string>{"--ffn-hosts", "b"});
    JoinedProcess host(
        {.name = "b",
         .certificates = certificates_,
         .address = join_address(*leader_),
         .before = {"/usr/bin/env", "NOTIFY_SOCKET=" + manager.path(), "WATCHDOG_USEC=400000"}});
    EXPECT_THAT(manager.wait_for("READY=1"), HasSubstr("STATUS=joined leader at "));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1");
    host.signal(SIGHUP);
    EXPECT_THAT(manager.wait_for("RELOADING=1"), HasSubstr("MONOTONIC_USEC="));
    EXPECT_EQ(manager.wait_for("READY=1"), "READY=1");
    leader_->signal(SIGKILL);
    leader_->wait_exit();
    EXPECT_THAT(manager.wait_for("STATUS="), HasSubstr("STATUS=waiting for its leader: "));
    host.signal(SIGTERM);
    EXPECT_THAT(manager.wait_for("STOPPING=1"), HasSubstr("EXTEND_TIMEOUT_USEC="));
    EXPECT_EQ(host.wait_exit(), 0);
}

TEST_F(JoinedHosts, WhoCannotJoinHearsWhyAndSoDoesTheLeader) {
    leader_ = std::make_unique<Instance>(leader_flags(certificates_) +
                                         std::vector<std::string>{"--ffn-hosts", "b"});
    address_ = join_address(*leader_);
    const auto expect_refused = [&](JoinedProcess& host, const std::string& why) {
        EXPECT_EQ(host.wait_exit(), 2);
        EXPECT_THAT(host.log(), HasSubstr(why));
        EXPECT_THAT(leader_->log(), HasSubstr(why));
    };
    expect_refused(*join("c"), "host 'c' is in none of the lists attention_hosts and ffn_hosts");
    const std::string other = quantised_model({"--experts", "int8"});
    expect_refused(*join("b", {"--model", other}), "host 'b' has model ");
    expect_refused(*join("b", {"--model", with_one_bit_flipped()}),
                   "host 'b' has other bits of the same model: the digest of its weights is ");
    // Another CA: neither end believes the other.
    JoinedProcess stranger(
        {.name = "b", .certificates = make_certificates({"b"}), .address = address_});
    stranger.wait_for_log("certificate is signed by another CA");
    leader_->wait_for_log("the peer refused our certificate");
    EXPECT_EQ(leader_->status().state(), "starting");
    EXPECT_EQ(leader_->status().reason(), "ffn worker 0 waits for host 'b' to join");
    // And one that may still can.
    const auto host = join("b");
    leader_->wait_ready();
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: a host whose share does not fit says so in one line, as does its leader, however often it
// comes. Method: KV caches that no machine holds, on a host alone; the leader has none. Oracle: the
// lines of both, the exit code, and that no worker was asked for.
TEST_F(JoinedHosts, AHostWithTooLittleMemoryIsRefusedInOneLine) {
    leader_ = std::make_unique<Instance>(
        leader_flags(certificates_) +
        std::vector<std::string>{
            "--attention-workers", "2", "--attention-hosts", "b", "--kv-tokens", "2147483648"});
    address_ = join_address(*leader_);
    const std::string why = "host 'b' has no room for its workers: they need ";
    const auto num_lines = [&](const std::string& log) {
        size_t num = 0;
        for (size_t at = log.find(why); at != std::string::npos; at = log.find(why, at + 1)) ++num;
        return num;
    };
    for (int i = 0; i < 3; ++i) {
        const auto host = join("b");
        EXPECT_EQ(host->wait_exit(), 4);
        EXPECT_EQ(num_lines(host->log()), 1U);
        EXPECT_THAT(host->log(), HasSubstr("KV caches of 2 attention workers "));
        EXPECT_THAT(host->log(), HasSubstr("lower attention_workers or kv_tokens"));
    }
    EXPECT_EQ(num_lines(leader_->log()), 1U) << leader_->log();
    EXPECT_THAT(leader_->log(), Not(HasSubstr("host 'b' has joined")));
    EXPECT_EQ(leader_->status().state(), "starting");
    EXPECT_THAT(leader_->status().reason(), HasSubstr("waits for host 'b' to join"));
}

// As those of an instance before this one that has not ended yet.
TEST_F(JoinedHosts, AHostWhosePortsAreTakenTriesAgain) {
    leader_ = std::make_unique<Instance>(leader_flags(certificates_) +
                                         std::vector<std::string>{"--ffn-hosts", "b"});
    address_ = join_address(*leader_);
    daemon::ListenAddress taken{.host = "127.0.0.1", .port = 0};
    auto other = daemon::listen_tcp(taken, "test");
    ASSERT_TRUE(other.ok()) << other.error().message;
    const std::string port = std::to_string(taken.port);
    const auto host = join("b", {"--host-ports", port + "-" + port});
    host->wait_for_log("each of these ports of 127.0.0.1 is taken; name more; trying again");
    other.value().reset();
    host->wait_for_log("the leader finds this host at 127.0.0.1:" + port);
}

TEST_F(JoinedHosts, WhatCannotBeIsRefusedAndSaid) {
    const auto refusal = [&](const std::vector<std::string>& flags) {
        const std::vector<std::string> start = {
            program("afdd"), "--model", test_model(), "--instance", fresh_instance_name()};
        const Outcome outcome = run_program(start + flags, make_directory());
        EXPECT_EQ(outcome.exit_status, 2);
        return outcome.output;
    };
    EXPECT_THAT(refusal({"--ffn-hosts", "b"}), HasSubstr("talk over transport = 'ucx'"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ffn-hosts", "b"}),
                HasSubstr("cluster_dir is not set"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--ffn-hosts", "b", "--cluster-dir", "/nowhere"}),
                HasSubstr("cluster_listen is not set"));
    EXPECT_THAT(refusal(leader_flags("/nowhere") + std::vector<std::string>{"--ffn-hosts", "b"}),
                HasSubstr("/nowhere"));
    EXPECT_THAT(refusal({"--ffn-hosts", "B!"}), HasSubstr("'B!' is no name of a host"));
    EXPECT_THAT(refusal({"--ffn-hosts", "leader"}), HasSubstr("write 'local'"));
    EXPECT_THAT(refusal({"--transport", "ucx", "--join", "somewhere", "--cluster-dir", "d"}),
                HasSubstr("must be HOST:PORT"));
    // A leader that is not there is waited for.
    address_ = "127.0.0.1:9";
    JoinedProcess lonely({.name = "b", .certificates = certificates_, .address = address_});
    lonely.wait_for_log("leader at 127.0.0.1:9: the connection failed: Connection refused; trying");
    lonely.signal(SIGTERM);
    EXPECT_EQ(lonely.wait_exit(), 0);
    EXPECT_THAT(lonely.log(), HasSubstr("ending; no leader is joined"));
}

// The first is no address to afdd, and numbers of an old form to the system's resolver; the second
// is nobody's (RFC 6761).
TEST_F(JoinedHosts, FindTheirLeaderByName) {
    leader_ = std::make_unique<Instance>(leader_flags(certificates_) +
                                         std::vector<std::string>{"--ffn-hosts", "b"});
    const std::string numbers = join_address(*leader_);
    address_ = "0x7f000001" + numbers.substr(numbers.rfind(':'));
    const auto host = join("b");
    leader_->wait_ready();
    host->wait_for_log("joined instance '" + leader_->name() + "' of leader at " + address_ + ":");
    address_ = "no-such-host.invalid:7411";
    const auto lost = join("c");
    lost->wait_for_log("the name of host 'no-such-host.invalid' is not known: ");
    EXPECT_EQ(leader_->stop(), 0);
}

}  // namespace
}  // namespace afd::test

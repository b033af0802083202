// SPDX-License-Identifier: Apache-2.0
//
// Leaders and hosts that end while requests run, and who may not join any more.
//
// Goal: a request is answered with the bits of before, or ends with an error that says what
// happened; nothing waits for ever. Method: SIGKILL and SIGTERM in the middle of requests. Oracle:
// the tokens and log probabilities of before, to the last bit; the texts of errors and logs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

#include "clients/afdctl/certificate.h"
#include "daemon/cluster/cluster_protocol.h"
#include "daemon/tcp/tcp_socket.h"
#include "tests/daemon/cluster/raw_tls_peer.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/joined_process.h"
#include "tests/integration/spawned_program.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kTokens = 400;
// Of a request that must not be over before its end comes.
constexpr uint32_t kLongTokens = 900;

// A leader and the host b.
class HostsThatEnd : public testing::Test {
  protected:
    void start(const std::vector<std::string>& flags) {
        lead(lasting_address(), flags);
        address_ = join_address(*leader_);
        host_ = join();
        leader_->wait_ready();
    }
    void start_with_both_roles_on_each() {
        start({"--attention-workers",
               "2",
               "--attention-hosts",
               "local,b",
               "--ffn-workers",
               "2",
               "--ffn-hosts",
               "local,b",
               "--stop-timeout-ms",
               "0"});
    }
    void lead(const std::string& address, const std::vector<std::string>& flags) {
        std::vector<std::string> all = leader_flags(certificates_, address);
        all.insert(all.end(), flags.begin(), flags.end());
        leader_ = std::make_unique<Instance>(all);
    }
    std::unique_ptr<JoinedProcess> join() const {
        return std::make_unique<JoinedProcess>(JoinedProcess::Options{
            .name = "b", .certificates = certificates_, .address = address_});
    }
    client::Generation undisturbed() const {
        auto done = leader_->connect().generate(long_request(kTokens));
        EXPECT_TRUE(done.ok()) << done.error().message;
        return std::move(done).value();
    }
    void expect(const client::Generation& expected, const Result<client::Generation>& found) const {
        ASSERT_TRUE(found.ok()) << found.error().message << "\n" << leader_->log();
        EXPECT_EQ(found.value().token_ids, expected.token_ids);
        EXPECT_EQ(found.value().logprobs, expected.logprobs);
    }
    // Two requests run, and stand still until go_on(). REQUIRES: --stop-timeout-ms 0.
    void begin_and_halt() {
        ffn_ = leader_->worker_pids("ffn").at(0);
        for (auto& each : running_) {
            each = std::make_unique<BackgroundGeneration>(*leader_, long_request(kTokens));
        }
        BackgroundGeneration::stop_amid({running_[0].get(), running_[1].get()}, 20, ffn_);
    }
    void go_on() const {
        for (const auto& each : running_) EXPECT_LT(each->num_tokens(), kTokens) << "it was over";
        send_signal(ffn_, SIGCONT);
    }
    void expect_both(const client::Generation& expected) const {
        for (const auto& each : running_) expect(expected, each->finish());
    }
    // Kills the leader amid a request that is to be resumed.
    Result<client::Generation> generate_and_end_leader(client::Resume& resume) const {
        client::Generate request = long_request(kLongTokens);
        request.set_resumable_ms(60'000);
        const pid_t ffn = host_->worker_pids().at(0);
        bool has_ended = false;
        Result<client::Generation> found = Error{Code::kInternal, "not sent"};
        for (int attempt = 0; attempt < kAttemptsToBeInTime && !has_ended; ++attempt) {
            uint32_t num_tokens = 0;
            found = leader_->connect().generate(
                request,
                [&](const client::Chunk& chunk) {
                    const bool is_first = num_tokens < 20 && num_tokens + chunk.num_tokens() >= 20;
                    num_tokens += chunk.num_tokens();
                    if (!is_first) return true;
                    send_signal(ffn, SIGSTOP);
                    has_ended = run_on(*leader_, 1);
                    if (has_ended) leader_->signal(SIGKILL);
                    send_signal(ffn, SIGCONT);
                    return true;
                },
                nullptr,
                client::Client::kGenerateTimeout,
                [&](const client::Accepted& accepted) { resume.set_id(accepted.resume_id()); });
        }
        EXPECT_TRUE(has_ended) << "it was always over before";
        return found;
    }
    void kill_host() const {
        host_->signal(SIGKILL);
        EXPECT_EQ(host_->wait_exit(), 128 + SIGKILL);
    }

    const std::string certificates_ = make_certificates({"b"});
    std::string address_;
    pid_t ffn_ = 0;
    // Declared before the leader, whose end ends them.
    std::array<std::unique_ptr<BackgroundGeneration>, 2> running_;
    std::unique_ptr<Instance> leader_;
    std::unique_ptr<JoinedProcess> host_;
};

// The host outlives its leader, and serves the next one.
TEST_F(HostsThatEnd, TheLeadersEndIsAnErrorAndTheNextOneGivesTheSameBits) {
    const std::vector<std::string> flags = {"--ffn-hosts", "b", "--stop-timeout-ms", "0"};
    start(flags);
    const client::Generation expected = undisturbed();
    client::Resume resume;
    const auto broken = generate_and_end_leader(resume);
    leader_->wait_exit();
    ASSERT_FALSE(broken.ok());
    EXPECT_EQ(broken.error().code, Code::kUnavailable);
    EXPECT_THAT(broken.error().message, HasSubstr("connection to afdd at "));
    host_->wait_for_log("trying again");
    lead(address_, flags);
    leader_->wait_ready();
    const auto lost = leader_->connect().resume(resume);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, Code::kNotFound) << lost.error().message;
    expect(expected, leader_->connect().generate(long_request(kTokens)));
    EXPECT_EQ(leader_->stop(), 0);
}

// Its requests are taken over by the one that is left.
TEST_F(HostsThatEnd, AnAttentionHostThatStaysAwayIsNotNeeded) {
    start({"--attention-workers", "2", "--attention-hosts", "local,b", "--stop-timeout-ms", "0"});
    const client::Generation expected = undisturbed();
    begin_and_halt();
    EXPECT_EQ(leader_->status().workers(1).num_sequences(), 1U);
    kill_host();
    go_on();
    expect_both(expected);
    expect(expected, leader_->connect().generate(long_request(kTokens)));
    leader_->wait_for("the host's worker is missed",
                      [](const client::Status& status) { return status.state() == "degraded"; });
    EXPECT_EQ(leader_->stop(), 0);
}

// With no other to take it over it waits, as long as it may.
TEST_F(HostsThatEnd, TheOnlyAttentionHostIsAwaitedUntilTheDeadline) {
    start({"--attention-hosts", "b", "--stop-timeout-ms", "0"});
    // The first one may wait for links.
    ASSERT_TRUE(leader_->connect().generate(long_request(40)).ok());
    const pid_t ffn = leader_->worker_pids("ffn").at(0);
    client::Generate request = long_request(kLongTokens);
    request.set_timeout_ms(15'000);
    BackgroundGeneration running(*leader_, request);
    running.stop_amid(1, ffn);
    kill_host();
    send_signal(ffn, SIGCONT);
    const auto found = running.finish();
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::kDeadlineExceeded) << found.error().message;
    host_ = join();
    leader_->wait_all_workers_ready();
    EXPECT_TRUE(leader_->connect().generate(long_request(40)).ok());
    EXPECT_EQ(leader_->stop(), 0);
}

// Asked to end, it says so; requests wait for the next of its name.
TEST_F(HostsThatEnd, AHostThatLeavesInOrderAndComesBackChangesNoBit) {
    start_with_both_roles_on_each();
    const client::Generation expected = undisturbed();
    begin_and_halt();
    host_->signal(SIGTERM);
    EXPECT_EQ(host_->wait_exit(), 0);
    leader_->wait_for_log("host 'b' at 127.0.0.1");
    leader_->wait_for_log("has ended in order");
    go_on();
    host_ = join();
    expect_both(expected);
    leader_->wait_all_workers_ready();
    EXPECT_EQ(leader_->stop(), 0);
}

// Goal: where all are stopped together, as in a paused container or a suspended job, nobody has
// waited (R7). Method: SIGSTOP for longer than a silent host is borne, amid requests. Oracle: the
// bits of before from the same processes, and no word of silence.
TEST_F(HostsThatEnd, AllThatWereStoppedTogetherGoOn) {
    start_with_both_roles_on_each();
    const client::Generation expected = undisturbed();
    const auto workers = [this] {
        std::vector<pid_t> pids = host_->worker_pids();
        for (const char* role : {"ffn", "attention"}) {
            for (const pid_t pid : leader_->worker_pids(role)) pids.push_back(pid);
        }
        return pids;
    };
    const std::vector<pid_t> before = workers();
    EXPECT_EQ(before.size(), 6U) << "two of the host, and four of the leader";
    begin_and_halt();
    leader_->signal(SIGSTOP);
    host_->signal(SIGSTOP);
    for (const pid_t pid : before) send_signal(pid, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(daemon::kSilentMs + 1000));
    for (const pid_t pid : before) send_signal(pid, SIGCONT);
    host_->signal(SIGCONT);
    leader_->signal(SIGCONT);
    go_on();
    expect_both(expected);
    EXPECT_EQ(workers(), before);
    EXPECT_THAT(leader_->log() + host_->log(), Not(HasSubstr("nothing was heard")));
    EXPECT_EQ(leader_->stop(), 0);
}

// A certificate of the same CA that has expired yesterday, in place of NAME's.
void expire(const std::string& directory, const std::string& name) {
    constexpr int64_t kDay = 86'400;
    const auto ca = client::Certificate::parse(read_text(directory + "/ca.pem"));
    const auto ca_key = client::PrivateKey::parse(read_text(directory + "/ca.key"));
    const auto key = client::PrivateKey::generate();
    ASSERT_TRUE(ca.ok() && ca_key.ok() && key.ok());
    const int64_t now = std::time(nullptr);
    const auto made = client::Certificate::of_host(
        name, key.value(), {now - 10 * kDay, now - kDay}, ca.value(), ca_key.value());
    ASSERT_TRUE(made.ok()) << made.error().message;
    std::ofstream(directory + "/" + name + ".pem") << made.value().pem();
    const std::string file = directory + "/" + name + ".key";
    std::ofstream(file) << key.value().pem();
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
}

size_t count_of(const std::string& text, const std::string& words) {
    size_t count = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
        ++count;
    }
    return count;
}

// The host's own afdd says so before it connects; a peer that shows one all the same is one line in
// the leader's log, however often it comes.
TEST_F(HostsThatEnd, AnExpiredCertificateIsOneLineOnEitherEnd) {
    ::signal(SIGPIPE, SIG_IGN);
    lead("127.0.0.1:0", {"--ffn-hosts", "b"});
    address_ = join_address(*leader_);
    expire(certificates_, "b");
    host_ = join();
    EXPECT_NE(host_->wait_exit(), 0);
    EXPECT_EQ(count_of(host_->log(), "b.pem: this certificate has expired"), 1U) << host_->log();
    const auto leader = daemon::parse_listen_address(address_).value();
    for (int i = 0; i < 3; ++i) {
        auto socket = daemon::connect_tcp(daemon::socket_address_of(leader)).value();
        const int fd = socket.get();
        daemon::RawTlsPeer peer(
            std::move(socket),
            {.certificate = certificates_ + "/b.pem", .key = certificates_ + "/b.key"});
        pollfd entry{fd, POLLIN | POLLRDHUP, 0};
        const auto deadline = client::Clock::now() + kPatience;
        while ((entry.revents & (POLLRDHUP | POLLHUP)) == 0 && client::Clock::now() < deadline) {
            peer.turn();
            ::poll(&entry, 1, 100);
        }
    }
    leader_->wait_for_log("the peer's certificate has expired");
    EXPECT_EQ(count_of(leader_->log(), "the peer's certificate has expired"), 1U) << leader_->log();
    EXPECT_EQ(leader_->stop(), 0);
}

}  // namespace
}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
//
// Another afdd in the place of the one that serves: under load, with requests that outlive it, and
// with requests that are resumed.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "tests/faults/steady_load.h"
#include "tests/faults/upgrade_fixture.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/footprint.h"
#include "tests/notify_socket.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// What comes next on a connection; fails the test if nothing does.
std::vector<client::Response> next_responses(client::Connection& connection) {
    std::vector<client::Response> responses;
    const auto deadline = client::Clock::now() + kPatience;
    while (responses.empty() && client::Clock::now() < deadline) {
        pollfd ready{connection.fd(), connection.events(), 0};
        poll(&ready, 1, 100);
        static_cast<void>(connection.flush());
        if (const auto received = connection.receive(responses); !received.ok()) {
            ADD_FAILURE() << received.error().message;
            return responses;
        }
    }
    EXPECT_FALSE(responses.empty());
    return responses;
}

// Not an afdd that has just begun, and has no workers yet.
void kill_worker(pid_t pid) {
    std::error_code error;
    const auto file = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
    if (!error && file.filename().string().ends_with("-worker")) send_signal(pid, SIGKILL);
}

// Whose FFN worker may stand still for as long as a test needs.
class UpgradeWithAHalt : public Upgrade {
  protected:
    UpgradeWithAHalt() : Upgrade({"--stop-timeout-ms", "0", "--hang-timeout-ms", "0"}) {}

    void expect_held_was_undisturbed() {
        const auto found = held_->finish();
        ASSERT_TRUE(found.ok()) << found.error().message;
        EXPECT_EQ(found.value().token_ids.size(), kTokens);
        const auto again = instance_.connect().generate(long_request(kTokens));
        ASSERT_TRUE(again.ok()) << again.error().message;
        EXPECT_EQ(found.value().token_ids, again.value().token_ids);
        EXPECT_EQ(found.value().logprobs, again.value().logprobs);
    }
};

TEST_F(Upgrade, AgainAndAgainUnderLoadChangesNoBit) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    Footprint first{};
    for (int i = 0; i < 6; ++i) {
        // Those of a new file, which it reads as it starts.
        installed_.hook.set("export AFD_LOG_LEVEL=" + std::string(i % 2 == 0 ? "debug" : "info"));
        ASSERT_NO_FATAL_FAILURE(expect_upgraded(upgrade()));
        load.wait_for_replies(6);
        if (i == 1) first = footprint_of(instance_.pid());
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    const Footprint last = footprint_of(instance_.pid());
    EXPECT_LE(last.num_descriptors, first.num_descriptors + 2) << descriptors_of(instance_.pid());
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// A kill at any moment, of a worker of the one or of the other.
TEST_F(Upgrade, KillsOfWorkersMeanwhileChangeNoBit) {
    std::minstd_rand random(20261124);
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (int i = 0; i < 6; ++i) {
        const pid_t old_pid = instance_.pid();
        std::future<Outcome> outcome = upgrade_beside();
        for (int kills = 0; kills < 3; ++kills) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % 60));
            // The new one is a child of the old one, and is not a worker.
            std::vector<pid_t> workers;
            for (const pid_t child : children_of(old_pid)) {
                const std::vector<pid_t> of_new = children_of(child);
                workers.insert(workers.end(), of_new.begin(), of_new.end());
                if (of_new.empty()) workers.push_back(child);
            }
            if (!workers.empty()) kill_worker(workers[random() % workers.size()]);
        }
        ASSERT_NO_FATAL_FAILURE(expect_upgraded(outcome.get()));
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    instance_.wait_ready();
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(UpgradeWithAHalt, WhatRunsEndsWhereItRunsAndTheRestGoesToTheNewOne) {
    begin_and_halt();
    const Outcome outcome = upgrade();
    ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
    const pid_t new_pid = serving_pid();
    EXPECT_NE(new_pid, instance_.pid());
    EXPECT_THAT(outcome.output, HasSubstr("; 1 requests end with pid"));
    wait_for_upgrade_text("1 requests and 1 connections are still with the afdd before this one");
    EXPECT_THAT(instance_.afdctl({"status"}).output,
                HasSubstr("upgrade   1 requests and 1 connections"));
    expect_undisturbed_replies();
    const Outcome second = upgrade();
    EXPECT_EQ(second.exit_status, 1);
    EXPECT_THAT(second.output, HasSubstr("the afdd before this one has not ended yet: 1 requests"));
    go_on();
    expect_old_ended(new_pid);
    expect_held_was_undisturbed();
    EXPECT_EQ(instance_.stop(), 0);
}

// Goal: the old one has its 3 s of grace once, also when a worker that nobody needs stands still.
// Oracle: it ends.
TEST_F(UpgradeWithAHalt, AWorkerThatStandsStillHoldsTheOldOneUpNoLongerThanItsGrace) {
    send_signal(ffn_, SIGSTOP);
    ASSERT_NO_FATAL_FAILURE(expect_upgraded(upgrade()));
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// A connection with a request that runs asks for more: that is the new afdd's, and a Cancel of what
// runs is not.
TEST_F(UpgradeWithAHalt, AConnectionThatAsksForMoreMovesWhenItsRequestsHaveEnded) {
    client::Connection connection = instance_.open_connection();
    const auto ask = [&](client::Request request, uint64_t id) {
        request.set_request_id(id);
        ASSERT_TRUE(connection.send(request).ok());
    };
    client::Request runs;
    *runs.mutable_generate() = long_request(kTokens);
    send_signal(ffn_, SIGSTOP);
    ask(runs, 1);
    instance_.wait_for("it runs",
                       [](const client::Status& status) { return status.num_running() == 1; });
    ASSERT_EQ(upgrade().exit_status, 0);
    const pid_t new_pid = serving_pid();
    client::Request more;
    *more.mutable_generate() = long_request(3);
    ask(more, 2);
    client::Request cancel;
    cancel.mutable_cancel()->set_target(1);
    ask(cancel, 3);
    go_on();
    std::vector<client::Response> ends;
    while (ends.size() < 2 && !HasFailure()) {
        for (const client::Response& response : next_responses(connection)) {
            if (response.has_finished() || response.has_error()) ends.push_back(response);
        }
    }
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_EQ(ends[0].request_id(), 1U);
    EXPECT_EQ(ends[0].finished().reason(), client::CANCELLED) << ends[0].DebugString();
    EXPECT_EQ(ends[1].request_id(), 2U);
    EXPECT_EQ(ends[1].finished().num_output_tokens(), 3U) << ends[1].DebugString();
    expect_old_ended(new_pid);
    EXPECT_EQ(instance_.status().num_finished(), 1U) << "the second was the new one's";
    EXPECT_EQ(instance_.stop(), 0);
}

// Its client goes on with the new afdd, in the end with the same reply.
TEST_F(UpgradeWithAHalt, ARequestWhoseClientIsGoneIsResumedWithTheNewOneWhenItHasEnded) {
    client::Generate wish = long_request(kTokens);
    wish.set_resumable_ms(60'000);
    std::string id;
    {
        client::Connection connection = instance_.open_connection();
        client::Request request;
        request.set_request_id(1);
        *request.mutable_generate() = wish;
        send_signal(ffn_, SIGSTOP);
        ASSERT_TRUE(connection.send(request).ok());
        while (id.empty() && !HasFailure()) {
            for (const client::Response& response : next_responses(connection)) {
                if (response.has_accepted()) id = response.accepted().resume_id();
            }
        }
        instance_.wait_for("it runs",
                           [](const client::Status& status) { return status.num_running() == 1; });
    }
    ASSERT_EQ(upgrade().exit_status, 0);
    const pid_t new_pid = serving_pid();
    wait_for_upgrade_text("1 requests and 0 connections");
    const Outcome early = instance_.afdctl({"generate", "--resume", id, "--json"});
    EXPECT_NE(early.exit_status, 0);
    EXPECT_THAT(early.output, HasSubstr("still runs with the afdd before this one"));
    go_on();
    expect_old_ended(new_pid);
    client::Request resume;
    resume.set_request_id(1);
    resume.mutable_resume()->set_id(id);
    client::Connection connection = instance_.open_connection();
    ASSERT_TRUE(connection.send(resume).ok());
    Reply found;
    bool has_ended = false;
    while (!has_ended && !HasFailure()) {
        for (const client::Response& response : next_responses(connection)) {
            note(response, found);
            has_ended |= is_end(response);
        }
    }
    EXPECT_EQ(found, run_one_after_another(instance_, {long_request(kTokens)}).at(0));
    EXPECT_EQ(instance_.stop(), 0);
}

// Whether somebody listens at this address of IPv4 ("127.0.0.1:8000"): others would wait there.
bool accepts_at(const std::string& address) {
    const size_t colon = address.find(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    EXPECT_EQ(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr), 1) << address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool accepts = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
    close(fd);
    return accepts;
}

// Another address for HTTP and another socket behind the upgrade.
class UpgradeOfDoors : public testing::Test {
  protected:
    UpgradeOfDoors() {
        Instance::adopt_orphans();
        installed_.hook.set("export AFD_HTTP=127.0.0.1:0");
        instance_ =
            std::make_unique<Instance>(patient_pair(), "exec " + installed_.file + " \"$@\"; :");
        instance_->wait_ready();
        old_address_ = http_address("127.0.0.1");
        sockets_ = instance_->runtime_directory() + "/afd/";
        old_socket_ = sockets_ + instance_->name() + ".sock";
    }

    // As the log has it.
    std::string http_address(const std::string& host) const {
        const std::string before = "http://" + host + ":";
        const std::string log = instance_->log();
        const size_t at = log.find(before);
        if (at == std::string::npos) return "";
        const size_t port = at + before.size();
        return host + ":" + log.substr(port, log.find_first_not_of("0123456789", port) - port);
    }

    // Returns the new one's pid; 0: it failed.
    pid_t upgrade() const {
        installed_.hook.set("export AFD_HTTP=127.0.0.2:0 AFD_SOCKET=" + sockets_ + "other.sock");
        const Outcome outcome = instance_->afdctl({"upgrade"});
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        const size_t said = outcome.output.rfind("pid ", outcome.output.find(" serves now"));
        return said == std::string::npos ? 0 : std::stoi(outcome.output.substr(said + 4));
    }

    InstalledAfdd installed_;
    std::unique_ptr<Instance> instance_;
    std::string old_address_;
    std::string sockets_;
    std::string old_socket_;
};

// Goal: an address that the new configuration does not name any more is closed. Oracle: who comes
// to the old ones is refused at once.
TEST_F(UpgradeOfDoors, AddressesOfBeforeAreClosed) {
    ASSERT_TRUE(accepts_at(old_address_)) << old_address_;
    ASSERT_TRUE(std::filesystem::is_socket(old_socket_));
    const pid_t new_pid = upgrade();
    ASSERT_GT(new_pid, 0);
    EXPECT_FALSE(accepts_at(old_address_));
    EXPECT_FALSE(std::filesystem::exists(old_socket_));
    EXPECT_TRUE(accepts_at(http_address("127.0.0.2")));
    EXPECT_TRUE(std::filesystem::is_socket(sockets_ + "other.sock"));
    EXPECT_EQ(instance_->wait_exit(), 0);
    instance_->follow(new_pid);
    instance_->signal(SIGTERM);
    EXPECT_EQ(instance_->wait_exit(), 0);
    EXPECT_FALSE(std::filesystem::exists(sockets_ + "other.sock"));
}

// Goal: they are open again when the old one is to serve again. Method: the new one is killed while
// a request of the old one stands still.
TEST_F(UpgradeOfDoors, AddressesOfBeforeAreOpenAgainWhenTheNewOneDies) {
    const pid_t ffn = instance_->worker_pids("ffn").at(0);
    BackgroundGeneration held(*instance_, long_request(600));
    held.stop_amid(5, ffn);
    const pid_t new_pid = upgrade();
    ASSERT_GT(new_pid, 0);
    EXPECT_FALSE(accepts_at(old_address_));
    send_signal(new_pid, SIGKILL);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!accepts_at(old_address_) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(accepts_at(old_address_));
    send_signal(ffn, SIGCONT);
    const auto found = held.finish();
    EXPECT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(instance_->stop(), 0);
}

// Goal: what cannot be is said, with the reason, and the old one serves on. Method: every address
// of this host at the port that the old one has at one of them.
TEST_F(UpgradeOfDoors, AnotherAddressOfTheSamePortIsRefusedWithTheReason) {
    const std::string address = "0.0.0.0" + old_address_.substr(old_address_.find(':'));
    installed_.hook.set("export AFD_HTTP_OPEN=true AFD_HTTP=" + address);
    const Outcome outcome = instance_->afdctl({"upgrade"});
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.output,
                HasSubstr("http = " + address + ": the afdd that runs listens at " + old_address_ +
                          " until the new one serves"));
    EXPECT_THAT(outcome.output, HasSubstr("; this one serves on"));
    EXPECT_TRUE(accepts_at(old_address_));
    instance_->signal(SIGTERM);
    EXPECT_EQ(instance_->wait_exit(), 0);
}

// Goal: one that fails when its workers are ready already costs the old one no door. Method: what
// only the opening of HTTP finds.
TEST_F(UpgradeOfDoors, OneThatFailsBehindItsWorkersClosesNoDoorOfTheOldOne) {
    installed_.hook.set("export AFD_HTTP=0.0.0.0:0");
    const Outcome outcome = instance_->afdctl({"upgrade"});
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("lets other machines in, and there is no API key"));
    EXPECT_THAT(outcome.output, HasSubstr("; this one serves on"));
    EXPECT_TRUE(std::filesystem::is_socket(old_socket_));
    EXPECT_TRUE(accepts_at(old_address_));
    instance_->signal(SIGTERM);
    EXPECT_EQ(instance_->wait_exit(), 0);
}

class UpgradeUnderAManager : public testing::Test {
  protected:
    // With a watchdog.
    std::string under(const NotifySocket& manager) const {
        return "export NOTIFY_SOCKET=" + manager.path() + " WATCHDOG_USEC=2000000";
    }
    static Outcome upgrade(const Instance& instance) { return instance.afdctl({"upgrade"}); }
};

// The manager follows the main process, and believes it alone.
TEST_F(UpgradeUnderAManager, TheManagerHearsWhichProcessItIs) {
    NotifySocket manager;
    Instance::adopt_orphans();
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1"}, under(manager));
    instance.wait_ready();
    const Outcome outcome = upgrade(instance);
    ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
    const std::string new_pid = std::to_string(instance.status().pid());
    std::vector<std::string> said;
    const auto wait_for = [&](const std::string& text) {
        for (int i = 0; i < 200; ++i) {
            said.push_back(manager.next(std::chrono::milliseconds(1000)));
            if (said.back().find(text) != std::string::npos) return true;
        }
        return false;
    };
    EXPECT_TRUE(wait_for("READY=1"));
    EXPECT_TRUE(wait_for("MAINPID=" + new_pid));
    EXPECT_TRUE(wait_for("READY=1")) << "of the new one, behind that";
    EXPECT_TRUE(wait_for("WATCHDOG=1"));
    EXPECT_EQ(instance.wait_exit(), 0);
    instance.follow(std::stoi(new_pid));
    EXPECT_EQ(instance.stop(), 0);
    EXPECT_TRUE(wait_for("STOPPING=1"));
    EXPECT_EQ(manager.num_beside_main(), 0) << "who is not the main process says nothing";
}

// Goal: the old one, which has the part of the main process back, is not ended for its silence.
// Method: the new one is killed while a request of the old one stands still; the manager believes
// whom it does with our unit. Oracle: it hears the old one's watchdog.
TEST_F(UpgradeUnderAManager, TheManagerHearsOfTheOldOneWhenTheNewOneHasDied) {
    NotifySocket manager(notify_access_of(AFD_DEMO_MODEL "/../deploy/afdd.service"));
    Instance::adopt_orphans();
    Instance instance(patient_pair(), under(manager));
    instance.wait_ready();
    ASSERT_NE(manager.wait_for("READY=1"), "");
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    BackgroundGeneration held(instance, long_request(600));
    held.stop_amid(5, ffn);
    const Outcome outcome = upgrade(instance);
    ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
    const auto new_pid = static_cast<pid_t>(instance.status().pid());
    ASSERT_NE(new_pid, instance.pid());
    ASSERT_NE(manager.wait_for("READY=1"), "");
    EXPECT_EQ(manager.main_pid(), new_pid);
    send_signal(new_pid, SIGKILL);
    EXPECT_NE(manager.wait_for("MAINPID=" + std::to_string(instance.pid())), "");
    EXPECT_NE(manager.wait_for("WATCHDOG=1"), "");
    EXPECT_EQ(manager.main_pid(), instance.pid());
    send_signal(ffn, SIGCONT);
    const auto found = held.finish();
    EXPECT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test

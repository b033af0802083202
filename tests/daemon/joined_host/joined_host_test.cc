// SPDX-License-Identifier: Apache-2.0
//
// A host that has joined, in a process of its own, over fake workers. The test is its leader, and
// the stand-ins of that one.
//
// Goal: whose plan of cores is another one after the leader was started again gives its workers
// these cores, and gives up the others, however the processes of before and the next ones overlap.
// Method: the next leader asks for its workers at once, while all of before still run, so that at
// no moment the host has none. Oracle: the cores in the Welcomes that the workers get, and what
// another instance sees of the claims, both against the plan of a host that never had another one.
//
// Goal: its workers have the devices that the leader's transports have, whatever its own are.
// Oracle: choose_ucx_network() of these transports, in the Welcomes.
#include "daemon/joined_host/joined_host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/instance/configured_welcome.h"
#include "daemon/instance/core_claims.h"
#include "daemon/program/logging.h"
#include "proto/socket_path.h"
#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/scoped_variable.h"

namespace afd::daemon {
namespace {

class JoinedHostTest : public ChannelFixture {
  protected:
    JoinedHostTest() : listener_(listen_on_loopback(address_)) {
        config_.model = AFD_DEMO_MODEL;
        config_.instance = "joined_host_" + std::to_string(::getpid());
        config_.join = "127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
        config_.cluster_dir = files().path();
        config_.host_name = "node1";
        config_.transport = Transport::kUcx;
        config_.ucx_transports = "tcp";
        config_.ucx_devices = config_.ucx_host = config_.numeric_class = config_.pin = "auto";
        config_.attention_workers = 3;
        config_.ffn_workers = 1;
        config_.attention_threads = config_.ffn_threads = 1;
        config_.micro_batch_size = 8;
        config_.kv_tokens = 640;
        config_.max_sequences = 4;
        config_.weight_cache = config_.log_level = "off";
        config_.log_format = "text";
        cores_ = allowed_cpus();
        cores_.resize(std::min<size_t>(2, cores_.size()));
        start();
    }
    ~JoinedHostTest() override {
        ::kill(host_pid_, SIGTERM);
        int status = 0;
        EXPECT_EQ(::waitpid(host_pid_, &status, 0), host_pid_);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }

    // The leader is another one from now on. The stand-ins of the one before have not ended yet.
    void join(uint32_t num_attention_workers, const std::string& transports = "tcp") {
        ++instance_id_;
        leader_.reset();
        ASSERT_TRUE(repeat([&] { return accept_host() && (HasFailure() || turn_leader()); }))
            << "it does not join";
        cluster::LeaderMessage answer;
        answer.mutable_joined()->set_instance(config_.instance);
        answer.mutable_joined()->set_num_attention_workers(num_attention_workers);
        answer.mutable_joined()->set_ucx_transports(transports);
        leader_->queue(answer);
        static_cast<void>(turn(*leader_).has_value());
    }

    void end_stand_ins_of_before() {
        std::erase_if(stand_ins_, [&](const StandInEnd& stand_in) {
            return stand_in.instance_id != instance_id_;
        });
    }

    // A stand-in asks for this attention worker.
    void take(uint32_t index) {
        sockaddr_in address = address_;
        address.sin_port = htons(host_port_);
        StandInEnd& stand_in = stand_ins_.emplace_back(
            StandInEnd{.instance_id = instance_id_,
                       .index = index,
                       .channel = channel_of(ClusterChannel::connect(begin_to_connect(address),
                                                                     files().identity("leader"))),
                       .cores = std::nullopt,
                       .devices = ""});
        cluster::StandInMessage message;
        message.mutable_take()->set_role(control::ATTENTION);
        message.mutable_take()->set_index(index);
        *message.mutable_take()->mutable_welcome() = welcome();
        stand_in.channel.queue(message);
    }

    // Turns all until the worker that this leader asks for has said which cores it is given.
    std::string cores_of(uint32_t index) { return said_by(index).cores.value_or("nothing"); }
    // And the devices that UCX may use.
    std::string devices_of(uint32_t index) { return said_by(index).devices; }

    bool turn_until(const std::function<bool()>& holds) {
        return repeat([&] {
            if (++num_turns_ % 64 == 0) beat();
            turn_leader();
            for (StandInEnd& stand_in : stand_ins_) turn_stand_in(stand_in);
            return HasFailure() || holds();
        });
    }

    // Of a host that never had another one.
    CpuPlan plan_of(uint32_t num_attention_workers) const {
        const test::TemporaryDirectory directory;
        Config config = config_;
        config.attention_workers = num_attention_workers;
        config.ffn_workers = 0;
        const auto plan_with = [&](const auto& cores) { return plan_cpus(config, cores); };
        return CoreClaims(directory.path()).plan(cores_, plan_with).value();
    }
    static std::string text_of(const WorkerCpus& cpus) {
        std::string text = "cores:";
        for (const uint32_t core : cpus.cpus) text += " " + std::to_string(core);
        return text;
    }

    // In its last Join: what its workers can take of memory.
    bool says_room() const { return says_room_; }

    // The cores that another instance would take last.
    std::vector<uint32_t> claimed() const {
        const CoreClaims other(afd::runtime_directory(), runtime_.path("no topology"));
        std::vector<uint32_t> claimed;
        for (const uint32_t core : cores_) {
            const std::vector<uint32_t> best = other.by_preference({core, kUnclaimed}, 1);
            if (best.front() != core) claimed.push_back(core);
        }
        return claimed;
    }
    // The cores of the plan alone are claimed, as soon as the processes of before are gone.
    void expect_claimed(const CpuPlan& plan) {
        std::vector<uint32_t> expected;
        for (const uint32_t core : cores_) {
            const bool is_used = std::ranges::any_of(plan.attention, [&](const WorkerCpus& worker) {
                return std::ranges::find(worker.cpus, core) != worker.cpus.end();
            });
            if (is_used) expected.push_back(core);
        }
        turn_until([&] { return claimed() == expected; });
        EXPECT_EQ(claimed(), expected);
    }

  private:
    struct StandInEnd {
        uint64_t instance_id;
        uint32_t index;
        ClusterChannel channel;
        std::optional<std::string> cores;  // Of its worker, which says the devices before.
        std::string devices;
    };

    static constexpr uint32_t kUnclaimed = 100'000;  // No machine has this core.

    const StandInEnd& said_by(uint32_t index) {
        const auto found = std::ranges::find_if(stand_ins_, [&](const StandInEnd& stand_in) {
            return stand_in.instance_id == instance_id_ && stand_in.index == index;
        });
        EXPECT_TRUE(turn_until([&] { return found->cores.has_value(); })) << "watchdog: " << index;
        return *found;
    }
    void start() {
        host_pid_ = ::fork();
        AFD_ASSERT(host_pid_ >= 0, "fork: errno %d", errno);
        if (host_pid_ > 0) return;
        cpu_set_t set;
        CPU_ZERO(&set);
        for (const uint32_t core : cores_) CPU_SET(core, &set);
        ::sched_setaffinity(0, sizeof(set), &set);
        set_up_logging("joined_host_test", "off", "text");
        auto host =
            std::make_unique<JoinedHost>(config_, AFD_FAKE_WORKERS, ServiceNotifier(), [this] {
                return Result<Config>(config_);
            });
        const ExitCode code = host->run();
        host.reset();
        ::_exit(static_cast<int>(code));
    }

    control::Welcome welcome() const {
        control::Welcome welcome = configured_welcome(config_, {});
        *welcome.mutable_geometry() = instance_geometry(config_, {}, schedule::RowDtype::kBf16);
        welcome.set_numeric_class(std::string(ops::name_of(ops::NumericClass::kPortable)));
        welcome.set_instance_id(instance_id_);
        return welcome;
    }

    // Whether it is there.
    bool accept_host() {
        pollfd entry{listener_.get(), POLLIN, 0};
        if (leader_ || ::poll(&entry, 1, 0) <= 0) return leader_.has_value();
        leader_.emplace(
            leader_end(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))));
        return true;
    }
    // Whether the host has said Join.
    bool turn_leader() {
        EXPECT_FALSE(turn(*leader_).has_value()) << "the host is gone";
        cluster::HostMessage message;
        const Result<bool> next = leader_->next(message);
        if (!next.ok() || !next.value() || !message.has_join()) return false;
        host_port_ = static_cast<uint16_t>(message.join().port());
        says_room_ = message.join().has_available_bytes();
        return true;
    }
    // The end of one of before is none of the test's: the next leader's got the seat.
    void turn_stand_in(StandInEnd& stand_in) {
        static_cast<void>(turn(stand_in.channel).has_value());
        cluster::WorkerHostMessage message;
        const Result<bool> next = stand_in.channel.next(message);
        if (!next.ok() || !next.value()) return;
        EXPECT_FALSE(message.has_refusal()) << message.refusal().message();
        if (!message.message().has_wait()) return;
        const std::string& text = message.message().wait().text();
        if (text.starts_with("cores:")) stand_in.cores = text;
        if (text.starts_with("devices:")) stand_in.devices = text;
    }
    // Who is silent is given up.
    void beat() {
        cluster::LeaderMessage of_leader;
        of_leader.mutable_beat();
        leader_->queue(of_leader);
        cluster::StandInMessage of_stand_in;
        of_stand_in.mutable_beat();
        for (StandInEnd& stand_in : stand_ins_) stand_in.channel.queue(of_stand_in);
    }

    const test::TemporaryDirectory runtime_;
    const ScopedVariable runtime_variable_{"XDG_RUNTIME_DIR", runtime_.path().c_str()};
    const ScopedVariable cores_variable_{"AFD_FAKE_CORES", "1"};
    sockaddr_in address_{};
    UniqueFd listener_;
    Config config_;
    std::vector<uint32_t> cores_;  // That the host may use; two, where there are so many.
    pid_t host_pid_ = -1;
    uint16_t host_port_ = 0;
    bool says_room_ = false;
    uint64_t instance_id_ = 0;
    uint64_t num_turns_ = 0;
    std::list<StandInEnd> stand_ins_;
};

// Worker 1 had the second core, and is now the only one.
TEST_F(JoinedHostTest, GivesUpACoreThatTheNextLeaderDoesNotNeed) {
    const CpuPlan two = plan_of(2);
    ASSERT_NO_FATAL_FAILURE(join(2));
    take(0);
    EXPECT_EQ(cores_of(0), text_of(two.attention[0]));
    take(1);
    EXPECT_EQ(cores_of(1), text_of(two.attention[1]));
    expect_claimed(two);
    const CpuPlan one = plan_of(1);
    ASSERT_NO_FATAL_FAILURE(join(1));
    take(1);
    EXPECT_EQ(cores_of(1), text_of(one.attention[0]));
    end_stand_ins_of_before();
    expect_claimed(one);
}

// What its workers have is theirs already, and would be counted twice.
TEST_F(JoinedHostTest, SaysWhatIsAvailableUnlessItHasWorkers) {
    ASSERT_NO_FATAL_FAILURE(join(1));
    EXPECT_TRUE(says_room());
    ASSERT_NO_FATAL_FAILURE(join(1));
    EXPECT_TRUE(says_room()) << "nobody has asked for one";
    take(0);
    static_cast<void>(cores_of(0));
    ASSERT_NO_FATAL_FAILURE(join(1));
    EXPECT_FALSE(says_room());
    end_stand_ins_of_before();
    // It joins when the worker has ended, which is to be seen first.
    ASSERT_NO_FATAL_FAILURE(join(1));
    EXPECT_TRUE(says_room());
}

// rc has devices that are none of the kernel's, so no address says which one is meant.
TEST_F(JoinedHostTest, HasTheDevicesThatTheTransportsOfTheLeaderHave) {
    ASSERT_NO_FATAL_FAILURE(join(1, "tcp"));
    take(0);
    EXPECT_EQ(devices_of(0), "devices: lo");
    ASSERT_NO_FATAL_FAILURE(join(1, "rc"));
    take(0);
    EXPECT_EQ(devices_of(0), "devices: all");
    end_stand_ins_of_before();
}

// Three on two cores are left to the kernel.
TEST_F(JoinedHostTest, GivesUpAllCoresWhereTheNextLeaderHasMoreWorkersThanThereAre) {
    const CpuPlan two = plan_of(2);
    ASSERT_NO_FATAL_FAILURE(join(2));
    for (const uint32_t index : {0, 1}) take(index);
    for (const uint32_t index : {0, 1}) static_cast<void>(cores_of(index));
    expect_claimed(two);
    const CpuPlan three = plan_of(3);
    ASSERT_NO_FATAL_FAILURE(join(3));
    for (const uint32_t index : {2, 0, 1}) take(index);
    for (const uint32_t index : {0, 1, 2}) {
        EXPECT_EQ(cores_of(index), text_of(three.attention[index])) << index;
    }
    expect_claimed(three);
}

}  // namespace
}  // namespace afd::daemon

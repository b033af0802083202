// SPDX-License-Identifier: Apache-2.0
#pragma once

// Upgrade: an instance whose afdd a test puts others in the place of (daemon/afdd/upgrader.h), and
// the file that it is started from, in whose place a test puts others, too.
//
// Method and oracle as in resize_fixture.h: the real programs under a load that has requests in
// flight at every moment; the replies of the undisturbed instance, to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/fault_requests.h"
#include "tests/faults/hook.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {

// A file that becomes afdd after what the hook says.
struct InstalledAfdd {
    // By what is no afdd.
    void replace(const std::string& bytes) const { std::ofstream(file) << bytes; }

    const Hook hook;
    const std::string file =
        hook.install("afdd", "-a " + hook.directory() + "/afdd " + program("afdd"));
};

class Upgrade : public testing::Test {
  protected:
    explicit Upgrade(std::vector<std::string> flags = {})
        : instance_(with_defaults(std::move(flags)), "exec " + installed_.file + " \"$@\"; :") {
        Instance::adopt_orphans();
        instance_.wait_ready();
        expected_ = run_all_at_once(instance_, requests_);
        ffn_ = instance_.worker_pids("ffn").at(0);
    }

    static std::vector<std::string> with_defaults(std::vector<std::string> flags) {
        flags.insert(flags.end(),
                     {"--attention-workers", "1", "--ffn-workers", "1", "--two-phase-block", "64"});
        return flags;
    }

    Outcome upgrade() const { return instance_.afdctl({"upgrade"}); }
    std::future<Outcome> upgrade_beside() const {
        return std::async(std::launch::async, [this] { return upgrade(); });
    }

    // Of who answers now.
    pid_t serving_pid() const {
        const auto pid = static_cast<pid_t>(instance_.status().pid());
        EXPECT_GT(pid, 0);
        return pid;
    }

    // An upgrade, to the end of the old process, which had nothing to do but what `num_requests`
    // says. Then the instance's process is the new one.
    void expect_upgraded(const Outcome& outcome) {
        ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
        const pid_t pid = serving_pid();
        EXPECT_NE(pid, instance_.pid());
        EXPECT_THAT(outcome.output,
                    testing::HasSubstr("pid " + std::to_string(pid) + " serves now, version "));
        EXPECT_THAT(outcome.output,
                    testing::HasSubstr("end with pid " + std::to_string(instance_.pid())));
        expect_old_ended(pid);
    }
    void expect_old_ended(pid_t pid) {
        EXPECT_EQ(instance_.wait_exit(), 0) << "the old one";
        instance_.follow(pid);
        instance_.wait_for("the old one has ended",
                           [](const client::Status& status) { return status.upgrade().empty(); });
    }

    void wait_for_upgrade_text(const std::string& text) const {
        instance_.wait_for("upgrade: " + text, [&](const client::Status& status) {
            return status.upgrade().find(text) != std::string::npos;
        });
    }

    // Workers of the instance's process.
    std::vector<pid_t> children_of(pid_t pid) const {
        const std::string name = std::to_string(pid);
        std::ifstream file("/proc/" + name + "/task/" + name + "/children");
        std::vector<pid_t> children;
        for (pid_t child = 0; file >> child;) children.push_back(child);
        return children;
    }

    void expect_undisturbed_replies() const {
        expect_same_bits(expected_, run_all_at_once(instance_, requests_), "behind the upgrades");
    }

    // A request that has begun and stands still; the old afdd cannot end before it goes on.
    // REQUIRES: an FFN worker may be stopped for as long as the test takes.
    void begin_and_halt() {
        held_ = std::make_unique<BackgroundGeneration>(instance_, long_request(kTokens));
        held_->stop_amid(5, ffn_);
    }
    void go_on() const { send_signal(ffn_, SIGCONT); }

    static constexpr uint32_t kTokens = 600;

    InstalledAfdd installed_;
    Instance instance_;
    const std::vector<client::Generate> requests_ = fault_requests();
    std::vector<Reply> expected_;
    pid_t ffn_ = 0;  // Of the first afdd.
    std::unique_ptr<BackgroundGeneration> held_;
};

}  // namespace afd::test

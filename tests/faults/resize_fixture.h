// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resize: an instance whose numbers of workers a test changes (daemon/afdd/resizer.h), with a hook
// before its workers.
//
// Method: the real programs under a load that has requests in flight at every moment, short ones,
// long prompts and two phases. Oracle: the replies of the undisturbed instance, token ids and log
// probabilities to the last bit; what afdctl says; processes, segments and descriptors that are
// there before and behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "tests/faults/fault_requests.h"
#include "tests/faults/hook.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {

inline std::vector<std::string> resize_flags(const std::string& router,
                                             const std::string& start_attempts) {
    return {"--attention-workers",
            "1",
            "--ffn-workers",
            "1",
            "--router",
            router,
            "--two-phase-block",
            "64",
            "--start-attempts",
            start_attempts,
            "--restart-first-ms",
            "1",
            "--restart-max-ms",
            "1"};
}

// Shell before afdd: its workers do what the hook says before they begin.
inline std::string with_hook(const Hook& hook) {
    for (const std::string name : {"afd-attention-worker", "afd-ffn-worker"}) {
        hook.install(name, program(name));
    }
    return "export AFD_WORKER_DIRECTORY=" + hook.directory();
}

class Resize : public testing::Test {
  protected:
    explicit Resize(const std::string& router = "attention",
                    const std::string& start_attempts = "2")
        : instance_(resize_flags(router, start_attempts), with_hook(hook_)) {
        instance_.wait_ready();
        expected_ = run_all_at_once(instance_, requests_);
    }

    Outcome resize(int attention, int ffn, std::vector<std::string> more = {}) const {
        more.insert(
            more.begin(),
            {"resize", "--attention", std::to_string(attention), "--ffn", std::to_string(ffn)});
        return instance_.afdctl(more);
    }
    std::future<Outcome> resize_beside(int attention, int ffn, std::vector<std::string> more = {}) {
        return std::async(std::launch::async,
                          [this, attention, ffn, more] { return resize(attention, ffn, more); });
    }

    void expect_resized(const Outcome& outcome, int attention, int ffn) const {
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        const std::string size =
            std::to_string(attention) + " attention and " + std::to_string(ffn) + " ffn workers";
        EXPECT_THAT(outcome.output, testing::HasSubstr(size + " serve now; "));
        EXPECT_EQ(instance_.worker_pids("attention").size(), static_cast<size_t>(attention));
        EXPECT_EQ(instance_.worker_pids("ffn").size(), static_cast<size_t>(ffn));
        EXPECT_EQ(instance_.status().resize(), "");
    }

    std::vector<pid_t> pids() const {
        std::vector<pid_t> all = instance_.worker_pids("attention");
        for (const pid_t pid : instance_.worker_pids("ffn")) all.push_back(pid);
        return all;
    }

    void wait_for_step(const std::string& step) const {
        instance_.wait_for("a resize is at: " + step, [&](const client::Status& status) {
            return status.resize().find(step) != std::string::npos;
        });
    }

    void wait_for_queued() const {
        instance_.wait_for("a request is queued",
                           [](const client::Status& status) { return status.num_queued() > 0; });
    }

    void expect_undisturbed_replies() const {
        expect_same_bits(expected_, run_all_at_once(instance_, requests_), "behind the resizes");
    }

    const Hook hook_;
    Instance instance_;
    const std::vector<client::Generate> requests_ = fault_requests();
    std::vector<Reply> expected_;
};

}  // namespace afd::test

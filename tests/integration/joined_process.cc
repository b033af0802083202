// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/joined_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "tests/integration/free_port.h"
#include "tests/integration/spawned_program.h"

namespace afd::test {

namespace {

// What follows `before` in the text that `read()` gives, up to `end`; fails the test if that does
// not come.
template <typename Read>
std::string wait_for_text(const Read& read, const std::string& before, char end) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
        const std::string text = read();
        const size_t found = text.find(before);
        const size_t stop = text.find(end, found + before.size());
        if (found != std::string::npos && stop != std::string::npos) {
            return text.substr(found + before.size(), stop - found - before.size());
        }
        std::this_thread::sleep_for(kPoll);
    }
    ADD_FAILURE() << "'" << before << "' does not come:\n" << read();
    return "";
}

}  // namespace

std::string make_certificates(const std::vector<std::string>& hosts) {
    const std::string directory = make_directory() + "/certificates";
    std::vector<std::string> arguments = {program("afdctl"), "cluster", "init", directory};
    for (const std::string& host : hosts) arguments.insert(arguments.end(), {"--host", host});
    const Outcome outcome = run_program(arguments, make_directory());
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    return directory;
}

std::vector<std::string> leader_flags(const std::string& certificates, const std::string& address) {
    return {"--transport",
            "ucx",
            "--ucx-devices",
            "lo",
            // As if they were of different machines.
            "--ucx-neighbours",
            "ucx",
            "--cluster-listen",
            address,
            "--cluster-dir",
            certificates};
}

std::string lasting_address() {
    return "127.0.0.1:" + std::to_string(free_port());
}

std::string join_address(const Instance& leader, const std::string& host) {
    const std::string before = "waiting for hosts to join at " + host + ":";
    return host + ":" + wait_for_text([&] { return leader.log(); }, before, ':');
}

JoinedProcess::JoinedProcess(const Options& options) : name_(options.name) {
    directory_ = make_directory();
    std::vector<std::string> arguments = options.before;
    const std::vector<std::string> own = {program("afdd"),
                                          "--instance",
                                          fresh_instance_name(),
                                          "--transport",
                                          "ucx",
                                          "--ucx-devices",
                                          options.device,
                                          "--join",
                                          options.address,
                                          "--cluster-dir",
                                          options.certificates,
                                          "--host-name",
                                          options.name};
    arguments.insert(arguments.end(), own.begin(), own.end());
    if (std::find(options.flags.begin(), options.flags.end(), "--model") == options.flags.end()) {
        arguments.insert(arguments.end(), {"--model", test_model()});
    }
    arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
    pid_ = spawn_program(arguments, directory_, directory_ + "/log");
}

JoinedProcess::~JoinedProcess() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    if (testing::Test::HasFailure()) {
        fprintf(stderr, "--- log of host %s\n%s---\n", name_.c_str(), log().c_str());
    }
}

int JoinedProcess::wait_exit() {
    const int exit_status = wait_for_exit(pid_, "host " + name_);
    if (exit_status >= 0) pid_ = -1;
    return exit_status;
}

std::vector<pid_t> JoinedProcess::worker_pids() const {
    const std::string pid = std::to_string(pid_);
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    std::vector<pid_t> pids;
    for (pid_t child = 0; children >> child;) pids.push_back(child);
    return pids;
}

std::string JoinedProcess::log() const {
    return read_text(directory_ + "/log");
}

void JoinedProcess::wait_for_log(const std::string& text) const {
    wait_for_text([&] { return log(); }, text, '\n');
}

}  // namespace afd::test

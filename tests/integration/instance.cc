// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/instance.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/integration/spawned_program.h"
#include "tests/temporary_directory.h"

namespace afd::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

}  // namespace

std::string make_directory() {
    // A deque: directories stay where they are.
    static std::deque<TemporaryDirectory> until_the_end;
    return until_the_end.emplace_back().path();
}

std::string program(const std::string& name) {
    return std::string(AFD_BIN_DIR) + "/" + name;
}

std::string test_model() {
    const char* model = std::getenv("AFD_TEST_MODEL");
    return model != nullptr ? model : AFD_DEMO_MODEL;
}

void send_signal(pid_t pid, int number) {
    // 0 and below mean many processes.
    ASSERT_GT(pid, 1);
    kill(pid, number);
}

bool wait_until(const std::string& what,
                const std::function<bool()>& holds,
                std::chrono::microseconds poll) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (!holds()) {
        if (Clock::now() >= deadline) {
            ADD_FAILURE() << "waited in vain until: " << what;
            return false;
        }
        std::this_thread::sleep_for(poll);
    }
    return true;
}

std::vector<std::string> patient_pair(const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--attention-workers",
                                      "1",
                                      "--ffn-workers",
                                      "1",
                                      "--stop-timeout-ms",
                                      "0",
                                      "--hang-timeout-ms",
                                      "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

std::string fresh_instance_name() {
    static std::atomic<int> next{0};
    return "t" + std::to_string(getpid()) + "_" + std::to_string(next.fetch_add(1));
}

Instance::Instance(std::vector<std::string> flags, const std::string& shell)
    : name_(fresh_instance_name()) {
    directory_ = make_directory();
    std::vector<std::string> arguments = {program("afdd"), "--instance", name_};
    if (std::find(flags.begin(), flags.end(), "--model") == flags.end()) {
        arguments.insert(arguments.end(), {"--model", test_model()});
    }
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    if (!shell.empty()) {
        const std::string command = shell + "; exec \"$0\" \"$@\"";
        arguments.insert(arguments.begin(), {"/bin/sh", "-c", command});
    }
    pid_ = spawn_program(arguments, directory_, directory_ + "/log");
}

void Instance::follow(pid_t pid) {
    ASSERT_GT(pid, 1);
    if (pid_ > 0) pids_before_.push_back(pid_);
    pid_ = pid;
}

void Instance::adopt_orphans() {
    EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

Instance::~Instance() {
    for (const pid_t pid : pids_before_) {
        if (waitpid(pid, nullptr, WNOHANG) != 0) continue;
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        for (const std::string& name : segments()) unlink(("/dev/shm/" + name).c_str());
    }
    if (testing::Test::HasFailure()) {
        fprintf(stderr, "--- log of %s\n%s---\n", name_.c_str(), log().c_str());
    }
}

void Instance::wait_ready() {
    wait_for("afdd is ready",
             [](const client::Status& status) { return status.state() == "ready"; });
}

void Instance::wait_all_workers_ready() const {
    wait_for("all workers serve", [](const client::Status& status) {
        return status.state() == "ready" &&
               std::ranges::all_of(status.workers(), [](const client::Worker& worker) {
                   return worker.state() == "ready";
               });
    });
}

void Instance::replace_worker(const std::string& role, size_t index, int signal) const {
    const pid_t pid = worker_pids(role).at(index);
    send_signal(pid, signal);
    wait_for_successor(role, index, pid);
}

void Instance::wait_for_successor(const std::string& role, size_t index, pid_t pid) const {
    wait_for("the successor serves", [&](const client::Status& status) {
        return std::ranges::any_of(status.workers(), [&](const client::Worker& worker) {
            return worker.role() == role && worker.index() == index && worker.state() == "ready" &&
                   static_cast<pid_t>(worker.pid()) != pid;
        });
    });
}

Outcome Instance::afdctl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {program("afdctl"), "--instance", name_});
    return run_program(arguments, directory_);
}

client::Client Instance::connect() const {
    auto endpoint = client::resolve_endpoint(directory_ + "/afd/" + name_ + ".sock", "");
    EXPECT_TRUE(endpoint.ok());
    auto connected = client::Client::connect(endpoint.value());
    EXPECT_TRUE(connected.ok()) << connected.error().message << "\n" << log();
    return std::move(connected).value();
}

client::Connection Instance::open_connection() const {
    auto endpoint = client::resolve_endpoint(directory_ + "/afd/" + name_ + ".sock", "");
    EXPECT_TRUE(endpoint.ok());
    auto connected = client::Connection::connect(endpoint.value(), Clock::now() + kPatience);
    EXPECT_TRUE(connected.ok()) << connected.error().message << "\n" << log();
    return std::move(connected).value();
}

client::Status Instance::status() const {
    auto status = connect().status();
    EXPECT_TRUE(status.ok()) << status.error().message << "\n" << log();
    return status.ok() ? status.value() : client::Status();
}

std::string Instance::describe() const {
    std::ostringstream text;
    text << "afdd: " << threads_of(pid_) << "\n";
    const auto endpoint = client::resolve_endpoint(directory_ + "/afd/" + name_ + ".sock", "");
    auto connected = client::Client::connect(endpoint.value());
    const auto found = connected.ok() ? connected.value().status() : connected.error();
    if (!found.ok()) {
        text << "no status: " << found.error().message << "\n";
        return text.str();
    }
    const client::Status& status = found.value();
    text << status.state() << " (" << status.reason() << "), " << status.num_queued() << " queued, "
         << status.num_running() << " running, resize: " << status.resize() << "\n";
    for (const std::string& wait : status.waits()) text << wait << "\n";
    for (const client::Worker& worker : status.workers()) {
        text << worker.role() << worker.index() << " " << worker.state() << ": "
             << threads_of(static_cast<pid_t>(worker.pid())) << "\n";
    }
    return text.str();
}

void Instance::wait_for(const std::string& what,
                        const std::function<bool(const client::Status&)>& holds) const {
    const Clock::time_point deadline = Clock::now() + kPatience;
    auto endpoint = client::resolve_endpoint(directory_ + "/afd/" + name_ + ".sock", "");
    while (Clock::now() < deadline) {
        auto connected = client::Client::connect(endpoint.value());
        if (connected.ok()) {
            const auto status = connected.value().status();
            if (status.ok() && holds(status.value())) return;
        }
        siginfo_t info{};
        if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == pid_) {
            FAIL() << "afdd ended (" << (info.si_code == CLD_EXITED ? "exit code " : "signal ")
                   << info.si_status << ") before: " << what << "\n"
                   << log();
        }
        std::this_thread::sleep_for(kPoll);
    }
    FAIL() << "waited in vain until: " << what << "\n" << describe() << log();
}

std::vector<pid_t> Instance::worker_pids(const std::string& role) const {
    std::vector<pid_t> pids;
    const client::Status now = status();
    for (const client::Worker& worker : now.workers()) {
        if (worker.role() == role) pids.push_back(static_cast<pid_t>(worker.pid()));
    }
    return pids;
}

void Instance::signal(int number) const {
    send_signal(pid_, number);
}

int Instance::wait_exit() {
    const int exit_status = wait_for_exit(pid_, "afdd");
    if (exit_status < 0) {
        ADD_FAILURE() << log();
    } else {
        pid_ = -1;
    }
    return exit_status;
}

int Instance::stop() {
    const auto stopped = connect().stop();
    EXPECT_TRUE(stopped.ok()) << stopped.error().message;
    return wait_exit();
}

std::string Instance::log() const {
    return read_text(directory_ + "/log");
}

void Instance::wait_for_log(const std::string& text) const {
    wait_until(
        "the log has a line with " + text,
        [&] { return log().find(text) != std::string::npos; },
        kPoll);
}

std::vector<std::string> Instance::segments() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        if (name.rfind("afd-" + name_ + "-", 0) == 0) names.push_back(name);
    }
    return names;
}

Outcome run_program(const std::vector<std::string>& arguments,
                    const std::string& runtime_directory) {
    const std::string output_file = make_directory() + "/output";
    const pid_t pid = spawn_program(arguments, runtime_directory, output_file);
    const Clock::time_point deadline = Clock::now() + kPatience;
    int wait_status = 0;
    while (waitpid(pid, &wait_status, WNOHANG) != pid) {
        if (Clock::now() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &wait_status, 0);
            ADD_FAILURE() << arguments[0] << " does not end";
            break;
        }
        std::this_thread::sleep_for(kPoll);
    }
    return {exit_status_of(wait_status), read_text(output_file)};
}

std::string quantised_model(const std::vector<std::string>& flags) {
    const std::string directory = make_directory();
    std::vector<std::string> arguments = {
        program("afd-quantize"), AFD_DEMO_MODEL, "--out", directory + "/model"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = run_program(arguments, directory);
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    return directory + "/model";
}

}  // namespace afd::test

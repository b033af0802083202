// SPDX-License-Identifier: Apache-2.0
#pragma once

// Instance: a real afdd with its real workers, for tests. It gets a name and a runtime directory
// of its own, so that tests run side by side; the weight cache is that of the test process. At the
// end of the object afdd is killed if it still runs, and its log is shown if the test failed.
//
// Every wait has a deadline and fails the test with the log; no test asserts a maximum time.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "clients/afd_client.h"

namespace afd::test {

inline constexpr std::chrono::seconds kPatience{60};

// Directory of the model that tests serve: the committed demo model, or AFD_TEST_MODEL.
std::string test_model();

// Fails the test if it is no pid of one process.
void send_signal(pid_t pid, int number);

// Waits until `holds()`; fails the test with `what`, and returns false, if it never does. `poll`:
// between two looks.
bool wait_until(const std::string& what,
                const std::function<bool()>& holds,
                std::chrono::microseconds poll = std::chrono::milliseconds(5));

// What a program that has ended leaves.
struct Outcome {
    int exit_status = 0;
    std::string output;  // stdout and stderr.
};

// Flags of an instance with one worker of each role, either of which may stand still for as long as
// a test wants, and `more`.
std::vector<std::string> patient_pair(const std::vector<std::string>& more = {});

// The name of an afdd that only this call gives. Tests run beside each other, and afdd finds one
// that has its name wherever its lock is.
std::string fresh_instance_name();

class Instance {
  public:
    // Starts afdd with the model of test_model(), unless `flags` name another. `shell`: a command
    // that prepares its process, such as "ulimit -n 100".
    explicit Instance(std::vector<std::string> flags = {}, const std::string& shell = "");
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    // Waits until every worker serves. Fails the test if afdd ends or does not get there.
    void wait_ready();

    // Runs afdctl for this instance, to its end.
    Outcome afdctl(std::vector<std::string> arguments) const;

    client::Client connect() const;
    client::Connection open_connection() const;
    client::Status status() const;
    // What it says of itself, and what each thread of afdd and its workers is doing: for whoever
    // has to find out why it does not go on.
    std::string describe() const;
    // Waits until `holds(status())`; fails the test with `what` otherwise.
    void wait_for(const std::string& what,
                  const std::function<bool(const client::Status&)>& holds) const;

    // Waits until every worker is ready now, and afdd says that it is.
    void wait_all_workers_ready() const;

    // Another process, a descendant of this one's, is the instance's afdd now: signal(),
    // wait_exit() and the end of the object mean it. The one before is still killed at the end, if
    // it is there. REQUIRES: adopt_orphans() was called.
    void follow(pid_t pid);
    // Lets this process be the parent of what its children leave behind.
    static void adopt_orphans();

    pid_t pid() const { return pid_; }
    const std::string& name() const { return name_; }
    const std::string& runtime_directory() const { return directory_; }
    // Pids of the workers of a role ("attention", "ffn"), by index.
    std::vector<pid_t> worker_pids(const std::string& role) const;
    // Sends the signal, which ends it, to the worker, and waits for its successor to serve.
    void replace_worker(const std::string& role, size_t index, int signal) const;
    // Waits until another worker than that with `pid` serves in its place.
    void wait_for_successor(const std::string& role, size_t index, pid_t pid) const;

    void signal(int number) const;
    // Waits for afdd's end; returns its exit status, or 128 + signal.
    int wait_exit();
    // Asks it to stop, and waits: the exit status.
    int stop();
    // Everything that afdd and its workers wrote to stderr.
    std::string log() const;
    // Waits until there is `text` in it; fails the test otherwise.
    void wait_for_log(const std::string& text) const;
    // Names in /dev/shm that belong to this instance.
    std::vector<std::string> segments() const;

  private:
    std::string name_;
    std::string directory_;
    pid_t pid_ = -1;
    std::vector<pid_t> pids_before_;
};

// The demo model in other formats, as afd-quantize writes it with these flags: its directory.
std::string quantised_model(const std::vector<std::string>& flags);

// Runs a program with XDG_RUNTIME_DIR = `runtime_directory`, to its end.
Outcome run_program(const std::vector<std::string>& arguments,
                    const std::string& runtime_directory);

// A fresh private directory, removed at the end of the process.
std::string make_directory();

// Full path of one of our programs ("afdd", "afdctl", ...).
std::string program(const std::string& name);

}  // namespace afd::test

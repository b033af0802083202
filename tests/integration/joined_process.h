// SPDX-License-Identifier: Apache-2.0
#pragma once

// JoinedProcess: a real `afdd --join`, for tests: another host on this machine, with a name, a
// runtime directory and a log of its own. And the certificates and the leader that go with it.

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/integration/instance.h"

namespace afd::test {

// A directory of certificates for the leader and these hosts, as afdctl makes it.
std::string make_certificates(const std::vector<std::string>& hosts);

// Flags of a leader that listens for hosts at this address, by default at any port.
std::vector<std::string> leader_flags(const std::string& certificates,
                                      const std::string& address = "127.0.0.1:0");
// At which a leader can listen, and later another one: with a port of free_port().
std::string lasting_address();
// Where a leader listens at this address. Waits until it does.
std::string join_address(const Instance& leader, const std::string& host = "127.0.0.1");

class JoinedProcess {
  public:
    struct Options {
        std::string name;
        std::string certificates;
        std::string address;  // Of the leader.
        std::vector<std::string> flags = {};
        std::string device = "lo";             // Of the network, for UCX.
        std::vector<std::string> before = {};  // A command that runs another: this one.
    };
    explicit JoinedProcess(const Options& options);
    // Kills it if it still runs.
    ~JoinedProcess();
    JoinedProcess(const JoinedProcess&) = delete;
    JoinedProcess& operator=(const JoinedProcess&) = delete;

    pid_t pid() const { return pid_; }
    void signal(int number) const { send_signal(pid_, number); }
    // Waits for its end; its exit status, or 128 + signal.
    int wait_exit();
    // Of the workers that it runs, in no order.
    std::vector<pid_t> worker_pids() const;
    std::string log() const;
    // Waits until its log has this text; fails the test otherwise.
    void wait_for_log(const std::string& text) const;

  private:
    std::string name_;
    std::string directory_;
    pid_t pid_ = -1;
};

}  // namespace afd::test

// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "clients/afdctl/command.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

void print_state(const CommonOptions& common, const std::string& state) {
    if (common.json) {
        std::cout << nlohmann::json{{"state", state}}.dump() << std::endl;
    } else {
        std::cout << state << std::endl;
    }
}

// Tells on standard error what is still in flight, as the wait for it may be long; the pid of who
// does it. An afdd that does not even say that is out of reach: the error.
Result<int> print_in_flight(const CommonOptions& common,
                            Client& client,
                            const Cancellation& interrupt) {
    AFD_ASSIGN(const Status status, client.status(Client::kReplyTimeout, &interrupt));
    const int pid = static_cast<int>(status.pid());
    if (common.json) return pid;
    std::cerr << "waiting for " << status.num_running() << " running and " << status.num_queued()
              << " queued requests" << std::endl;
    return pid;
}

// A process that is about to end. Connections are closed before it has given back the instance's
// name and memory, and who starts the next one needs these.
class EndingProcess {
  public:
    // One of that number which is no afdd, as in another namespace, is not waited for.
    explicit EndingProcess(int pid) {
        std::string name;
        std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
        if (name == "afdd") pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    }
    ~EndingProcess() {
        if (pidfd_ >= 0) ::close(pidfd_);
    }
    EndingProcess(const EndingProcess&) = delete;
    EndingProcess& operator=(const EndingProcess&) = delete;

    // Errors: kDeadlineExceeded, kCancelled.
    Result<> wait(Clock::time_point deadline, const Cancellation& interrupt) const {
        while (pidfd_ >= 0) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
            pollfd events[] = {{pidfd_, POLLIN, 0}, {interrupt.fd(), POLLIN, 0}};
            const int count = ::poll(events, 2, static_cast<int>(std::max<int64_t>(left, 0)));
            if (count < 0 && errno == EINTR) continue;
            if (events[0].revents != 0) break;
            if (events[1].revents != 0) {
                return afd::Error{Code::kCancelled, "interrupted while waiting for afdd to exit"};
            }
            if (left <= 0) {
                return afd::Error{Code::kDeadlineExceeded,
                                  "afdd has closed its connections, and not ended in time"};
            }
        }
        return {};
    }

  private:
    int pidfd_ = -1;
};

int stop_and_wait(const CommonOptions& common, const LifecycleOptions& options, Client& client) {
    const Cancellation& interrupt = interrupt_cancellation();
    const auto deadline = deadline_after(to_milliseconds(options.timeout_s));
    const Result<int> reached = print_in_flight(common, client, interrupt);
    if (!reached.ok()) return report_failure(common, reached.error(), false);
    // Before the order: afterwards the number may be another's.
    const EndingProcess process(reached.value());
    const Result<std::string> closed =
        client.stop_and_wait(to_milliseconds(options.timeout_s), &interrupt);
    if (!closed.ok()) return report_call_failure(common, client, closed.error());
    const Result<> ended = process.wait(deadline, interrupt);
    if (!ended.ok()) return report_call_failure(common, client, ended.error());
    if (!closed.value().empty()) {
        const afd::Error error{Code::kUnavailable, "afdd has stopped, but " + closed.value()};
        return report_failure(common, error, true);
    }
    print_state(common, "stopped");
    return kExitOk;
}

}  // namespace

int run_drain(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& interrupt = interrupt_cancellation();
    const Result<int> reached = print_in_flight(common, *client, interrupt);
    if (!reached.ok()) return report_failure(common, reached.error(), false);
    const Result<> drained = client->drain(to_milliseconds(options.timeout_s), &interrupt);
    if (!drained.ok()) return report_call_failure(common, *client, drained.error());
    print_state(common, "drained");
    return kExitOk;
}

int run_stop(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    if (options.wait) return stop_and_wait(common, options, *client);
    const Result<> ordered = client->stop(Client::kReplyTimeout, &interrupt_cancellation());
    if (!ordered.ok()) return report_failure(common, ordered.error(), false);
    print_state(common, "stopping");
    return kExitOk;
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

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

int report_lifecycle_failure(const CommonOptions& common, const Client& client, afd::Error error) {
    if (error.code == Code::kDeadlineExceeded) error.message += " (--timeout)";
    return report_failure(common, error, !client.is_silent());
}

// Tells on standard error what is still in flight, as the wait for it may be long. An afdd that
// does not even say that is out of reach: the error.
Result<> print_in_flight(const CommonOptions& common,
                         Client& client,
                         const Cancellation& interrupt) {
    AFD_ASSIGN(const Status status, client.status(Client::kReplyTimeout, &interrupt));
    if (common.json) return {};
    std::cerr << "waiting for " << status.num_running() << " running and " << status.num_queued()
              << " queued requests" << std::endl;
    return {};
}

}  // namespace

int run_drain(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& interrupt = interrupt_cancellation();
    const Result<> reached = print_in_flight(common, *client, interrupt);
    if (!reached.ok()) return report_failure(common, reached.error(), false);
    const Result<> drained = client->drain(to_milliseconds(options.timeout_s), &interrupt);
    if (!drained.ok()) return report_lifecycle_failure(common, *client, drained.error());
    print_state(common, "drained");
    return kExitOk;
}

int run_stop(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& interrupt = interrupt_cancellation();
    if (options.wait) {
        const Result<> reached = print_in_flight(common, *client, interrupt);
        if (!reached.ok()) return report_failure(common, reached.error(), false);
    }
    const Result<> ordered = client->stop(Client::kReplyTimeout, &interrupt);
    if (!ordered.ok()) return report_failure(common, ordered.error(), false);
    if (!options.wait) {
        print_state(common, "stopping");
        return kExitOk;
    }
    const Result<> closed = client->wait_closed(to_milliseconds(options.timeout_s), &interrupt);
    if (!closed.ok()) return report_lifecycle_failure(common, *client, closed.error());
    print_state(common, "stopped");
    return kExitOk;
}

}  // namespace afd::client

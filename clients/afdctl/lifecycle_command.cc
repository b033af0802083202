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

int report_lifecycle_failure(const CommonOptions& common, afd::Error error) {
    if (error.code == Code::kDeadlineExceeded) error.message += " (--timeout)";
    return report_failure(common, error, true);
}

// Tells on standard error what is still in flight, as the wait for it may be long.
void print_in_flight(const CommonOptions& common, Client& client, const Cancellation& interrupt) {
    const Result<Status> status = client.status(Client::kReplyTimeout, &interrupt);
    if (!status.ok() || common.json) return;
    std::cerr << "waiting for " << status.value().num_running() << " running and "
              << status.value().num_queued() << " queued requests" << std::endl;
}

}  // namespace

int run_drain(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& interrupt = interrupt_cancellation();
    print_in_flight(common, *client, interrupt);
    const Result<> drained = client->drain(to_milliseconds(options.timeout_s), &interrupt);
    if (!drained.ok()) return report_lifecycle_failure(common, drained.error());
    print_state(common, "drained");
    return kExitOk;
}

int run_stop(const CommonOptions& common, const LifecycleOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Cancellation& interrupt = interrupt_cancellation();
    if (options.wait) print_in_flight(common, *client, interrupt);
    const Result<> ordered = client->stop(Client::kReplyTimeout, &interrupt);
    if (!ordered.ok()) return report_lifecycle_failure(common, ordered.error());
    if (!options.wait) {
        print_state(common, "stopping");
        return kExitOk;
    }
    const Result<> closed = client->wait_closed(to_milliseconds(options.timeout_s), &interrupt);
    if (!closed.ok()) return report_lifecycle_failure(common, closed.error());
    print_state(common, "stopped");
    return kExitOk;
}

}  // namespace afd::client

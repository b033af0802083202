// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/command.h"

#include <poll.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "clients/exit_code.h"
#include "clients/interrupt.h"

namespace afd::client {

int report_failure(const CommonOptions& common, const afd::Error& error, bool is_reached) {
    print_error(error);
    if (common.json) {
        const nlohmann::json object = {
            {"error", {{"code", std::string(code_name(error.code))}, {"message", error.message}}}};
        std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    }
    if (error.code == Code::kCancelled) return kExitInterrupted;
    if (is_reached) return kExitFailed;
    return error.code == Code::kInvalidArgument ? kExitUsage : kExitUnreachable;
}

int report_call_failure(const CommonOptions& common, const Client& client, afd::Error error) {
    if (error.code == Code::kDeadlineExceeded) error.message += " (--timeout)";
    return report_failure(common, error, !client.is_silent());
}

std::optional<Client> connect_or_report(const CommonOptions& common, int& exit_code) {
    const Result<Endpoint> endpoint = common.endpoint.resolve();
    if (!endpoint.ok()) {
        exit_code = report_failure(common, endpoint.error(), false);
        return std::nullopt;
    }
    Result<Client> client = Client::connect(endpoint.value());
    if (!client.ok()) {
        exit_code = report_failure(common, client.error(), false);
        return std::nullopt;
    }
    return std::move(client).value();
}

bool wait_interval(const Cancellation& cancellation) {
    constexpr int kWatchIntervalMs = 1000;
    pollfd item = {cancellation.fd(), POLLIN, 0};
    poll(&item, 1, kWatchIntervalMs);
    return std::cout.good() && !cancellation.requested();
}

const Cancellation& interrupt_cancellation() {
    static const Cancellation* cancellation = [] {
        Result<Cancellation> created = Cancellation::create();
        AFD_ASSERT(created.ok(), "%s", created.error().message.c_str());
        // Lives to the end of the process, as a signal handler uses it.
        static const Cancellation instance = std::move(created).value();
        cancel_on_interrupt(instance);
        return &instance;
    }();
    return *cancellation;
}

}  // namespace afd::client

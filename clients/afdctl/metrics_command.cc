// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/command.h"
#include "clients/afdctl/exposition_list.h"
#include "clients/exit_code.h"

namespace afd::client {

int run_metrics(const CommonOptions& common, const MetricsOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Result<std::string> text =
        client->metrics(to_milliseconds(options.timeout_s), &interrupt_cancellation());
    if (!text.ok()) return report_failure(common, text.error(), false);
    const std::string shown = options.list ? exposition_list(text.value()) : text.value();
    if (common.json) {
        const nlohmann::json object = {{"text", shown}};
        std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
        std::cout << shown;
    }
    return kExitOk;
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/command.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

// Who has the round: the rank, or nobody any more.
std::string lane_state(const Lane& lane) {
    if (lane.acknowledged() == lane.round()) return "acknowledged";
    return lane.acknowledged() == -lane.round() ? "refused" : "open";
}

std::string context_json(const Context& context, bool has_lanes) {
    nlohmann::ordered_json json{{"worker", context.role() + std::to_string(context.index())}};
    for (const ContextField& field : context.fields()) {
        json["fields"][field.name()] = field.value();
    }
    if (!has_lanes) return json.dump();
    nlohmann::ordered_json lanes = nlohmann::ordered_json::array();
    for (const Lane& lane : context.lanes()) {
        lanes.push_back({{"session", lane.session()},
                         {"micro_batch", lane.micro_batch()},
                         {"rank", lane.rank()},
                         {"layer_id", lane.layer_id()},
                         {"round", lane.round()},
                         {"acknowledged", lane.acknowledged()},
                         {"state", lane_state(lane)}});
    }
    json["lanes"] = lanes;
    return json.dump();
}

std::string padded(std::string text, size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
}

std::string context_text(const Context& context) {
    std::string text = context.role() + " " + std::to_string(context.index()) +
                       ": ScheduleContext, 1024 bytes\n" + padded("OFFSET", 8) +
                       padded("FIELD", 32) + padded("VALUE", 14) + "MEANING\n";
    for (const ContextField& field : context.fields()) {
        text += padded(std::to_string(field.offset()), 8) + padded(field.name(), 32) +
                padded(field.value(), 14) + field.meaning() + "\n";
    }
    return text;
}

std::string lanes_text(const Context& context) {
    if (context.lanes().empty()) return "\nno lane has been used\n";
    std::string text = "\n" + padded("SESSION", 9) + padded("MICRO-BATCH", 13) + padded("RANK", 6) +
                       padded("LAYER", 7) + padded("ROUND", 12) + padded("ACKNOWLEDGED", 14) +
                       "STATE\n";
    for (const Lane& lane : context.lanes()) {
        text += padded(std::to_string(lane.session()), 9) +
                padded(std::to_string(lane.micro_batch()), 13) +
                padded(std::to_string(lane.rank()), 6) +
                padded(std::to_string(lane.layer_id()), 7) +
                padded(std::to_string(lane.round()), 12) +
                padded(std::to_string(lane.acknowledged()), 14) + lane_state(lane) + "\n";
    }
    return text;
}

}  // namespace

Result<GetContext> parse_worker(const std::string& worker) {
    const size_t digits = worker.find_first_of("0123456789");
    std::string role = worker.substr(0, digits);
    while (!role.empty() && role.back() == ' ') role.pop_back();
    const std::string number = digits == std::string::npos ? "" : worker.substr(digits);
    const bool is_number = !number.empty() && number.size() <= 4 &&
                           number.find_first_not_of("0123456789") == std::string::npos;
    if ((role != "attention" && role != "ffn") || !is_number) {
        return afd::Error{Code::kInvalidArgument,
                          "--worker '" + worker + "' is no worker; give one as attention0 or ffn1"};
    }
    GetContext asked;
    asked.set_role(role);
    asked.set_index(static_cast<uint32_t>(std::stoul(number)));
    return asked;
}

int run_context(const CommonOptions& common, const ContextOptions& options) {
    Result<GetContext> asked = parse_worker(options.worker);
    if (!asked.ok()) return report_failure(common, asked.error(), false);
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    asked.value().set_lanes(options.lanes);
    if (options.set_run_flag) asked.value().set_run_flag(*options.set_run_flag != 0);

    const Cancellation& cancellation = interrupt_cancellation();
    const bool clears_screen = options.watch && !common.json && isatty(STDOUT_FILENO) == 1;
    do {
        const Result<Context> context =
            client->context(asked.value(), to_milliseconds(options.timeout_s), &cancellation);
        if (!context.ok()) {
            // The deadline is that of an answer, which comes at once.
            const bool is_reached =
                context.error().code != Code::kDeadlineExceeded && !client->is_silent();
            return report_failure(common, context.error(), is_reached);
        }
        asked.value().clear_run_flag();
        if (clears_screen) std::cout << "\033[H\033[J";
        std::cout << (common.json ? context_json(context.value(), options.lanes) + "\n"
                                  : context_text(context.value()) +
                                        (options.lanes ? lanes_text(context.value()) : ""))
                  << std::flush;
    } while (options.watch && wait_interval(cancellation));
    return options.watch ? kExitInterrupted : kExitOk;
}

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

#include "daemon/config/cpu_plan.h"
#include "daemon/options/choice_member.h"
#include "model/unicode/utf8.h"
#include "proto/socket_path.h"

namespace afd::daemon {

namespace {

Result<> check_pin(const std::string& value) {
    if (value == "none" || value == "auto") return {};
    const auto lists = parse_cpu_lists(value);
    return lists.ok() ? Result<>() : Result<>(lists.error());
}

Result<> check_weight_cache(const std::string& value) {
    const bool is_path = value.starts_with('/') && model::is_valid_utf8(value);
    if (value == "auto" || value == "off" || is_path) return {};
    return Error{Code::kInvalidArgument,
                 "must be auto, off, or a path in UTF-8 that begins with /"};
}

Result<> check_socket(const std::string& value) {
    return value.empty() ? Result<>() : check_socket_path(value);
}

}  // namespace

std::vector<ConfigOption> process_options() {
    using C = Config;
    return {
        {.name = "pin",
         .member = &C::pin,
         .default_text = "auto",
         .unit = "",
         .description = "Pin workers to cores: none, auto, or lists \"0-3;4-7\"",
         .check = check_pin},
        {.name = "weight_cache",
         .member = &C::weight_cache,
         .default_text = "auto",
         .unit = "",
         .description = "Packed weights kept on disk: auto, off, or a directory of yours",
         .check = check_weight_cache},
        {.name = "socket",
         .member = &C::socket,
         .default_text = "",
         .unit = "",
         .description = "Client socket; empty: NAME.sock in the runtime directory",
         .check = check_socket},
        {.name = "log_level",
         .member = &C::log_level,
         .default_text = "info",
         .unit = "",
         .description = "Least severe lines to log",
         .choices = {"trace", "debug", "info", "warn", "error", "off"}},
        {.name = "log_format",
         .member = &C::log_format,
         .default_text = "text",
         .unit = "",
         .description = "Form of the log lines",
         .choices = {"text", "json"}},
        {.name = "metrics_compat",
         .member = choice<&C::metrics_compat>(),
         .default_text = "none",
         .unit = "",
         .description = "Also expose metrics under that system's names",
         .choices = names_up_to(MetricsCompat::kVllm)},
        {"seccomp",
         &C::seccomp,
         "true",
         "",
         "Workers give up system calls that serving does not need; false: for debugging tools"},
        {"spawn", &C::spawn, "true", "", "Start the workers; false: they are started by hand"},
    };
}

}  // namespace afd::daemon

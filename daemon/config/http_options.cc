// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/listen_address.h"
#include "daemon/config/option_topics.h"
#include "proto/frame.h"

namespace afd::daemon {

namespace {

Result<> check_http_keys(const std::string& value) {
    if (value.empty() || value.starts_with('/')) return {};
    return Error{Code::kInvalidArgument, "must be empty, or a path that begins with /"};
}

}  // namespace

std::vector<ConfigOption> http_options() {
    using C = Config;
    return {
        {.name = "http",
         .member = &C::http,
         .default_text = "",
         .unit = "",
         .description = "Serve HTTP at this ADDRESS:PORT; empty: not at all",
         .check = check_listen_address},
        {.name = "http_keys",
         .member = &C::http_keys,
         .default_text = "",
         .unit = "",
         .description = "File of API keys; empty: the one in AFD_API_KEY, if any",
         .check = check_http_keys},
        {"http_open", &C::http_open, "false", "", "Serve HTTP to other machines without any key"},
        {"http_model", &C::http_model, "", "", "The model's name; empty: that of its directory"},
        {"http_body_kib",
         &C::http_body_kib,
         "4096",
         "KiB",
         "Body of an HTTP request; a longer one is refused",
         1,
         kFrameBytesMax / 1024},
    };
}

}  // namespace afd::daemon

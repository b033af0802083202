// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "daemon/config/listen_address.h"
#include "daemon/config/origin_list.h"
#include "daemon/options/option_topics.h"
#include "model/unicode/utf8.h"
#include "proto/frame.h"

namespace afd::daemon {

namespace {

// It stands in answers and in the names of metrics.
Result<> check_http_model(const std::string& value) {
    const bool has_control = std::ranges::any_of(
        value, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (model::is_valid_utf8(value) && !has_control) return {};
    return Error{Code::kInvalidArgument, "must be UTF-8 without control characters"};
}

Result<> check_http_origins(const std::string& value) {
    AFD_TRY(OriginList::parse(value));
    return {};
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
         .description = "File of API keys; empty: the one in AFD_API_KEY, if any"},
        {"http_open", &C::http_open, "false", "", "Serve HTTP to other machines without any key"},
        {.name = "http_origins",
         .member = &C::http_origins,
         .default_text = "",
         .unit = "",
         .description = "Sites whose pages may use it, with commas between; *: any; empty: none",
         .check = check_http_origins},
        {.name = "http_model",
         .member = &C::http_model,
         .default_text = "",
         .unit = "",
         .description = "The model's name; empty: that of its directory",
         .check = check_http_model},
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

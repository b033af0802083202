// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/option_topics.h"

namespace afd::daemon {

std::vector<ConfigOption> client_options() {
    using C = Config;
    return {
        {"connection_requests_max",
         &C::connection_requests_max,
         "1024",
         "",
         "Requests of one connection in flight; more are refused",
         1,
         1000000},
        {"output_buffer_kib",
         &C::output_buffer_kib,
         "4096",
         "KiB",
         "Unread answers of one connection; more ends its requests",
         64,
         uint64_t{1} << 20},
    };
}

}  // namespace afd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

#include <utility>

#include "proto/frame.h"

namespace afd::daemon {

namespace {

// The largest request, and what is read beyond it.
constexpr uint64_t kInputBufferKibMin = kFrameBytesMax / 1024 + 1024;

std::vector<ConfigOption> resume_options() {
    using C = Config;
    return {
        {"resume_grace_ms",
         &C::resume_grace_ms,
         "60000",
         "ms",
         "Keep a resumable request without its client for this time at most; 0: never",
         0,
         86400000},
        {"resume_buffer_kib",
         &C::resume_buffer_kib,
         "65536",
         "KiB",
         "Answers kept for resumable requests, of all; more forgets the largest",
         64,
         uint64_t{1} << 30},
        {"detached_requests_max",
         &C::detached_requests_max,
         "256",
         "",
         "Resumable requests without a client, finished ones included; more are not kept",
         1,
         1000000},
    };
}

}  // namespace

std::vector<ConfigOption> client_options() {
    using C = Config;
    std::vector<ConfigOption> options = {
        {"connections_max",
         &C::connections_max,
         "512",
         "",
         "Connections of clients; a further one needs the place of an idle one",
         1,
         1000000},
        {"idle_timeout_ms",
         &C::idle_timeout_ms,
         "10000",
         "ms",
         "Idle time after which a connection may lose its place to another",
         0,
         86400000},
        {"connection_requests_max",
         &C::connection_requests_max,
         "1024",
         "",
         "Requests of one connection in flight; more are refused",
         1,
         1000000},
        {"input_buffer_kib",
         &C::input_buffer_kib,
         "65536",
         "KiB",
         "Requests half sent or unread, of all; more closes the largest",
         kInputBufferKibMin,
         uint64_t{1} << 30},
        {"input_timeout_ms",
         &C::input_timeout_ms,
         "30000",
         "ms",
         "Close a connection whose request stays half sent for this time",
         1,
         86400000},
        {"output_buffer_kib",
         &C::output_buffer_kib,
         "4096",
         "KiB",
         "Unread answers of one connection; more ends its requests",
         64,
         uint64_t{1} << 20},
        {"request_timeout_ms",
         &C::request_timeout_ms,
         "0",
         "ms",
         "End a request that takes longer, its wait included; 0: never. It may ask for less",
         0,
         86400000},
    };
    for (ConfigOption& option : resume_options()) options.push_back(std::move(option));
    return options;
}

}  // namespace afd::daemon

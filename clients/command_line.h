// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the command lines of afdctl and afd-load have in common: how they name an afdd, and how
// they answer a mistyped word.

#include <optional>
#include <string>

#include "clients/endpoint.h"
#include "proto/socket_path.h"
#include "proto/status.h"

namespace CLI {
class App;
}

namespace afd::client {

// Values of --socket and --instance (or AFD_SOCKET and AFD_INSTANCE).
struct EndpointFlags {
    std::string socket_path;
    std::string instance{kDefaultInstance};

    void add_to(CLI::App& app);
    Result<Endpoint> resolve() const { return resolve_endpoint(socket_path, instance); }
};

// Parses and checks that no argument is left over; `app` must allow_extras(), as must its
// subcommands. Prints help or a one-line error with the nearest known word.
// Returns: nothing if the program shall go on, else its exit code.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// Prints "error: <message>" to standard error.
void print_error(const afd::Error& error);

}  // namespace afd::client

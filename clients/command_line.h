// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the command lines of afdctl and afd-load have in common: how they name an afdd, and how
// they answer a mistyped word.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "clients/endpoint.h"
#include "proto/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace afd::client {

// --socket and --instance, and what AFD_SOCKET and AFD_INSTANCE say where neither is given: a flag
// counts before the environment, and of two of a kind the socket.
struct EndpointFlags {
    std::optional<std::string> socket_path;
    std::optional<std::string> instance;

    void add_to(CLI::App& app);
    Result<Endpoint> resolve() const;
    // The words by which another command line means the same afdd, each behind a space; empty if
    // any means it.
    std::string words() const;
};

// The option takes whole numbers from `low` to `high`, or finite numbers; the error says so of any
// other. Every option of a number goes through one of these (proto/typed_number.h says why).
// Returns the option.
CLI::Option* take_whole_numbers(CLI::Option* option, uint64_t low, uint64_t high);
CLI::Option* take_numbers(CLI::Option* option, double low, double high);

// Adds an option for a whole number from 0 to 2^64 - 1.
CLI::Option* add_whole_number(CLI::App& app,
                              const std::string& flag,
                              uint64_t& value,
                              const std::string& description);

// The help leaves the option out; what the command says at its end should name it.
void mark_seldom(CLI::App& command, const std::string& option);

// Prints "error: <message>" to standard error.
void print_error(const afd::Error& error);

// Writes what is left of standard output, as the last thing that a program does. Returns
// `exit_code`; but kExitFailed, with a message, if what a success printed did not get through.
int end_output(int exit_code);

using ReportError = std::function<void(const afd::Error&)>;

// Parses and checks that no argument is left over; `app` must allow_extras(), as must its
// subcommands. Prints help, or reports an error of one line with the nearest known word.
// Returns: nothing if the program shall go on, else its exit code.
std::optional<int> parse_command_line(CLI::App& app,
                                      int argc,
                                      char** argv,
                                      const ReportError& report = print_error);

}  // namespace afd::client

// SPDX-License-Identifier: Apache-2.0
#include "clients/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "clients/exit_code.h"
#include "proto/command_words.h"
#include "proto/did_you_mean.h"
#include "proto/socket_path.h"
#include "proto/standard_output.h"
#include "proto/typed_number.h"
#include "proto/usage_error.h"

namespace afd::client {
namespace {

const CLI::App& parsed_command(const CLI::App& app) {
    const auto commands = app.get_subcommands();
    return commands.empty() ? app : *commands.front();
}

std::vector<std::string> known_words(const CLI::App& app, bool of_options) {
    std::vector<std::string> words;
    for (const CLI::App* level : {&parsed_command(app), &app}) {
        if (!of_options) {
            for (const CLI::App* command : level->get_subcommands(nullptr)) {
                words.push_back(command->get_name());
            }
            continue;
        }
        for (const CLI::Option* option : level->get_options()) {
            for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
        }
    }
    return words;
}

std::string unknown_word_message(const CLI::App& app, const std::string& word) {
    const bool is_option = word.starts_with("-");
    const bool is_command =
        !is_option && app.get_subcommands().empty() && !app.get_subcommands(nullptr).empty();
    std::string message = is_option    ? "unknown option " + word
                          : is_command ? "unknown command '" + word + "'"
                                       : "unexpected argument '" + word + "'";
    if (is_option || is_command) {
        const std::string name = word.substr(0, word.find('='));
        const std::string near = nearest_word(name, known_words(app, is_option));
        // It would have been taken but for the sign that no options follow.
        if (near == name) return "unexpected " + word + " behind --; options come before --";
        if (!near.empty()) return message + "; did you mean " + near + "?";
    }
    const auto commands = app.get_subcommands();
    const std::string command = commands.empty() ? "" : commands.front()->get_name();
    if (is_option && command == "doctor") message += "; options of afdd come behind --";
    if (!is_option && !is_command && command == "generate") {
        message += "; quote a text of several words";
    }
    return message + " (see " + app.get_name() + " --help)";
}

std::string from_environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// Only here: the library leaves the name of a hidden option out of its messages, too.
constexpr const char* kSeldom = "seldom";
void hide_seldom(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        if (option->get_group() == kSeldom) option->group("");
    }
    for (CLI::App* command : app.get_subcommands(nullptr)) hide_seldom(*command);
}

// As a shell takes it for one word.
std::string shell_word(const std::string& text) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:,@%=";
    if (text.find_first_not_of(kPlain) == std::string::npos) return text;
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

}  // namespace

// The library would read the variables itself, and not tell them from flags.
void EndpointFlags::add_to(CLI::App& app) {
    app.add_option("--instance", instance, "Name of the afdd to talk to")
        ->option_text("NAME=" + std::string(kDefaultInstance) + " (Env:AFD_INSTANCE)");
    app.add_option("--socket", socket_path, "Path of its socket, instead of --instance")
        ->option_text("PATH (Env:AFD_SOCKET)");
}

Result<Endpoint> EndpointFlags::resolve() const {
    const std::string path = socket_path.value_or("");
    if (!path.empty()) return resolve_endpoint(path, "", "--socket");
    const bool has_flag = instance.has_value() || socket_path.has_value();
    const std::string variable = has_flag ? "" : from_environment("AFD_SOCKET");
    if (!variable.empty()) return resolve_endpoint(variable, "", "AFD_SOCKET");
    std::string name = instance ? *instance : from_environment("AFD_INSTANCE");
    if (name.empty() && !instance) name = kDefaultInstance;
    return resolve_endpoint("", name);
}

std::string EndpointFlags::words() const {
    const Result<Endpoint> endpoint = resolve();
    if (!endpoint.ok()) return "";
    const std::string& name = endpoint.value().instance;
    if (name.empty()) return " --socket " + shell_word(endpoint.value().socket_path);
    return instance || socket_path || name != kDefaultInstance ? " --instance " + name : "";
}

CLI::Option* take_whole_numbers(CLI::Option* option, uint64_t low, uint64_t high) {
    return option
        ->transform(CLI::Validator(
            [low, high](std::string& text) { return take_whole_number(text, low, high); }, ""))
        ->type_name("N");
}

CLI::Option* take_numbers(CLI::Option* option, double low, double high) {
    return option->check(CLI::Validator(
        [low, high](std::string& text) { return take_number(text, low, high); }, ""));
}

CLI::Option* add_whole_number(CLI::App& app,
                              const std::string& flag,
                              uint64_t& value,
                              const std::string& description) {
    return take_whole_numbers(app.add_option(flag, value, description), 0, UINT64_MAX);
}

void mark_seldom(CLI::App& command, const std::string& option) {
    command.get_option(option)->group(kSeldom);
}

std::optional<int> parse_command_line(CLI::App& app,
                                      int argc,
                                      char** argv,
                                      const ReportError& report) {
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::CallForHelp&) {
        hide_seldom(app);
        std::cout << app.help();
        return kExitOk;
    } catch (const CLI::CallForVersion& version) {
        std::cout << version.what() << "\n";
        return kExitOk;
    } catch (const CLI::ParseError& error) {
        report({Code::kInvalidArgument,
                usage_error(error.what()) + " (see " + app.get_name() + " --help)"});
        return kExitUsage;
    }
    // The parse lets unknown words through, so that this message can suggest the one that was
    // meant.
    std::vector<std::string> extras = app.remaining(true);
    // The library counts the sign that no options follow among them.
    std::erase(extras, "--");
    if (!extras.empty()) {
        report({Code::kInvalidArgument, unknown_word_message(app, extras.front())});
        return kExitUsage;
    }
    return std::nullopt;
}

int end_output(int exit_code) {
    const std::string lost = finish_standard_output();
    if (lost.empty()) return exit_code;
    print_error({Code::kUnavailable, lost});
    return exit_code == kExitOk || exit_code == kExitInterrupted ? kExitFailed : exit_code;
}

void print_error(const afd::Error& error) {
    std::cerr << "error: " << error.message << std::endl;
}

}  // namespace afd::client

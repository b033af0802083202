// SPDX-License-Identifier: Apache-2.0
#include "clients/command_line.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "clients/exit_code.h"
#include "proto/did_you_mean.h"

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
        if (!near.empty()) return message + "; did you mean " + near + "?";
    } else {
        message += "; quote a text of several words";
    }
    return message + " (see " + app.get_name() + " --help)";
}

}  // namespace

void EndpointFlags::add_to(CLI::App& app) {
    app.add_option("--instance", instance, "Name of the afdd to talk to")
        ->envname("AFD_INSTANCE")
        ->capture_default_str();
    app.add_option("--socket", socket_path, "Path of its socket, instead of --instance")
        ->envname("AFD_SOCKET");
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        std::cout << app.help();
        return kExitOk;
    } catch (const CLI::CallForVersion& version) {
        std::cout << version.what() << "\n";
        return kExitOk;
    } catch (const CLI::ParseError& error) {
        print_error({Code::kInvalidArgument,
                     std::string(error.what()) + " (see " + app.get_name() + " --help)"});
        return kExitUsage;
    }
    // The parse lets unknown words through, so that this message can suggest the one that was
    // meant.
    std::vector<std::string> extras = app.remaining(true);
    // The library counts the sign that no options follow among them.
    std::erase(extras, "--");
    if (!extras.empty()) {
        print_error({Code::kInvalidArgument, unknown_word_message(app, extras.front())});
        return kExitUsage;
    }
    return std::nullopt;
}

void print_error(const afd::Error& error) {
    std::cerr << "error: " << error.message << std::endl;
}

}  // namespace afd::client

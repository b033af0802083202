// SPDX-License-Identifier: Apache-2.0
#include "clients/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "clients/exit_code.h"

namespace afd::client {
namespace {

// Levenshtein's distance; a transposition counts as two.
size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

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
        if (const auto near = nearest_word(name, known_words(app, is_option))) {
            return message + "; did you mean " + *near + "?";
        }
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

std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& candidates) {
    std::optional<std::string> best;
    // More than a third wrong, and at least two letters, is another word.
    size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const size_t distance = edit_distance(word, candidate);
        if (distance >= best_distance) continue;
        best = candidate;
        best_distance = distance;
    }
    return best;
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
    const std::vector<std::string> extras = app.remaining(true);
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

// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/unknown_words.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "calls/name_list.h"
#include "ops/record/operator_check.h"

namespace afd::tools {
namespace {

struct Word {
    std::string name;
};

Error refuse(const std::string& message) {
    return {Code::kInvalidArgument, message};
}

std::vector<Word> options_of(const CLI::App& app) {
    const auto commands = app.get_subcommands();
    const CLI::App& command = commands.empty() ? app : *commands.front();
    std::vector<Word> options;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) options.push_back({"--" + name});
    }
    return options;
}

}  // namespace

// CLI11 only says of another word that a command is required.
Result<> check_command(const CLI::App& app, const std::string& word) {
    std::vector<Word> commands;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (command->get_name() == word) return {};
        commands.push_back({command->get_name()});
    }
    const std::string what =
        word.empty() ? "a command is missing" : "there is no command " + ops::excerpt(word);
    return refuse(what + "; there are " + calls::names_of(commands) +
                  calls::suggestion(word, commands));
}

std::optional<Error> unknown_word(const CLI::App& app) {
    const std::vector<std::string> left = app.remaining(true);
    if (left.empty()) return std::nullopt;
    const auto found = std::find_if(
        left.begin(), left.end(), [](const std::string& word) { return word.starts_with("-"); });
    if (found == left.end()) return refuse("unexpected argument " + ops::excerpt(left.front()));
    const std::string name = found->substr(0, found->find('='));
    const std::vector<Word> options = options_of(app);
    return refuse("there is no option " + ops::excerpt(name) + "; there are " +
                  calls::names_of(options) + calls::suggestion(name, options));
}

}  // namespace afd::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the words of a command line reach CLI11, for every program alike: CLI11 takes the word behind
// "--name=" for its value, though the value is empty. It is here for the reason of usage_error.h,
// and as that needs nothing of CLI11.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace afd {

namespace command_words_parts {

// How many words the option takes at least, of the app or of one of its commands; -1: none has it.
template <typename App>
int num_values_of(const App& app, const std::string& name) {
    if (const auto* option = app.get_option_no_throw(name)) {
        return std::min(option->get_type_size_min(), option->get_items_expected_min());
    }
    for (const App* command : app.get_subcommands(nullptr)) {
        if (const int num_values = num_values_of(*command, name); num_values >= 0)
            return num_values;
    }
    return -1;
}

// "--name=" of an option that takes a value becomes two words, of which the second is empty. What
// is itself the value of the option before it, or behind "--", stays as it is.
template <typename App>
std::vector<std::string> without_bare_equals(const App& app, std::vector<std::string> words) {
    std::vector<std::string> result;
    int num_values_left = 0;
    bool is_behind_mark = false;
    for (std::string& word : words) {
        const bool is_option = !is_behind_mark && num_values_left <= 0 && word.starts_with("-");
        --num_values_left;
        if (is_option) {
            is_behind_mark = word == "--";
            const bool is_bare = word.starts_with("--") && word.ends_with("=");
            const std::string name = is_bare ? word.substr(0, word.size() - 1) : word;
            num_values_left = is_behind_mark ? 0 : num_values_of(app, name);
            if (is_bare && num_values_left > 0) {
                result.push_back(name);
                word.clear();
                --num_values_left;
            }
        }
        result.push_back(std::move(word));
    }
    return result;
}

}  // namespace command_words_parts

// app.parse(argc, argv), but "--name=" gives the option an empty value. REQUIRES: the app has a
// name: the library would take argv[0], which it does not see here.
template <typename App>
void parse_words(App& app, int argc, const char* const* argv) {
    std::vector<std::string> words =
        command_words_parts::without_bare_equals(app, {argv + std::min(argc, 1), argv + argc});
    // The library reads a vector from its end.
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
}

}  // namespace afd

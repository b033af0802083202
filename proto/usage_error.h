// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is wrong with a command line, in the words of this project. Every program reads its own with
// CLI11, whose errors are texts for programmers: "--ffn-workers: At Most 1 required but received
// 2". It is here because proto/ is the one folder that all programs see; it needs nothing of CLI11.

#include <cstdio>
#include <string>
#include <string_view>

namespace afd {

namespace usage_error_parts {

// `text` around the first `middle`; two empty ones if there is none.
struct Halves {
    std::string before;
    std::string after;
    bool is_split = false;
};

inline Halves split(std::string_view text, std::string_view middle) {
    const size_t at = text.find(middle);
    if (at == std::string_view::npos) return {};
    return {std::string(text.substr(0, at)), std::string(text.substr(at + middle.size())), true};
}

// "2.000000" -> "2"
inline std::string shortest(std::string number) {
    if (number.find('.') == std::string::npos) return number;
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    return number;
}

inline std::string values(const std::string& count) {
    return count == "1" ? "a value" : count + " values";
}

// Of an option that was given too many values or too few; empty: it is another error.
inline std::string of_count(std::string_view text) {
    if (const Halves most = split(text, ": At Most "); most.is_split) {
        const Halves counts = split(most.after, " required but received ");
        if (counts.before == "1") {
            return most.before + " is given " + counts.after + " times; give it once";
        }
        return most.before + " takes at most " + values(counts.before) + "; " + counts.after +
               " are given";
    }
    if (const Halves least = split(text, ": At least "); least.is_split) {
        const Halves counts = split(least.after, " required but received ");
        return least.before + " needs " + values(counts.before) + "; " + counts.after +
               (counts.after == "1" ? " is given" : " are given");
    }
    if (!text.ends_with(" missing")) return "";
    const Halves name =
        split(text.substr(0, text.size() - std::string_view(" missing").size()), ": ");
    const Halves kind = split(name.after, " required ");
    if (!kind.is_split) return "";
    return name.before + " needs " + values(kind.before) +
           (kind.after.empty() ? "" : ": " + kind.after);
}

// Of a value that is none of its option's; empty: it is another error.
inline std::string of_value(std::string_view text) {
    if (const Halves range = split(text, " not in range "); range.is_split) {
        const Halves value = split(range.before, ": Value ");
        const Halves bounds = split(range.after, " to ");
        return value.before + " = " + value.after + ": must be from " + shortest(bounds.before) +
               " to " + shortest(bounds.after);
    }
    if (const Halves set = split(text, " not in {"); set.is_split && set.after.ends_with('}')) {
        const Halves value = split(set.before, ": ");
        const std::string words = set.after.substr(0, set.after.size() - 1);
        return value.before + " = " + value.after + ": must be one of " + words;
    }
    constexpr std::string_view kConvert = "Could not convert: ";
    if (!text.starts_with(kConvert)) return "";
    return std::string(text.substr(kConvert.size())) + ": is no value of this option";
}

// Of what nobody expects, which the library lists in reverse order: the first option, or else the
// first word.
inline std::string of_extras(std::string_view text) {
    const Halves extras = split(text, " not expected: ");
    if (!extras.is_split) return "";
    std::string_view rest = extras.after;
    std::string word;
    std::string option;
    while (!rest.empty()) {
        word = rest.substr(0, rest.find(' '));
        rest.remove_prefix(rest.size() > word.size() ? word.size() + 1 : rest.size());
        if (word.starts_with("-")) option = word.substr(0, word.find('='));
    }
    if (!option.empty()) return "unknown option " + option;
    return "unexpected argument '" + word + "'";
}

}  // namespace usage_error_parts

// `text` of an error of CLI11 in our words; one that is not known here stays as it is.
inline std::string usage_error(std::string_view text) {
    if (std::string extra = usage_error_parts::of_extras(text); !extra.empty()) return extra;
    using usage_error_parts::Halves;
    using usage_error_parts::split;
    if (std::string count = usage_error_parts::of_count(text); !count.empty()) return count;
    if (std::string value = usage_error_parts::of_value(text); !value.empty()) return value;
    constexpr std::string_view kRequired = " is required";
    if (text.starts_with("-") && text.ends_with(kRequired)) {
        return std::string(text.substr(0, text.size() - kRequired.size())) + " must be given";
    }
    if (text.ends_with(kRequired)) {
        return std::string(text.substr(0, text.size() - kRequired.size())) + " is missing";
    }
    if (const Halves two = split(text, " excludes "); two.is_split) {
        return two.before + " and " + two.after + " exclude each other; give one of them";
    }
    if (const Halves two = split(text, " requires "); two.is_split) {
        return two.before + " is for use with " + two.after + "; give both";
    }
    return std::string(text);
}

// Ends the parse of a CLI::App: prints help or version, or one line of what is wrong. Returns the
// exit code: 0, or `usage_code`.
template <typename App, typename ParseError>
int end_parse(const App& app, const ParseError& error, const std::string& program, int usage_code) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr,
                 "%s: %s (see %s --help)\n",
                 program.c_str(),
                 usage_error(error.what()).c_str(),
                 program.c_str());
    return usage_code;
}

}  // namespace afd

// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/help_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "daemon/options/config_options.h"
#include "daemon/program/exit_codes.h"

namespace afd::daemon {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kIndent = 28;

constexpr const char* kStart =
    "afdd serves a mixture-of-experts model with attention workers and FFN workers.\n"
    "\n"
    "Usage: afdd [OPTIONS]\n"
    "  afdd --demo                          try it, with the built-in model\n"
    "  afdd --model DIR --attention-workers 4 --ffn-workers 2 --http 127.0.0.1:8000\n"
    "  afdd --config afd.toml --log-level debug\n"
    "  AFD_MODEL=DIR afdd --check-config    every value and where it comes from\n";

constexpr const char* kSources =
    "\n"
    "Every option is also a key of the configuration file (ffn_workers = 2) and an\n"
    "environment variable (AFD_FFN_WORKERS). Flags win over the environment, the\n"
    "environment over the file: --config, AFD_CONFIG, ./afd.toml,\n"
    "$XDG_CONFIG_HOME/afd/config.toml, /etc/afd/afd.toml.\n";

constexpr const char* kMore =
    "\n"
    "afdd --help-all has every option, the signals and the exit codes.\n";

constexpr const char* kSignals =
    "\n"
    "Signals: SIGTERM or SIGINT drains (a second one, 100 ms later or more, stops at\n"
    "once); SIGHUP reads log_level, API keys and certificates again; SIGUSR1 logs the\n"
    "state as JSON.\n";

struct Flag {
    const char* usage;
    const char* description;
};

constexpr Flag kFlags[] = {
    {"-h, --help, --help-all", "This, or every option"},
    {"--version", "The version"},
    {"--config FILE", "Configuration file (TOML)"},
    {"--demo", "Serve the built-in model as instance 'demo'"},
    {"--slurm", "As a task of a Slurm job: its first node leads, the others join"},
    {"--check-config", "Print every value and its origin, look at the model, and exit"},
    {"--doctor", "Say what of this machine would hinder the instance, and exit"},
    {"--json", "With --doctor: as a JSON array"},
};

constexpr std::string_view kOften[] = {
    "model",
    "instance",
    "attention_workers",
    "ffn_workers",
    "cluster_listen",
    "join",
    "kv_tokens",
    "attention_threads",
    "ffn_threads",
    "numeric_class",
    "drain_timeout_ms",
    "http",
    "http_keys",
    "log_level",
};

// `usage` in the left column, `text` wrapped in the right one, which begins at `indent`.
std::string entry(const std::string& usage, std::string_view text, size_t indent = kIndent) {
    std::string lines = "  " + usage;
    size_t column = lines.size();
    const auto new_line = [&] {
        lines += "\n" + std::string(indent, ' ');
        column = indent;
    };
    if (column + 2 > indent) {
        new_line();
    } else {
        lines.append(indent - column, ' ');
        column = indent;
    }
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(text.size(), word.size() + 1));
        if (column > indent && column + 1 + word.size() > kWidth) new_line();
        if (column > indent) {
            lines += ' ';
            ++column;
        }
        lines += word;
        column += word.size();
    }
    return lines + "\n";
}

const char* value_name(const ConfigOption& option) {
    if (std::holds_alternative<bool Config::*>(option.member)) return "true|false";
    if (std::holds_alternative<uint64_t Config::*>(option.member)) return "N";
    return option.choices.empty() ? "TEXT" : "WORD";
}

// "[auto|window|two_phase; auto]", "[256 tokens]": what it may be, and what it is.
std::string described(const ConfigOption& option) {
    std::string text = option.description;
    if (option.choices.empty() && option.default_text[0] == '\0') return text;
    text += " [";
    for (const std::string& choice : option.choices) text += choice + "|";
    if (!option.choices.empty()) text.back() = ';';
    if (!option.choices.empty()) text += " ";
    text += std::string(option.default_text);
    if (option.unit[0] != '\0') text += std::string(" ") + option.unit;
    return text + "]";
}

std::string entry(const ConfigOption& option) {
    return entry(flag_name(option.name) + " " + value_name(option), described(option));
}

std::string often_used() {
    std::string text;
    for (const ConfigOption& option : config_options()) {
        if (std::ranges::find(kOften, option.name) != std::end(kOften)) text += entry(option);
    }
    return text;
}

std::string all_topics() {
    std::string text;
    for (const OptionTopic& topic : config_topics()) {
        text += fmt::format("\n{}:\n", topic.title);
        for (const ConfigOption& option : topic.options) text += entry(option);
    }
    return text;
}

std::string exit_codes() {
    std::string text = "\nExit codes:\n";
    for (const ExitCodeText& code : kExitCodes) {
        text += entry(std::to_string(static_cast<int>(code.code)), code.text, 5);
    }
    return text;
}

}  // namespace

std::string help_text(HelpDepth depth) {
    std::string text = std::string(kStart) + "\n";
    for (const Flag& flag : kFlags) text += entry(flag.usage, flag.description);
    if (depth == HelpDepth::kOften) return text + often_used() + kSources + kMore;
    return text + all_topics() + kSources + kSignals + exit_codes();
}

}  // namespace afd::daemon

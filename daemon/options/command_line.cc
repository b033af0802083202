// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>

#include "daemon/options/config_options.h"
#include "daemon/options/help_text.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/version.h"
#include "proto/command_words.h"
#include "proto/did_you_mean.h"
#include "proto/usage_error.h"

namespace afd::daemon {

namespace {

std::map<std::string, std::string> to_map(const char* const* environment) {
    std::map<std::string, std::string> variables;
    for (; *environment != nullptr; ++environment) {
        const std::string entry = *environment;
        const size_t equals = entry.find('=');
        if (equals != std::string::npos) {
            variables[entry.substr(0, equals)] = entry.substr(equals + 1);
        }
    }
    return variables;
}

// The flag that the user may have meant, for the first argument that is none.
std::string explain_extra(const std::string& extra) {
    std::vector<std::string> flags = {"--config",
                                      "--demo",
                                      "--slurm",
                                      "--check-config",
                                      "--doctor",
                                      "--json",
                                      "--help",
                                      "--help-all"};
    for (const std::string& name : option_names()) flags.push_back(flag_name(name));
    const std::string word = extra.substr(0, extra.find('='));
    return "unknown argument '" + extra + "'" + did_you_mean(word, flags);
}

// What is wrong with the flags that were parsed; empty: nothing.
std::string misuse_of(const CLI::App& app, const CommandLine& line) {
    if (!app.remaining().empty()) return explain_extra(app.remaining().front());
    if (line.json && !line.doctor) return "--json is for --doctor; give both (see afdd --help)";
    return "";
}

}  // namespace

std::string program_directory() {
    std::array<char, 4096> path{};
    // Not argv[0], which may be a bare name that the shell found along PATH.
    const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
    if (size <= 0) return ".";
    const std::string full(path.data(), static_cast<size_t>(size));
    return full.substr(0, full.rfind('/'));
}

std::string find_demo_model(const std::string& directory) {
    const std::array<std::string, 2> places = {directory + "/../share/afd/demo_model",
                                               AFD_SOURCE_DIRECTORY "/demo_model"};
    for (const std::string& place : places) {
        std::error_code error;
        if (std::filesystem::exists(place + "/config.json", error)) {
            return std::filesystem::weakly_canonical(place, error).string();
        }
    }
    return "";
}

std::optional<CommandLine> parse_command_line(int argc,
                                              const char* const* argv,
                                              const char* const* environment,
                                              int* exit_code) {
    CommandLine line;
    CLI::App app("", "afdd");
    // What it would print is help_text().
    app.set_help_flag();
    app.set_version_flag("--version", "afdd " + std::string(kVersion));
    // The library would refuse an unknown flag without a suggestion; it is refused below with one.
    app.allow_extras();
    bool wants_help = false;
    bool wants_all = false;
    app.add_flag("-h,--help", wants_help);
    app.add_flag("--help-all", wants_all);
    app.add_option("--config", line.sources.config_file);
    app.add_flag("--demo", line.sources.demo);
    app.add_flag("--slurm", line.slurm);
    app.add_flag("--check-config", line.check_config);
    app.add_flag("--doctor", line.doctor);
    app.add_flag("--json", line.json);
    std::map<std::string, std::string> values;
    for (const ConfigOption& option : config_options()) {
        app.add_option(flag_name(option.name), values[option.name])->type_name("");
    }
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        *exit_code = end_parse(app, error, "afdd", static_cast<int>(ExitCode::kUsage));
        return std::nullopt;
    }
    if (wants_help || wants_all) {
        std::fputs(help_text(wants_all ? HelpDepth::kAll : HelpDepth::kOften).c_str(), stdout);
        *exit_code = static_cast<int>(ExitCode::kOk);
        return std::nullopt;
    }
    if (const std::string misuse = misuse_of(app, line); !misuse.empty()) {
        std::fprintf(stderr, "afdd: %s\n", misuse.c_str());
        *exit_code = static_cast<int>(ExitCode::kUsage);
        return std::nullopt;
    }
    for (const auto& [name, text] : values) {
        // Only what was given: a default of the library here would win over file and environment.
        if (app.get_option(flag_name(name))->count() > 0) line.sources.flags[name] = text;
    }
    line.sources.needs_model = !line.doctor;
    line.sources.environment = to_map(environment);
    line.sources.default_files = default_config_files(line.sources.environment);
    if (line.sources.demo) line.sources.demo_model = find_demo_model(program_directory());
    return line;
}

}  // namespace afd::daemon

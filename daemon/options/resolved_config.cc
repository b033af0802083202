// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/resolved_config.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "daemon/config/join_address.h"
#include "daemon/config/listen_address.h"
#include "daemon/options/config_file.h"
#include "daemon/options/config_options.h"
#include "daemon/placement/ucx_host.h"
#include "proto/did_you_mean.h"
#include "proto/failure.h"
#include "proto/host_name.h"

namespace afd::daemon {

namespace {

// A value before validation, and where it came from.
struct RawValue {
    std::string text;
    std::string origin;
};
using RawValues = std::map<std::string, RawValue>;

std::string position(const std::string& file, const toml::source_region& region) {
    return file + ":" + std::to_string(region.begin.line) + ":" +
           std::to_string(region.begin.column);
}

const ConfigOption* find_option(std::string_view name) {
    for (const ConfigOption& option : config_options()) {
        if (name == option.name) return &option;
    }
    return nullptr;
}

// The text of a TOML value if it has the type of the option.
std::optional<std::string> text_of(const ConfigOption& option, const toml::node& node) {
    if (std::holds_alternative<uint64_t Config::*>(option.member)) {
        // Exact: a plain value() would turn 1.0 or true into an integer, and hide a mistake.
        const auto value = node.value_exact<int64_t>();
        return value ? std::optional(std::to_string(*value)) : std::nullopt;
    }
    if (std::holds_alternative<bool Config::*>(option.member)) {
        const auto value = node.value_exact<bool>();
        return value ? std::optional<std::string>(*value ? "true" : "false") : std::nullopt;
    }
    return node.value_exact<std::string>();
}

Result<toml::table> parse_file(const std::string& file, const std::string& text) {
    try {
        return toml::parse(text, file);
    } catch (const toml::parse_error& error) {
        return Error{Code::kInvalidArgument,
                     position(file, error.source()) + ": " + std::string(error.description())};
    }
}

Result<> read_values(const std::string& file, ConfigFilePlace place, RawValues& values) {
    AFD_ASSIGN(const std::string bytes, read_config_file(file, place));
    AFD_ASSIGN(const toml::table table, parse_file(file, bytes));
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        const ConfigOption* option = find_option(name);
        if (option == nullptr) {
            return Error{Code::kInvalidArgument,
                         position(file, key.source()) + ": unknown key '" + name + "'" +
                             did_you_mean(name, option_names())};
        }
        const std::optional<std::string> text = text_of(*option, node);
        if (!text) {
            const bool is_text = std::holds_alternative<std::string Config::*>(option->member) ||
                                 std::holds_alternative<ChoiceMember>(option->member);
            const char* type = is_text ? "in quotes" : "without quotes";
            return Error{Code::kInvalidArgument,
                         position(file, node.source()) + ": " + name + " must be " +
                             allowed_values(*option) + ", written " + type};
        }
        values[name] = {*text, file + ":" + std::to_string(node.source().begin.line)};
    }
    return {};
}

// The file that counts, and how afdd came to it; empty: there is none.
std::pair<std::string, ConfigFilePlace> choose_file(const ConfigSources& sources) {
    if (!sources.config_file.empty()) return {sources.config_file, ConfigFilePlace::kNamed};
    const auto named = sources.environment.find("AFD_CONFIG");
    if (named != sources.environment.end() && !named->second.empty()) {
        return {named->second, ConfigFilePlace::kNamed};
    }
    // A file of the user's own instance must not change what the demo is; one that is named, above,
    // may.
    if (sources.demo) return {"", ConfigFilePlace::kFound};
    for (const std::string& file : sources.default_files) {
        if (::access(file.c_str(), F_OK) == 0) return {file, ConfigFilePlace::kFound};
    }
    return {"", ConfigFilePlace::kFound};
}

// What --demo is about. It is a flag: a variable that a shell has set for another instance does not
// change it.
bool is_of_demo(std::string_view option) {
    return option == "instance" || option == "model";
}

// Unknown AFD_* variables may belong to other programs of ours, so they are not errors
// (misspelt_variables.h).
void read_environment(const ConfigSources& sources, RawValues& values) {
    for (const ConfigOption& option : config_options()) {
        if (sources.demo && is_of_demo(option.name)) continue;
        const std::string name = environment_name(option.name);
        const auto found = sources.environment.find(name);
        if (found != sources.environment.end()) values[option.name] = {found->second, name};
    }
}

void read_demo(const ConfigSources& sources, RawValues& values) {
    if (!sources.demo) return;
    values["instance"] = {"demo", "--demo"};
    values["model"] = {sources.demo_model, "--demo"};
    values["attention_workers"] = {"2", "--demo"};
    values["ffn_workers"] = {"1", "--demo"};
}

// All tasks of a job have one command line: what it says of hosts is for the one that leads, and
// where that listens is where the others join; at the address that Slurm has, if it listens at all
// of them.
void keep_to_own_part(const ConfigSources& sources, RawValues& values) {
    if (!sources.slurm.contains("join")) return;
    auto join = parse_join_address(values["join"].text);
    const auto listen = parse_listen_address(values["cluster_listen"].text);
    if (join.ok() && listen.ok()) {
        const std::string& host = listen.value().host;
        if (host != "0.0.0.0" && host != "::") join.value().host = host;
        join.value().port = listen.value().port;
        values["join"] = {join.value().text(), values["cluster_listen"].origin};
    }
    for (const char* name : {"cluster_listen", "attention_hosts", "ffn_hosts"}) {
        values[name] = {"", "--slurm"};
    }
}

Result<> check_ucx(const Config& config) {
#ifndef AFD_HAS_UCX
    return invalid_argument(
        "transport = 'ucx': this afdd was built without it; install Debian's libucx-dev "
        "(scripts/setup --hosts) and build it again");
#endif
    if (config.colocated()) {
        return invalid_argument(
            "transport = 'ucx': topology = 'colocated' has no rows that travel; leave transport at "
            "'shared_memory' or choose topology = 'disaggregated'");
    }
    return {};
}

Error no_certificates(const Config& config) {
    if (!config.join.empty()) {
        return invalid_argument(
            "cluster_dir is not set: hosts know each other by certificates; copy ca.pem, NAME.pem "
            "and NAME.key from where the leader's were made ('afdctl cluster init') into a "
            "directory and name it");
    }
    return invalid_argument(
        "cluster_dir is not set: hosts know each other by certificates; make them with 'afdctl "
        "cluster init DIR --host NAME' and copy them to each host");
}

// It would take the place of the host that leads, or of nobody.
Result<> check_joining_name(const std::string& name) {
    if (name.empty()) return {};
    if (const Result<> valid = check_host_name(name); !valid.ok()) {
        return invalid_argument("host_name = '{}': {}", with(name, valid.error().message));
    }
    if (name != kLeaderName && name != kLocalHost) return {};
    return invalid_argument(
        "host_name = '{}': is the host of the afdd that leads; name this one as its lists of hosts "
        "do",
        with(name));
}

Result<> check_hosts(const Config& config) {
    const bool is_member = config.has_hosts() || !config.join.empty();
    if (is_member && config.transport != Transport::kUcx) {
        return invalid_argument(
            "attention_hosts, ffn_hosts and join: workers on other hosts talk over transport = "
            "'ucx', and transport is 'shared_memory'; set it on every host");
    }
    if (is_member && config.cluster_dir.empty()) return no_certificates(config);
    if (config.has_hosts() && !config.join.empty()) {
        return invalid_argument(
            "join = '{}': the afdd that leads says which workers run here; leave attention_hosts "
            "and ffn_hosts empty",
            with(config.join));
    }
    if (config.has_hosts() && config.cluster_listen.empty()) {
        return invalid_argument(
            "cluster_listen is not set: say at which ADDRESS:PORT of this host the others join");
    }
    if (config.has_hosts() && !config.spawn) {
        return invalid_argument(
            "spawn = false: workers of other hosts are started by their afdd; leave spawn at true");
    }
    if (!config.join.empty()) AFD_TRY(check_joining_name(config.host_name));
    // At which address a host that joins is seen shows when it has.
    if (config.has_hosts()) AFD_TRY(own_ucx_host(config));
    return {};
}

// What no single option can tell.
Result<> check_together(const Config& config) {
    const bool ffn_routes = config.router == schedule::RouterPlacement::kFfn;
    if (config.colocated() && ffn_routes) {
        return Error{Code::kInvalidArgument,
                     "router = 'ffn': topology = 'colocated' has no FFN workers; leave router at "
                     "'attention' or choose topology = 'disaggregated'"};
    }
    const schedule::RowDtype dtype = config.dispatch_dtype.value_or(schedule::RowDtype::kBf16);
    if (ffn_routes && dtype != schedule::RowDtype::kBf16) {
        return Error{Code::kInvalidArgument,
                     "dispatch_dtype = '" + std::string(name_of(dtype)) +
                         "': with router = 'ffn' FFN workers choose by the rows that they get, "
                         "which must be bf16; leave dispatch_dtype at 'auto'"};
    }
    if (config.transport == Transport::kUcx) AFD_TRY(check_ucx(config));
    AFD_TRY(check_hosts(config));
    if (config.ffn_policy == schedule::FfnPolicy::kGroups &&
        config.ffn_sync_group_size > config.attention_workers) {
        return Error{Code::kInvalidArgument,
                     "ffn_sync_group_size = " + std::to_string(config.ffn_sync_group_size) +
                         ": must be at most attention_workers = " +
                         std::to_string(config.attention_workers)};
    }
    if (config.restart_max_ms < config.restart_first_ms) {
        return Error{
            Code::kInvalidArgument,
            "restart_max_ms = " + std::to_string(config.restart_max_ms) +
                ": must be at least restart_first_ms = " + std::to_string(config.restart_first_ms)};
    }
    if (config.wait_report_ms > config.round_timeout_ms) {
        return Error{
            Code::kInvalidArgument,
            "wait_report_ms = " + std::to_string(config.wait_report_ms) +
                ": must be at most round_timeout_ms = " + std::to_string(config.round_timeout_ms)};
    }
    return {};
}

}  // namespace

Result<ResolvedConfig> resolve_config(const ConfigSources& sources) {
    RawValues values;
    for (const ConfigOption& option : config_options()) {
        values[option.name] = {option.default_text, "default"};
    }
    read_demo(sources, values);
    for (const auto& [name, text] : sources.slurm) values[name] = {text, "--slurm"};
    const auto [file, place] = choose_file(sources);
    if (!file.empty()) AFD_TRY(read_values(file, place, values));
    read_environment(sources, values);
    // Last, because later sources win: demo, Slurm, file, environment, flags.
    for (const auto& [name, text] : sources.flags) values[name] = {text, flag_name(name)};
    keep_to_own_part(sources, values);

    ResolvedConfig resolved;
    if (!file.empty()) {
        std::error_code error;
        const auto full = std::filesystem::absolute(file, error);
        resolved.config_file = error ? file : full.lexically_normal().string();
    }
    for (const ConfigOption& option : config_options()) {
        const RawValue& value = values[option.name];
        const Result<> set = set_option(option, value.text, resolved.config);
        if (!set.ok()) {
            return Error{set.error().code, set.error().message + " (from " + value.origin + ")"};
        }
        resolved.origins[option.name] = value.origin;
    }
    // Behind the checks of single options, whose messages are more to the point.
    if (sources.needs_model && resolved.config.model.empty()) {
        return Error{Code::kInvalidArgument,
                     "model is not set: name the model's directory with --model DIR, or try the "
                     "built-in demo with --demo"};
    }
    AFD_TRY(check_together(resolved.config));
    return resolved;
}

Result<Config> with_workers(const Config& config,
                            uint64_t attention_workers,
                            uint64_t ffn_workers) {
    Config other = config;
    const std::map<std::string, uint64_t> numbers = {{"attention_workers", attention_workers},
                                                     {"ffn_workers", ffn_workers}};
    for (const ConfigOption& option : config_options()) {
        const auto found = numbers.find(option.name);
        if (found == numbers.end()) continue;
        AFD_TRY(set_option(option, std::to_string(found->second), other));
    }
    AFD_TRY(check_together(other));
    return other;
}

std::string describe_config(const ResolvedConfig& resolved) {
    std::string text;
    for (const ConfigOption& option : config_options()) {
        std::string line =
            std::string(option.name) + " = " + option_literal(option, resolved.config);
        constexpr size_t kCommentColumn = 40;
        line.resize(std::max(line.size() + 1, kCommentColumn), ' ');
        const std::string unit = option.unit[0] == '\0' ? "" : std::string(option.unit) + ", ";
        text += line + "# " + unit + resolved.origins.at(option.name) + "\n";
    }
    return text;
}

std::vector<std::string> default_config_files(
    const std::map<std::string, std::string>& environment) {
    std::vector<std::string> files = {"afd.toml"};
    const auto xdg = environment.find("XDG_CONFIG_HOME");
    const auto home = environment.find("HOME");
    if (xdg != environment.end() && !xdg->second.empty()) {
        files.push_back(xdg->second + "/afd/config.toml");
    } else if (home != environment.end() && !home->second.empty()) {
        files.push_back(home->second + "/.config/afd/config.toml");
    }
    files.push_back("/etc/afd/afd.toml");
    return files;
}

}  // namespace afd::daemon
